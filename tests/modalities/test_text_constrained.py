"""Replies under a schema: the reference's own are right, and what no model wrote under the grammar is refused."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from served_replies import make_reply

from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.modalities.text import constrained, wire
from vibeserve.modalities.text.constrained import schema_findings
from vibeserve.modalities.text.reference import TextReference, load
from vibeserve.weights import load_tokenizer

SCHEMA = {
    "type": "object",
    "properties": {"severity": {"enum": ["low", "medium", "high"]}, "is_open": {"type": "boolean"}},
    "required": ["severity", "is_open"],
    "additionalProperties": False,
}
RIGHT = '{"severity":"low","is_open":true}'


def request(schema: Any = SCHEMA, **changes: Any) -> PromptRequest:
    form = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": schema, "strict": True}}
    asked = PromptRequest(
        request_id="r", prompt="7f3a\nFile a ticket.\nJSON: ", num_prompt_tokens=12, max_tokens=48, ignore_eos=False,
        payload={"response_format": form},
    )  # fmt: skip
    return replace(asked, **changes)


@pytest.fixture(scope="module")
def reference(tiny_model_dir: Path) -> TextReference:
    return load(str(tiny_model_dir), "cpu", "float32")


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(tiny_model_dir)


def scored(reference: TextReference, ids: list[int], asked: PromptRequest | None = None) -> dict[str, Any]:
    return reference.score(asked or request(), {"token_ids": ids})


def served(text: str, tokenizer: Any, *, reason: str = "stop", asked: PromptRequest | None = None) -> Reply:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return make_reply(asked or request(), ids, tokenizer=tokenizer, finish_reason=reason)


def test_the_references_own_document_is_valid_and_scores_without_a_margin(
    reference: TextReference, tokenizer: Any
) -> None:
    done = reference.run(request())
    reply = make_reply(request(), done["token_ids"], tokenizer=tokenizer, finish_reason="stop")
    assert list(schema_findings([reply])) == []
    scores = scored(reference, done["token_ids"])
    assert (scores["problem"], max(scores["margins"])) == ("", 0.0)
    assert len(scores["margins"]) == len(scores["logprobs"]) == len(done["token_ids"])
    assert scores["end_margins"] == [], "where a document ends is its grammar's to say"
    # without the mask the random model would never have written it
    free = scored(reference, done["token_ids"], request(payload=None))
    assert max(free["margins"]) > 0.1


def test_a_valid_document_that_the_model_would_not_write_has_margins(reference: TextReference, tokenizer: Any) -> None:
    own = reference.run(request())["text"]
    other = next(
        text
        for word in ("low", "medium", "high")
        if (text := RIGHT.replace("low", word)).split('"')[3] != own.split('"')[3]
    )
    scores = scored(reference, tokenizer.encode(other, add_special_tokens=False).ids)
    assert scores["problem"] == ""
    assert max(scores["margins"]) > 0.01, "a synthesiser that asks no model chooses where the model would"


def test_text_that_is_forced_is_right_in_any_split(reference: TextReference, tokenizer: Any) -> None:
    """`{"severity"` is the only beginning but for white space, so a runtime need not ask the model for its letters."""
    schema = {"type": "object", "properties": {"x": {"const": "abcdef"}}, "required": ["x"]}
    letters = [tokenizer.encode(letter, add_special_tokens=False).ids for letter in "abcdef"]
    prefix = reference.run(request(schema))["token_ids"]
    text = tokenizer.decode(prefix)
    start = text.index("abcdef")
    head = tokenizer.encode(text[:start], add_special_tokens=False).ids
    scores = scored(reference, head + [one for ids in letters for one in ids], request(schema))
    assert scores["problem"] == "" and scores["margins"][-6:] == [0.0] * 6


def test_a_token_that_the_schema_forbids_is_no_score(reference: TextReference, tokenizer: Any) -> None:
    ids = tokenizer.encode('{"severity":"no', add_special_tokens=False).ids
    scores = scored(reference, ids)
    assert scores["problem"].startswith("token ") and "is not one that the reply's schema allows" in scores["problem"]
    after = reference.run(request())["token_ids"]
    assert scored(reference, [*after, after[0]])["problem"] != "", "nothing follows a document but its end"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no document", "r: 11 characters that are no JSON"),
        ('{"severity":"dire","is_open":true}', "r: severity breaks 'enum' of its schema"),
        ('{"severity":"low"}', "r: the document breaks 'required' of its schema"),
        (RIGHT[:-1], "r: 32 characters that are no JSON"),
    ],
)
def test_a_finished_reply_that_breaks_its_schema_is_found(text: str, told: str, tokenizer: Any) -> None:
    (finding,) = schema_findings([served(text, tokenizer), served(RIGHT, tokenizer)])
    assert (finding.gate, finding.reason_class) == ("schema", "schema_violated")
    assert finding.text == f"{told} (1 of 2 finished replies)"


def test_what_its_length_cut_and_what_is_free_is_no_document(tokenizer: Any) -> None:
    cut = served(RIGHT[:9], tokenizer, reason="length")
    free = served("no document", tokenizer, asked=request(payload=None))
    assert list(schema_findings([cut, free])) == []


def test_what_no_grammar_can_hold_is_a_fault_of_the_workload(reference: TextReference) -> None:
    with pytest.raises(SpecError, match="a schema of the workload cannot be enforced: "):
        reference.score(request({"type": "object", "patternProperties": {"(?=a)": {}}}), {"token_ids": [1]})
    other = request(payload={"response_format": {"type": "json_object"}})
    with pytest.raises(SpecError, match=r"response_format\.type is 'json_object'\n  valid in a workload: json_schema"):
        reference.score(other, {"token_ids": [1]})


def test_each_dialect_sends_the_schema_or_says_that_it_cannot() -> None:
    form = request().payload["response_format"]
    assert wire.body_of("vllm", request(), model="m")["response_format"] == form
    assert wire.body_of("llama_cpp", request(), model="m")["json_schema"] == SCHEMA
    with pytest.raises(SpecError, match=r"cannot send a response_format.*\n  baselines that can: vllm, llama_cpp"):
        wire.body_of("transformers", request(), model="m")
    assert "response_format" not in wire.body_of("vllm", request(payload=None), model="m")


def test_the_scaffold_leaves_the_same_room_between_tokens_as_the_gate() -> None:
    source = (data_dir("templates") / "runtime" / "text" / "runtime" / "constraints.py").read_text(encoding="utf-8")
    found = [
        ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "WHITESPACE"
    ]
    assert found == [constrained.WHITESPACE]
