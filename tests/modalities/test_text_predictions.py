"""Predictions from the reference's own answers, and what a server may say of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from served_replies import make_reply

from vibeserve.core.nouns import PromptRequest, Usage
from vibeserve.errors import InfraError
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.modalities.text.answers import AnswerSource, answer_source
from vibeserve.modalities.text.check_predictions import prediction_findings
from vibeserve.modalities.text.wire import body_of, parse_event
from vibeserve.spec import Spec, Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool
from vibeserve.workloads.predictions import predict_answer, predicted_text, with_prediction

EDITS = Workload(
    kind="code_edit", prompt_tokens_min=96, prompt_tokens_max=160, output_tokens_min=12, output_tokens_max=24,
    predictions_ahead=4,
)  # fmt: skip


def bundle_of(model_dir: Path, **changes: Any) -> Bundle:
    return open_bundle(bundle_ref(Spec(workload=dataclasses.replace(EDITS, **changes)), model_dir=model_dir))


def take(num: int, bundle: Bundle) -> list[PromptRequest]:
    return cast(list[PromptRequest], list(itertools.islice(bundle.load_requests(3, Pool.selection), num)))


@pytest.mark.slow
def test_an_exact_prediction_is_the_references_greedy_answer(tiny_model_dir: Path) -> None:
    """Prompts of different lengths in one batch."""
    requests = take(4, bundle_of(tiny_model_dir, prediction="exact"))
    reference = bundle_of(tiny_model_dir).load_reference(device="cpu", dtype="float32")
    tokenizer = load_tokenizer(tiny_model_dir)
    assert len({request.num_prompt_tokens for request in requests}) > 1
    for request in requests:
        right = reference.run(request)
        assert predicted_text(request) == tokenizer.decode(right["token_ids"], skip_special_tokens=True)


@pytest.mark.slow
def test_edited_predictions_are_near_the_answer_and_the_same_for_every_server(tiny_model_dir: Path) -> None:
    exact = take(4, bundle_of(tiny_model_dir, prediction="exact"))
    num_computed = answer_source(str(tiny_model_dir)).num_computed
    edits = take(4, bundle_of(tiny_model_dir, prediction="edits"))
    assert edits == take(4, bundle_of(tiny_model_dir, prediction="edits"))
    # the loads of all servers ask the same: no answer is made twice
    assert answer_source(str(tiny_model_dir)).num_computed == num_computed
    for one, other in zip(exact, edits, strict=True):
        assert dataclasses.replace(one, payload=None) == dataclasses.replace(other, payload=None)
        assert predicted_text(one) != predicted_text(other)


def test_a_load_goes_on_beyond_what_was_made_ahead(tiny_model_dir: Path, monkeypatch: Any) -> None:
    """Nine at once, before anything is asked for, then one at a time, with way given to the server."""
    told: list[int | str] = []

    def answers(_: AnswerSource, requests: list[PromptRequest]) -> list[list[int]]:
        told.append(len(requests))
        return [[5, 6, 7] for _ in requests]

    monkeypatch.setattr(AnswerSource, "answers", answers)
    monkeypatch.setattr(AnswerSource, "give_way", lambda _: told.append("gives way"))
    stream = bundle_of(tiny_model_dir, prediction="exact", predictions_ahead=9).load_requests(3, Pool.selection)
    assert told == [9]
    requests = cast(list[PromptRequest], list(itertools.islice(stream, 11)))
    assert told == [9, "gives way", 1, 1]
    assert len({request.prompt for request in requests}) == 11 and all(map(predicted_text, requests))


def test_the_stream_alone_has_no_answers_and_starts_no_child(tiny_model_dir: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(AnswerSource, "answers", lambda *_: pytest.fail("an answer was made"))
    bundle = bundle_of(tiny_model_dir, prediction="edits")
    assert predicted_text(cast(PromptRequest, next(iter(bundle.workload.requests(3, Pool.selection))))) is None
    for kind in ("none", "pre_edit", "useless"):
        assert (predicted_text(take(1, bundle_of(tiny_model_dir, prediction=kind))[0]) is None) is (kind == "none")


def test_an_answer_ends_with_the_end_token_where_it_counts(tiny_model_dir: Path, monkeypatch: Any) -> None:
    from vibeserve.modalities.text.answerer import Answerer

    answerer = Answerer(tiny_model_dir)
    asked = {"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}
    (ids,) = answerer.answers([asked])
    assert len(ids) == 8
    monkeypatch.setattr(answerer, "_end_ids", {ids[3]})
    (ended,) = answerer.answers([{**asked, "ignore_eos": False}])
    assert ended == ids[: ids.index(ids[3]) + 1]


@pytest.mark.slow
def test_a_child_that_fails_is_infrastructure(tmp_path: Path, tiny_model_dir: Path) -> None:
    source = AnswerSource(str(tmp_path))
    request = take(1, bundle_of(tiny_model_dir, prediction="none"))[0]
    with pytest.raises(InfraError, match=r"(?s)the reference's answers could not be made \(exit 1\).*tokenizer"):
        source.answers([request])


# -- what is sent and said


def test_a_prediction_goes_to_servers_that_may_know_it(tiny_model_dir: Path) -> None:
    request = with_prediction(take(1, bundle_of(tiny_model_dir, prediction="none"))[0], "def f")
    assert body_of("vllm", request, model="m")["prediction"] == {"type": "content", "content": "def f"}
    assert all("prediction" not in body_of(name, request, model="m") for name in ("transformers", "llama_cpp"))


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("null", (None, None)),
        ("{}", (None, None)),
        ('{"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 0}', (3, 0)),
    ],
)
def test_counts_of_predictions_are_read(details: str, expected: tuple[int | None, int | None]) -> None:
    counts = f'"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {details}'
    usage = parse_event(f'{{"choices": [], "usage": {{{counts}}}}}').usage
    assert usage is not None
    assert (usage.accepted_prediction_tokens, usage.rejected_prediction_tokens) == expected


@pytest.mark.parametrize(
    "details", ["[1]", '{"accepted_prediction_tokens": "3"}', '{"rejected_prediction_tokens": true}']
)
def test_counts_that_are_none_are_malformed(details: str) -> None:
    counts = f'"prompt_tokens": 1, "completion_tokens": 2, "completion_tokens_details": {details}'
    with pytest.raises(ValueError, match="not a completions event"):
        parse_event(f'{{"choices": [], "usage": {{{counts}}}}}')


@pytest.fixture
def predicted(tiny_model_dir: Path) -> Iterator[tuple[Any, PromptRequest, list[int]]]:
    tokenizer = load_tokenizer(tiny_model_dir)
    request = take(1, bundle_of(tiny_model_dir, prediction="none"))[0]
    ids = tokenizer.encode("def solve a problem with care", add_special_tokens=False).ids
    yield tokenizer, predict_answer(request, ids, kind="exact", tokenizer=tokenizer), ids


def said(predicted: tuple[Any, PromptRequest, list[int]], accepted: int | None, rejected: int | None) -> list[str]:
    tokenizer, request, ids = predicted
    usage = Usage(
        prompt_tokens=request.num_prompt_tokens, completion_tokens=len(ids), accepted_prediction_tokens=accepted,
        rejected_prediction_tokens=rejected,
    )  # fmt: skip
    # the last token is another than predicted
    reply = make_reply(request, [*ids[:-1], ids[0]], tokenizer=tokenizer, usage=usage)
    findings = prediction_findings([reply, dataclasses.replace(reply, error="cut")], tokenizer=tokenizer)
    assert {(found.gate, found.reason_class) for found in findings} <= {("usage", "prediction_usage")}
    return [found.text.removeprefix(f"{request.request_id} ") for found in findings]


def test_possible_counts_pass_and_others_are_refused(predicted: tuple[Any, PromptRequest, list[int]]) -> None:
    num = len(predicted[2])
    for accepted, rejected in ((None, None), (0, 0), (0, num), (num - 1, 1), (num - 1, 0)):
        assert said(predicted, accepted, rejected) == []
    assert said(predicted, num, 0) == [
        f"reports {num} accepted prediction tokens, {num - 1} of the prediction are in the reply (1 of 1 replies)"
    ]
    num_encoded = len(predicted[0].encode(predicted_text(predicted[1])).ids)
    told = f"reports 1 + {num_encoded} prediction tokens, the prediction has {num_encoded} (1 of 1 replies)"
    assert said(predicted, 1, num_encoded) == [told]
    assert said(predicted, -1, num) == [f"reports -1 accepted and {num} rejected prediction tokens (1 of 1 replies)"]


def test_who_predicts_nothing_has_nothing_accepted(predicted: tuple[Any, PromptRequest, list[int]]) -> None:
    tokenizer, request, ids = predicted
    plain = dataclasses.replace(request, payload=None)
    assert said((tokenizer, plain, ids), 0, 0) == []
    told = "reports 2 + 0 prediction tokens, the prediction has 0 (1 of 1 replies)"
    assert said((tokenizer, plain, ids), 2, 0) == [told]
