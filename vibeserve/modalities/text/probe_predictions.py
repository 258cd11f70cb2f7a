"""Probes of predicted outputs: a prediction, good or bad, changes no token, and is accounted for.

Replies are compared with the server's own greedy ones. The same prompt goes out twice without a prediction first: a
server that keeps prefixes may round otherwise the second time, and that is what a prediction is then compared with.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from vibeserve.modalities.probe_http import expect, expect_error
from vibeserve.modalities.text.check_predictions import count_faults
from vibeserve.modalities.text.probe_session import ProbeSession
from vibeserve.workloads.predictions import edited

NUM_PROMPTS = 2
NUM_TOKENS = 24
"""of a reply: room for a few edits of a prediction"""
MAX_PROMPTS = 6
"""that are tried until so many answer alike twice"""
CHAT: Any = [{"role": "user", "content": "Name a colour."}]


def check_prediction(session: ProbeSession) -> None:
    """Every token as without a prediction."""
    num_compared = 0
    for _ in range(MAX_PROMPTS):
        prompt = session.new_prompt().prompt
        plain, ids = _complete(session, prompt), _ids(_complete(session, prompt))
        if _ids(plain) != ids:
            continue
        for name, text in _predictions(session, ids):
            served = _ids(_complete(session, prompt, text))
            num_same = next((n for n, (one, other) in enumerate(zip(served, ids, strict=False)) if one != other), 0)
            expect(
                served == ids,
                f"a prediction ({name}) changes the greedy tokens, from token {num_same + 1} of {len(ids)} on",
            )
        num_compared += 1
        if num_compared == NUM_PROMPTS:
            return
    expect(num_compared > 0, f"none of {MAX_PROMPTS} prompts gives the same greedy tokens twice")


def check_prediction_usage(session: ProbeSession) -> None:
    """Both counts are there, of whole and streamed replies and of chats, and are possible."""
    prompt = session.new_prompt().prompt
    plain = _complete(session, prompt)
    for name, text in _predictions(session, _ids(plain)):
        answer = _complete(session, prompt, text)
        _expect_counts(session, answer["usage"], text, _ids(answer), name=name)
    _expect_counts(session, plain["usage"], "", _ids(plain), name="none", is_optional=True)
    chat = session.client.chat.completions.create(
        model=session.model, messages=CHAT, max_completion_tokens=NUM_TOKENS, temperature=0.0,
        prediction={"type": "content", "content": "Red is a colour."},
    )  # fmt: skip
    usage = None if chat.usage is None else chat.usage.model_dump()
    ids = session.tokenizer.encode(chat.choices[0].message.content or "", add_special_tokens=False).ids
    _expect_counts(session, usage, "Red is a colour.", ids, name="of a chat")


def check_prediction_errors(session: ProbeSession) -> None:
    good: dict[str, Any] = {"model": session.model, "prompt": "one", "max_tokens": 1}
    bad: dict[str, Any] = {
        "a prediction that is a word": "two",
        "a prediction of an unknown type": {"type": "file", "content": "two"},
        "a prediction without content": {"type": "content"},
        "a prediction that is a number": {"type": "content", "content": 7},
    }
    for name, prediction in bad.items():
        status, document = session.raw_completion(**good, prediction=prediction)
        expect_error(name, status, document)


def _predictions(session: ProbeSession, ids: list[int]) -> Iterator[tuple[str, str]]:
    """Of any quality, by name. The edits are drawn from the probes' own seed."""
    decode = session.tokenizer.decode
    generator = random.Random(f"prediction-{session.seed}")
    fresh = session.tokenizer.encode(session.new_prompt().prompt).ids
    yield "exact", decode(ids)
    yield "edited", decode(edited(ids, generator=generator, fresh=fresh))
    yield "the second half first", decode([*ids[NUM_TOKENS // 2 :], *ids[: NUM_TOKENS // 2]])
    yield "useless", decode(fresh)


def _complete(session: ProbeSession, prompt: str, prediction: str | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "model": session.model, "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0.0, "ignore_eos": True,
        "return_token_ids": True,
    }  # fmt: skip
    if prediction is not None:
        fields["prediction"] = {"type": "content", "content": prediction}
    status, answer = session.raw_completion(**fields)
    expect(status == 200, f"a request with a prediction is answered {status}: {json.dumps(answer)[:200]}")
    return answer


def _ids(answer: dict[str, Any]) -> list[int]:
    ids: list[int] = answer["choices"][0]["token_ids"]
    return ids


def _expect_counts(
    session: ProbeSession, usage: Any, predicted: str, ids: list[int], *, name: str, is_optional: bool = False
) -> None:
    details = (usage or {}).get("completion_tokens_details") or {}
    accepted: Any = details.get("accepted_prediction_tokens")
    rejected: Any = details.get("rejected_prediction_tokens")
    if is_optional and accepted is None and rejected is None:
        return
    expect(
        type(accepted) is int and type(rejected) is int,
        f"usage has no accepted_prediction_tokens and rejected_prediction_tokens for a prediction ({name})",
    )
    fault = next(count_faults(accepted, rejected, predicted, ids, tokenizer=session.tokenizer), "")
    expect(not fault, f"for a prediction ({name}) usage {fault}")


PREDICTION_CHECKS: dict[str, Callable[[ProbeSession], None]] = {
    "prediction": check_prediction,
    "prediction_usage": check_prediction_usage,
    "prediction_errors": check_prediction_errors,
}
