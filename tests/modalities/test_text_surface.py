from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served_replies import make_reply

from vibeserve.core.nouns import Chunk, PromptRequest, Reply, Usage
from vibeserve.modalities.text.surface import surface_findings
from vibeserve.spec import Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool, request_stream

NUM_REPLIES = 16
OUTPUT = 24


@pytest.fixture(scope="module")
def tokenizer(tiny_model_dir: Path) -> Any:
    return load_tokenizer(tiny_model_dir)


@pytest.fixture(scope="module")
def requests(tokenizer: Any) -> list[PromptRequest]:
    workload = Workload(
        kind="chat", prompt_tokens_min=40, prompt_tokens_max=60, output_tokens_min=OUTPUT, output_tokens_max=OUTPUT
    )
    return list(
        itertools.islice(request_stream(workload, tokenizer=tokenizer, pool=Pool.selection, seed=3), NUM_REPLIES)
    )


def ids_for(number: int) -> list[int]:
    """Varied readable tokens, another text for every reply."""
    return [300 + (37 * number + 11 * place * (1 + number % 5)) % 700 for place in range(OUTPUT)]


@pytest.fixture
def honest(requests: list[PromptRequest], tokenizer: Any) -> list[Reply]:
    return [make_reply(request, ids_for(number), tokenizer=tokenizer) for number, request in enumerate(requests)]


def found(replies: list[Reply], tokenizer: Any, **options: Any) -> set[str]:
    return {each.reason_class for each in surface_findings(replies, tokenizer=tokenizer, **options)}


def test_honest_replies_pass(honest: list[Reply], tokenizer: Any) -> None:
    assert surface_findings(honest, tokenizer=tokenizer) == []


def cut(reply: Reply, tokenizer: Any) -> Reply:
    ids = reply.token_ids[:-4]
    return make_reply(reply.request, ids, tokenizer=tokenizer)


def pad(reply: Reply, tokenizer: Any) -> Reply:
    return make_reply(reply.request, (*reply.token_ids, 301, 302), tokenizer=tokenizer)


def without_ids(reply: Reply, tokenizer: Any) -> Reply:
    return dataclasses.replace(reply, chunks=tuple(chunk._replace(token_ids=()) for chunk in reply.chunks))


def with_usage(reply: Reply, usage: Usage | None) -> Reply:
    return dataclasses.replace(reply, usage=usage)


def other_text(reply: Reply, tokenizer: Any) -> Reply:
    return dataclasses.replace(reply, chunks=(*reply.chunks[:-1], reply.chunks[-1]._replace(text="!")))


def early_chunk(reply: Reply, tokenizer: Any) -> Reply:
    return dataclasses.replace(reply, chunks=(Chunk(at_s=0.1, text="Sure"), *reply.chunks))


def burst(reply: Reply, tokenizer: Any) -> Reply:
    first, *rest = reply.chunks
    late = [chunk._replace(at_s=reply.end_s) for chunk in rest]
    return dataclasses.replace(reply, chunks=(first._replace(at_s=0.1), *late))


def constant_first(reply: Reply, tokenizer: Any) -> Reply:
    return make_reply(reply.request, (333, *reply.token_ids[1:]), tokenizer=tokenizer)


def echo(reply: Reply, tokenizer: Any) -> Reply:
    return make_reply(reply.request, tokenizer.encode(reply.request.prompt).ids[:OUTPUT], tokenizer=tokenizer)


def echo_middle(reply: Reply, tokenizer: Any) -> Reply:
    return make_reply(reply.request, tokenizer.encode(reply.request.prompt).ids[14 : 14 + OUTPUT], tokenizer=tokenizer)


def stale(reply: Reply, tokenizer: Any) -> Reply:
    return make_reply(reply.request, ids_for(3), tokenizer=tokenizer)


CHEATS: dict[str, tuple[str, str, Callable[[Reply, Any], Reply]]] = {
    "truncation": ("lengths", "truncated", cut),
    "padding": ("lengths", "padded", pad),
    "no ids": ("stream", "missing_ids", without_ids),
    "no usage": ("usage", "usage_mismatch", lambda reply, _: with_usage(reply, None)),
    "usage too high": (
        "usage",
        "usage_mismatch",
        lambda reply, _: with_usage(
            reply, Usage(prompt_tokens=reply.request.num_prompt_tokens, completion_tokens=2 * OUTPUT)
        ),
    ),
    "clipped prompt": (
        "usage",
        "usage_mismatch",
        lambda reply, _: with_usage(reply, Usage(prompt_tokens=8, completion_tokens=OUTPUT)),
    ),
    "other text": ("stream", "text_ids_mismatch", other_text),
    "early chunk": ("stream", "fake_first_token", early_chunk),
    "burst at the end": ("stream", "fake_first_token", burst),
    "echo": ("accuracy", "echo", echo),
    "no finish reason": (
        "lengths",
        "wrong_finish_reason",
        lambda reply, _: dataclasses.replace(reply, finish_reason=None),
    ),
}


@pytest.mark.parametrize(("gate", "reason_class", "cheat"), CHEATS.values(), ids=CHEATS.keys())
def test_cheat_is_refused_for_its_reason(
    gate: str, reason_class: str, cheat: Callable[[Reply, Any], Reply], honest: list[Reply], tokenizer: Any
) -> None:
    findings = surface_findings([cheat(reply, tokenizer) for reply in honest], tokenizer=tokenizer)
    assert (gate, reason_class) in {(found.gate, found.reason_class) for found in findings}


@pytest.mark.parametrize("name", ["truncation", "padding", "no ids", "usage too high", "other text", "early chunk"])
def test_one_bad_reply_among_many_is_enough(name: str, honest: list[Reply], tokenizer: Any) -> None:
    _, reason_class, cheat = CHEATS[name]
    assert reason_class in found([cheat(honest[0], tokenizer), *honest[1:]], tokenizer)


@pytest.mark.parametrize("copied", [stale, echo_middle, constant_first])
def test_what_may_be_honest_is_left_to_the_re_scoring(copied: Any, honest: list[Reply], tokenizer: Any) -> None:
    """Two random layers behind a shared prefix gave 147 equal replies of 421; an edit of code is a piece of its prompt;
    JSON begins with a brace."""
    assert found([copied(reply, tokenizer) for reply in honest], tokenizer) == set()


def test_text_says_what_was_found_and_leaks_no_prompt(honest: list[Reply], tokenizer: Any) -> None:
    findings = surface_findings([cut(honest[0], tokenizer), *honest[1:]], tokenizer=tokenizer)
    truncated = next(each for each in findings if each.reason_class == "truncated")
    assert truncated.text == f"selection-3-0 has {OUTPUT - 4} of {OUTPUT} tokens (1 of {NUM_REPLIES} replies)"
    assert not any(honest[0].request.prompt[:12] in each.text for each in findings)


def test_cut_replies_are_not_held_to_lengths(honest: list[Reply], tokenizer: Any) -> None:
    unfinished = dataclasses.replace(cut(honest[0], tokenizer), error="cut", finish_reason=None, usage=None)
    assert surface_findings([unfinished, *honest[1:]], tokenizer=tokenizer) == []


def test_bytes_of_an_unfinished_character_may_be_held_back(requests: list[PromptRequest], tokenizer: Any) -> None:
    # the first byte of a three-byte character ends the reply
    lead = tokenizer.encode("\u20ac").ids[0]
    ids = [*ids_for(1)[:-1], lead]
    text = tokenizer.decode(ids).rstrip("\ufffd")
    reply = make_reply(requests[0], ids, tokenizer=tokenizer)
    held = dataclasses.replace(reply, chunks=(Chunk(at_s=1.0, text=text, token_ids=tuple(ids)),))
    assert surface_findings([held], tokenizer=tokenizer) == []


class TestEndToken:
    """Requests that do not ignore EOS."""

    @pytest.fixture
    def free(self, requests: list[PromptRequest]) -> PromptRequest:
        return dataclasses.replace(requests[0], ignore_eos=False)

    def test_ends_early_with_its_end_token(self, free: PromptRequest, tokenizer: Any) -> None:
        reply = make_reply(free, [*ids_for(1)[:8], 2], tokenizer=tokenizer, finish_reason="stop")
        assert found([reply], tokenizer, eos_ids={2}) == set()

    def test_ends_early_and_says_length(self, free: PromptRequest, tokenizer: Any) -> None:
        reply = make_reply(free, ids_for(1)[:8], tokenizer=tokenizer, finish_reason="length")
        assert found([reply], tokenizer, eos_ids={2}) == {"truncated", "wrong_finish_reason"}

    def test_goes_on_after_the_end_token(self, free: PromptRequest, tokenizer: Any) -> None:
        reply = make_reply(free, [*ids_for(1)[:8], 2, *ids_for(1)[9:]], tokenizer=tokenizer)
        assert found([reply], tokenizer, eos_ids={2}) == {"padded"}


def in_flight(reply: Reply, *, num_chunks: int, age_s: float) -> Reply:
    """As the session's end finds a reply that has not ended."""
    end_s = reply.scheduled_s + age_s
    return dataclasses.replace(
        reply, chunks=reply.chunks[:num_chunks], error="cut", finish_reason=None, usage=None, end_s=end_s
    )


def test_replies_in_flight_are_judged_as_far_as_they_came(honest: list[Reply], tokenizer: Any) -> None:
    partial = in_flight(honest[0], num_chunks=5, age_s=0.1)
    assert found([partial, *honest[1:]], tokenizer) == set()
    mute = without_ids(partial, tokenizer)
    assert found([mute, *honest[1:]], tokenizer) == {"missing_ids"}
    other = dataclasses.replace(partial, chunks=(partial.chunks[0]._replace(text="!"), *partial.chunks[1:]))
    assert found([other, *honest[1:]], tokenizer) == {"text_ids_mismatch"}


def test_a_reply_that_never_ends_is_padded(honest: list[Reply], tokenizer: Any) -> None:
    longer = make_reply(honest[0].request, (*honest[0].token_ids, 301, 302), tokenizer=tokenizer)
    endless = in_flight(longer, num_chunks=len(longer.chunks), age_s=0.1)
    assert found([endless, *honest[1:]], tokenizer) == {"padded"}
