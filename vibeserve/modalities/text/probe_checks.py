"""The probes themselves, one function per name of `PROBES.checks`. Each raises when it does not hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai

from vibeserve.modalities.probe_http import ProbeNotRun, expect, expect_error
from vibeserve.modalities.text.probe_draws import SAMPLING_CHECKS
from vibeserve.modalities.text.probe_known import KNOWN_CHECKS
from vibeserve.modalities.text.probe_predictions import PREDICTION_CHECKS
from vibeserve.modalities.text.probe_prefixes import PREFIX_CHECKS
from vibeserve.modalities.text.probe_session import NUM_TOKENS, PROMPT_TOKENS, REPLACEMENT, ProbeSession

NUM_SEEDS = 4
NEVER_SERVED = "\u2603 never \u2603"
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["small", "medium", "large"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
SCHEMA_TOKENS = 64
MESSAGES: Any = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Name a colour."}]


def check_health(session: ProbeSession) -> None:
    session.http.expect_ok("/health")


def check_live(session: ProbeSession) -> None:
    session.http.expect_ok("/live")


def check_metrics(session: ProbeSession) -> None:
    session.http.expect_metrics()


def check_models(session: ProbeSession) -> None:
    listed = session.client.models.list().data
    expect(bool(listed) and all(isinstance(model.id, str) and model.id for model in listed), "no model is listed")


def check_completion(session: ProbeSession) -> None:
    served = session.greedy
    expect(len(served.token_ids) == NUM_TOKENS, f"{len(served.token_ids)} ids for max_tokens {NUM_TOKENS}")
    expect(
        served.completion_tokens == NUM_TOKENS,
        f"usage reports {served.completion_tokens} completion tokens for {NUM_TOKENS} ids",
    )
    expect(
        served.prompt_tokens == PROMPT_TOKENS, f"usage reports {served.prompt_tokens} prompt tokens for {PROMPT_TOKENS}"
    )
    expect(served.finish_reason == "length", f"finish_reason is {served.finish_reason!r} at the length limit")
    expect(served.text == session.tokenizer.decode(list(served.token_ids)), "the text is not the decoding of the ids")


def check_stream_equals_whole(session: ProbeSession) -> None:
    streamed = session.complete_streamed(session.first.prompt)
    expect(
        streamed == session.greedy,
        "the streamed completion differs from the whole one in ids, text, usage or finish_reason",
    )


def check_max_tokens(session: ProbeSession) -> None:
    for num in (1, 5):
        served = session.complete(session.first.prompt, max_tokens=num)
        expect(len(served.token_ids) == num, f"{len(served.token_ids)} ids for max_tokens {num}")
        expect(served.token_ids == session.greedy.token_ids[:num], f"max_tokens {num} changes the greedy tokens")


def check_token_id_prompt(session: ProbeSession) -> None:
    ids = session.tokenizer.encode(session.first.prompt).ids
    expect(
        session.complete(ids).token_ids == session.greedy.token_ids,
        "token ids as prompt give another completion than their text",
    )


def check_stop_string(session: ProbeSession) -> None:
    """A stop string that spans two tokens, among others that never come, whole and streamed."""
    stop, ids = _spanning_stop(session)
    text = session.greedy.text
    expected = text[: text.index(stop)]
    for served in (
        session.complete(session.first.prompt, stop=[stop]),
        session.complete_streamed(session.first.prompt, stop=[stop]),
        session.complete_streamed(session.first.prompt, stop=[NEVER_SERVED, stop]),
    ):
        expect(served.text == expected, "the text does not end right before the stop string")
        expect(served.finish_reason == "stop", f"finish_reason is {served.finish_reason!r} at a stop string")
        expect(served.token_ids == ids, f"{len(served.token_ids)} ids up to a stop string that ends with id {len(ids)}")
        expect(
            served.completion_tokens == len(ids),
            f"usage reports {served.completion_tokens} completion tokens for {len(ids)} ids",
        )


def _spanning_stop(session: ProbeSession) -> tuple[str, tuple[int, ...]]:
    """The end of one token and the beginning of the next, and the greedy ids up to the token that completes it.

    From the middle of the text on; where no such place is found (tokens that are no text by themselves), anywhere.
    """
    ids, text = session.greedy.token_ids, session.greedy.text
    texts = [session.tokenizer.decode(list(ids[:num])) for num in range(len(ids) + 1)]
    order = sorted(range(1, len(ids)), key=lambda num: abs(num - len(ids) // 2))
    for num in order:
        border = len(texts[num])
        stop = text[border - 1 : border + 1]
        if text.startswith(texts[num]) and REPLACEMENT not in stop and len(stop) == 2 and text.find(stop) == border - 1:
            return stop, ids[: next(n for n in range(num, len(ids) + 1) if stop in texts[n])]
    expect(False, "the greedy text has no two tokens to take a stop string from")
    raise AssertionError


def check_chat(session: ProbeSession) -> None:
    answer = _chat(session)
    message = answer.choices[0].message
    expect(message.role == "assistant", f"the message's role is {message.role!r}")
    expect(isinstance(message.content, str) and bool(message.content), "the message has no content")
    expect(
        answer.usage is not None and 0 < answer.usage.completion_tokens <= NUM_TOKENS,
        "usage is missing or beyond max_tokens",
    )
    expect(
        answer.usage.prompt_tokens > len(session.tokenizer.encode("Answer briefly.Name a colour.").ids),
        "usage counts no chat template",
    )


def check_chat_stream_equals_whole(session: ProbeSession) -> None:
    whole = _chat(session).choices[0].message.content
    stream = session.client.chat.completions.create(
        model=session.model, messages=MESSAGES, max_tokens=NUM_TOKENS, temperature=0.0, stream=True
    )
    streamed = "".join(choice.delta.content or "" for event in stream for choice in event.choices)
    expect(streamed == whole, "the streamed message differs from the whole one")


def _chat(session: ProbeSession, **options: Any) -> Any:
    if not session.has_chat_template:
        raise ProbeNotRun("chat: the model has no chat template")
    request: dict[str, Any] = {"max_tokens": NUM_TOKENS, "temperature": 0.0, **options}
    return session.client.chat.completions.create(model=session.model, messages=MESSAGES, **request)


def check_seeded_sampling(session: ProbeSession) -> None:
    first = _sampled(session, seed=0)
    expect(
        any(_sampled(session, seed=seed) != first for seed in range(1, NUM_SEEDS)),
        f"{NUM_SEEDS} seeds at temperature 1 give one and the same text",
    )
    expect(_sampled(session, seed=0) == first, "the same seed gives another text")


def _sampled(session: ProbeSession, *, seed: int) -> tuple[int, ...]:
    return session.complete(session.first.prompt, temperature=1.0, seed=seed).token_ids


def check_top_p(session: ProbeSession) -> None:
    served = session.complete(session.first.prompt, temperature=1.0, top_p=1e-6, seed=1)
    expect(served.token_ids == session.greedy.token_ids, "top_p near 0 does not give the greedy text")


def check_logprobs(session: ProbeSession) -> None:
    answer = session.client.completions.create(
        model=session.model,
        prompt=session.first.prompt,
        max_tokens=NUM_TOKENS,
        temperature=0.0,
        logprobs=5,
        extra_body={"ignore_eos": True},
    )
    logprobs = answer.choices[0].logprobs
    expect(logprobs is not None, "no logprobs though they were asked for")
    values, tops = logprobs.token_logprobs, logprobs.top_logprobs  # type: ignore[union-attr]
    expect(values is not None and len(values) == NUM_TOKENS, f"not one log-probability for each of {NUM_TOKENS} tokens")
    expect(all(value <= 1e-6 for value in values or ()), "a log-probability is above 0")
    expect(
        tops is not None and len(tops) == NUM_TOKENS and all(1 <= len(top) <= 6 for top in tops),
        "top_logprobs does not hold the top 5 of each token",
    )
    best = [max(top.values()) for top in tops or ()]
    expect(
        all(abs(value - top) < 1e-3 for value, top in zip(values or (), best, strict=True)),
        "a greedy token is not the most probable one",
    )


def check_long_prompt(session: ProbeSession) -> None:
    for request in session.long_prompts:
        served = session.complete(request.prompt, max_tokens=1)
        expect(
            served.prompt_tokens == request.num_prompt_tokens,
            f"usage reports {served.prompt_tokens} prompt tokens for {request.num_prompt_tokens}",
        )


def check_prompt_start_matters(session: ProbeSession) -> None:
    """Prompts that differ in their first token only: a server that clips long prompts gives both the same numbers."""
    ids = session.tokenizer.encode(session.long_prompts[0].prompt).ids
    other = session.tokenizer.encode(session.long_prompts[1].prompt).ids[-1]
    changed = [other if other != ids[0] else ids[1], *ids[1:]]
    expect(
        _first_logprob(session, ids) != _first_logprob(session, changed),
        "the first token of a long prompt has no influence",
    )


def _first_logprob(session: ProbeSession, prompt: list[int]) -> Any:
    answer = session.client.completions.create(
        model=session.model, prompt=prompt, max_tokens=2, temperature=0.0, logprobs=1
    )
    logprobs = answer.choices[0].logprobs
    expect(logprobs is not None and bool(logprobs.token_logprobs), "no logprobs though they were asked for")
    return logprobs.token_logprobs  # type: ignore[union-attr]


def check_a_b_a(session: ProbeSession) -> None:
    other = session.complete(session.new_prompt().prompt)
    again = session.complete(session.first.prompt)
    expect(again == session.greedy, "the same greedy request gives another answer after one in between")
    expect(other.token_ids != again.token_ids, "another prompt gives the same answer")


def check_disconnect(session: ProbeSession) -> None:
    """Clients that go away must free what they held: more of them than any small server has slots."""
    for _ in range(8):
        stream = session.client.completions.create(
            model=session.model, prompt=session.new_prompt().prompt, max_tokens=64, stream=True
        )
        expect(next(iter(stream), None) is not None, "a stream ends without an event")
        stream.close()
    served = session.complete(session.first.prompt, max_tokens=2)
    expect(served.token_ids == session.greedy.token_ids[:2], "a request after clients went away is answered wrongly")


def check_bad_request(session: ProbeSession) -> None:
    good: dict[str, Any] = {"model": session.model, "prompt": "one", "max_tokens": 1}
    bad: dict[str, dict[str, Any]] = {
        "a negative max_tokens": {"max_tokens": -1},
        "a max_tokens beyond any context": {"max_tokens": 100_000_000},
        "a temperature that is a word": {"temperature": "hot"},
        "an id outside the vocabulary": {"prompt": [1 << 30]},
        "a stop that is no string": {"stop": [7]},
    }
    for name, change in bad.items():
        status, document = session.raw_completion(**(good | change))
        expect_error(name, status, document)
    session.http.expect_no_json_refused("/v1/completions")


def check_unknown_model(session: ProbeSession) -> None:
    try:
        session.client.completions.create(model="no-such-model", prompt="one", max_tokens=1)
    except openai.NotFoundError as error:
        expect(
            isinstance(error.body, dict) and "message" in error.body,
            "the error for an unknown model has no error object",
        )
        return
    expect(False, "an unknown model is served")


def check_request_id(session: ProbeSession) -> None:
    body = json.dumps({"model": session.model, "prompt": "one", "max_tokens": 1}).encode()
    session.http.expect_request_id("/v1/completions", body)


def check_json_schema(session: ProbeSession) -> None:
    import jsonschema

    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    answer = _chat(session, max_tokens=SCHEMA_TOKENS, response_format=form)
    content = answer.choices[0].message.content or ""
    try:
        jsonschema.validate(json.loads(content), SCHEMA)
    except ValueError:
        expect(False, f"the constrained answer of {len(content)} characters is no JSON")
    except jsonschema.ValidationError as error:
        expect(False, f"the constrained answer breaks its schema: {error.validator}")


CHECK_FUNCTIONS: dict[str, Callable[[ProbeSession], None]] = (
    {name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")}
    | SAMPLING_CHECKS
    | KNOWN_CHECKS
    | PREDICTION_CHECKS
    | PREFIX_CHECKS
)
