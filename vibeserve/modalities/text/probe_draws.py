"""Probes of sampling: many short replies to one prompt, against the distribution that the reference has there.

One prompt, one token a reply, several at once, so that rows of one batch are drawn by each other's side. An honest
server fails all of them together once in 1 / `FALSE_ALARM` (`probe_sampling`). They need the model under the reference
(`TextReference.next_logprobs`); a target whose own reference has no distributions is left to `seeded_sampling`, `top_p`
and the judged replies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vibeserve.modalities.probe_http import expect
from vibeserve.modalities.text.probe_sampling import (
    NUM_DRAWS,
    STATISTICS,
    SamplingTest,
    is_refused,
    robust_top_p,
    wanted,
)
from vibeserve.modalities.text.probe_session import NUM_TOKENS, STABLE_GAP_NATS, ProbeSession

NUM_AT_ONCE = 8
OTHER_TEMPERATURE = 0.5
FIRST_SEED = 1_000
NUM_PENALISED_TOKENS = 16
PENALTY = 2.0
"""the largest that the API allows; of both penalties, per token that is there already"""
MEANINGS = {
    "support": "a token was drawn that must not be",
    "sharpness": "the draws are more, or less, certain than they should be",
    "frequencies": "tokens are drawn at other rates than they should be",
    "repeats": "the same tokens come again and again",
}


@dataclass(frozen=True)
class Drawn:
    token_id: int
    logprob: float | None


def check_sampling(session: ProbeSession) -> None:
    """At temperature 1, every request with a seed of its own."""
    _expect_distribution(session, [{"seed": seed} for seed in _seeds()])


def check_sampling_unseeded(session: ProbeSession) -> None:
    """At temperature 1 and without a seed: one that the server keeps to itself makes all replies alike."""
    _expect_distribution(session, [{}] * NUM_DRAWS)


def check_sampling_temperature(session: ProbeSession) -> None:
    options = [{"seed": seed, "temperature": OTHER_TEMPERATURE} for seed in _seeds()]
    _expect_distribution(session, options, temperature=OTHER_TEMPERATURE)


def check_sampling_top_p(session: ProbeSession) -> None:
    """A nucleus whose border lies in the middle of a likely token's share: rounding does not move it."""
    place = session.sampled_place
    if place is None:
        return
    top_p = robust_top_p(place.logprobs)
    _expect_distribution(session, [{"seed": seed, "top_p": top_p} for seed in _seeds()], top_p=top_p)


def check_sampling_logprobs(session: ProbeSession) -> None:
    """Log-probabilities of drawn tokens are the model's, not those of greedy text, nor after the temperature."""
    place = session.sampled_place
    allowed = session.tolerances
    if place is None or not allowed.logprob_share:
        return
    asked = {"temperature": OTHER_TEMPERATURE, "logprobs": 1}
    drawn = _drawn(session, [{**asked, "seed": seed} for seed in range(NUM_AT_ONCE)])
    served = [each.logprob for each in drawn]
    expect(all(value is not None for value in served), "drawn tokens carry no log-probabilities though asked for")
    differences = [abs(float(each.logprob or 0.0) - place.logprobs[each.token_id]) for each in drawn]
    mean = sum(differences) / len(differences)
    # all of one place: its error is one draw of what p99 bounds
    expect(
        mean <= allowed.logprob_p99_max,
        f"log-probabilities of drawn tokens are {mean:.3f} nats from the reference's in the mean, at most "
        f"{allowed.logprob_p99_max:g} is allowed",
    )


def check_num_choices(session: ProbeSession) -> None:
    """`n`: refused, or that many replies, drawn apart and all counted. Two that are alike are asked for once more: a
    model that is sure of itself may draw the same tokens twice."""
    texts: set[str] = set()
    for _ in range(2):
        status, document = session.raw_completion(
            model=session.model, prompt=session.first.prompt, max_tokens=NUM_TOKENS, temperature=1.0, n=2,
            ignore_eos=True,
        )  # fmt: skip
        if _is_refused(status, document, name="n"):
            return
        choices = document.get("choices") or []
        expect(len(choices) == 2, f"{len(choices)} choices for n = 2")
        expect(sorted(choice["index"] for choice in choices) == [0, 1], "the choices of n = 2 are not numbered 0 and 1")
        counted = document["usage"]["completion_tokens"]
        expect(counted == 2 * NUM_TOKENS, f"usage reports {counted} completion tokens for 2 x {NUM_TOKENS}")
        texts = {choice["text"] for choice in choices}
        if len(texts) == 2:
            return
    expect(len(texts) == 2, "both choices of n = 2 at temperature 1 are the same text")


def check_declared_parameters(session: ProbeSession) -> None:
    """Parameters beyond temperature and top_p: refused, or they do what they are there for. Never ignored."""
    greedy = session.greedy.token_ids
    for name, value in (("top_k", 1), ("min_p", 1.0)):
        ids = _accepted(session, temperature=1.0, seed=1, **{name: value})
        expect(ids is None or ids == greedy, f"{name} = {value} at temperature 1 does not give the greedy text")
    ids = _accepted(session, logit_bias={str(greedy[0]): -100})
    expect(ids is None or ids[0] != greedy[0], "a token with a logit_bias of -100 is sent")
    for name in ("presence_penalty", "frequency_penalty"):
        ids = _accepted(session, max_tokens=NUM_PENALISED_TOKENS, **{name: PENALTY})
        if ids is not None:
            _expect_penalised(session, ids, name=name)


def _expect_penalised(session: ProbeSession, served: Sequence[int], *, name: str) -> None:
    """Every token is the reference's best after `PENALTY`, except where two are nearly as good."""
    reference = session.reference
    if reference is None:
        return
    prompt = session.tokenizer.encode(session.first.prompt).ids
    for number, token in enumerate(served):
        counts = {earlier: served[:number].count(earlier) for earlier in served[:number]}
        values = list(reference.next_logprobs([*prompt, *served[:number]]))
        for earlier, count in counts.items():
            values[earlier] -= PENALTY * (count if name == "frequency_penalty" else 1)
        expect(
            max(values) - values[token] < STABLE_GAP_NATS,
            f"with {name} = {PENALTY:g} token {number + 1} is not the best one after the penalty",
        )


def _accepted(session: ProbeSession, **fields: Any) -> tuple[int, ...] | None:
    """Ids of a completion of the usual prompt; None where the server refuses the field by an error."""
    options = {"temperature": 0.0, "max_tokens": NUM_TOKENS, **fields}
    status, document = session.raw_completion(
        model=session.model, prompt=session.first.prompt, ignore_eos=True, return_token_ids=True, **options
    )
    if _is_refused(status, document, name=", ".join(fields)):
        return None
    return tuple(document["choices"][0]["token_ids"])


def _is_refused(status: int, document: dict[str, Any], *, name: str) -> bool:
    """Whether the field is refused in the API's way; a failure of another kind is no refusal."""
    if status == 200:
        return False
    error = document.get("error")
    expect(400 <= status < 500 and isinstance(error, dict) and bool(error.get("message")), f"{name} answers {status}")
    return True


def _expect_distribution(
    session: ProbeSession, options: Sequence[dict[str, Any]], *, temperature: float = 1.0, top_p: float = 1.0
) -> None:
    """The draws, one for each of `options`, are of the reference's distribution at this temperature and top_p."""
    place = session.sampled_place
    if place is None:
        return
    drawn = [each.token_id for each in _drawn(session, options)]
    asked = wanted(place.logprobs, temperature=temperature, top_p=top_p)
    found = SamplingTest(asked, num_draws=len(drawn), seed=session.seed).p_values(drawn)
    worst = min(found, key=lambda name: found[name])
    num_different = len(set(drawn))
    if found["support"]:
        worst = min(STATISTICS, key=lambda name: found[name])
    expect(
        not is_refused(found[worst]),
        f"{MEANINGS[worst]}: p = {found[worst]:.1g} by {worst} of {len(drawn)} draws, {num_different} different ones "
        f"(temperature {temperature:g}, top_p {top_p:g})",
    )


def _seeds() -> range:
    return range(FIRST_SEED, FIRST_SEED + NUM_DRAWS)


def _drawn(session: ProbeSession, options: Sequence[dict[str, Any]]) -> list[Drawn]:
    """One token for each of `options`, `NUM_AT_ONCE` requests at a time."""
    # what is looked up on first use must be there before threads look it up
    place, _ = session.sampled_place, session.model
    assert place is not None
    with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        futures = [pool.submit(_draw, session, list(place.prompt), each) for each in options]
        try:
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _draw(session: ProbeSession, prompt: list[int], options: dict[str, Any]) -> Drawn:
    expect(not session.is_over, "the probes' time was over")
    fields = {"temperature": 1.0, **options}
    answer: Any = session.client.completions.create(
        model=session.model, prompt=prompt, max_tokens=1,
        extra_body={"return_token_ids": True, "ignore_eos": True}, **fields,
    )  # fmt: skip
    choice = answer.choices[0]
    ids: list[int] = (choice.model_extra or {}).get("token_ids") or []
    expect(len(ids) == 1, f"{len(ids)} ids for max_tokens 1")
    values = choice.logprobs.token_logprobs if choice.logprobs is not None else None
    logprob: Any = values[0] if values else None
    return Drawn(int(ids[0]), None if logprob is None else float(logprob))


SAMPLING_CHECKS: dict[str, Callable[[ProbeSession], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}
