"""Probe of prompts that begin alike: whoever computes a prefix once has to answer as if it had computed all of it.

Prompts behind one prefix come one after the other, so that a server that keeps prefixes takes it up again; then
prompts behind a prefix that is another one, and behind one of the same length that differs in a single token; then
several at once. The prefix ends off every grid, and one prompt leaves it early. Every reply is re-scored token by token
under the reference that reads the whole prompt. It is also re-scored behind the prefix that a wrong server would have
taken: where that is no worse, the prompt says nothing, and where no prompt of a kind says anything, the kind is listed
as not run.

A state that is only a little wrong (a snapshot that went on changing, another sequence's) may leave the tokens of a
forgetful model as they are. So the log-probabilities of replies behind a prefix that was taken up are held against
those of replies that had nothing to take up: numerics are the same for both, and what the first are further from the
reference is the cache's doing.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vibeserve.modalities.probe_http import ProbeNotRun, expect
from vibeserve.modalities.text.probe_known import (
    LONG_TIMEOUT_S,
    THOROUGH_TOKENS,
    accepted_tokens,
    is_off,
    known_reference,
)
from vibeserve.modalities.text.probe_session import ProbeSession
from vibeserve.spec import Workload
from vibeserve.workloads import Pool, request_stream

NUM_UNIQUE = 10
"""prompts behind each of two prefixes"""
UNIQUE_TOKENS = 16
"""behind a prefix: the less there is, the more of a reply is the prefix's doing"""
REPLY_TOKENS = 16
UNDECLARED_TOKENS = 64
SCREEN_TOKENS = 512
"""of a prefix before a candidate is measured; at certification as many as the workload declares, up to 4,096"""
MAX_OFF_GRID = 61
NEAR_PLACES = (1, 2, 9)
"""where the single other token of a near-miss prefix stands, from its end: what lies further back changes little"""
MAX_DRAWS = 40
RESUMED, OTHER, NEAR, SHORTER, TOGETHER = "resumed", "another prefix", "near-miss prefix", "left early", "at once"
MUST_TELL = (RESUMED, OTHER, NEAR)
MAX_RATIO = 4.0
"""of two mean differences of log-probabilities, over 32 values and more. Int8 weights give 0.0210 and 0.0211 nats, f32
nothing."""
MIN_SHARE = 0.25
"""of the declared tolerance; what is less is nobody's concern, whatever its ratio"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One prompt, and the prompt that a server would have read which took the wrong prefix for the right one."""

    kind: str
    ids: list[int]
    instead: list[int]
    is_fresh: bool = False
    """no prompt before it began as it does"""


@dataclass(frozen=True)
class Served:
    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Ids of two prefixes of one length, and of what may follow either."""

    first: list[int]
    second: list[int]
    unique: list[list[int]]


def check_shared_prefixes(session: ProbeSession) -> None:
    """Two wrong replies refuse."""
    reference = known_reference(session)
    parts = _parts(session)
    in_turn, at_once = _cases_in_turn(session, parts), _cases_at_once(session, parts)
    served = [_reply(session, case) for case in in_turn]
    with ThreadPoolExecutor(len(at_once)) as pool:
        served += pool.map(lambda case: _reply(session, case), at_once)
    cases = [*in_turn, *at_once]
    right = reference.score_ids([(case.ids, each.token_ids) for case, each in zip(cases, served, strict=True)])
    problem = next((each["problem"] for each in right if each["problem"]), "")
    expect(not problem, problem)
    wrong = [case.kind for case, each in zip(cases, right, strict=True) if is_off(session, each["margins"])]
    expect(
        len(wrong) < 2,
        f"{len(wrong)} of {len(cases)} replies to prompts that begin alike are not the model's "
        f"({', '.join(sorted(set(wrong)))})",
    )
    _expect_one_numerics(session, cases, served, scores=right)
    swapped = reference.score_ids([(case.instead, each.token_ids) for case, each in zip(cases, served, strict=True)])
    telling = {case.kind for case, each in zip(cases, swapped, strict=True) if is_off(session, each["margins"])}
    silent = [kind for kind in MUST_TELL if kind not in telling]
    if silent:
        raise ProbeNotRun(f"prompts that begin alike: {', '.join(silent)} (no prefix that was tried changes the text)")


def _expect_one_numerics(
    session: ProbeSession, cases: Sequence[Case], served: Sequence[Served], *, scores: Sequence[dict[str, Any]]
) -> None:
    """`MAX_RATIO`, `MIN_SHARE`."""
    differences: dict[bool, list[float]] = {True: [], False: []}
    for case, reply, score in zip(cases, served, scores, strict=True):
        pairs = zip(reply.logprobs, score["logprobs"], strict=True)
        differences[case.is_fresh] += [abs(ours - theirs) for ours, theirs in pairs]
    fresh, resumed = statistics.fmean(differences[True]), statistics.fmean(differences[False])
    most = max(MAX_RATIO * fresh, MIN_SHARE * session.tolerances.logprob_mean_max)
    expect(
        resumed <= most,
        f"log-probabilities behind a prefix that was asked before are {resumed:.4f} nats from the reference in the "
        f"mean, at most {most:.4f} is allowed: behind one that was not they are {fresh:.4f}",
    )


def prefix_tokens(session: ProbeSession) -> int:
    """As long as the workload's, within what the server accepts and the time allows, and off every grid."""
    declared = session.workload.shared_prefix_tokens or UNDECLARED_TOKENS
    most = THOROUGH_TOKENS if session.is_thorough else SCREEN_TOKENS
    room = accepted_tokens(session) - UNIQUE_TOKENS - REPLY_TOKENS
    size = min(declared, most, room)
    off_grid = 1 + random.Random(f"prefix-{session.seed}").randrange(min(MAX_OFF_GRID, max(1, size // 4)))
    return max(UNIQUE_TOKENS, size - off_grid)


def _parts(session: ProbeSession) -> Parts:
    num_tokens = prefix_tokens(session)
    workload = Workload(
        kind="shared_prefix", shared_prefix_tokens=num_tokens, num_prefixes=2, prompt_tokens_min=UNIQUE_TOKENS,
        prompt_tokens_max=UNIQUE_TOKENS, reuse="prefix",
    )  # fmt: skip
    found: dict[tuple[int, ...], list[list[int]]] = {}
    stream = request_stream(workload, tokenizer=session.tokenizer, pool=Pool.selection, seed=session.seed)
    for request in stream:
        ids = session.tokenizer.encode(request.prompt).ids
        found.setdefault(tuple(ids[:num_tokens]), []).append(ids[num_tokens:])
        if len(found) == 2 and sum(map(len, found.values())) >= NUM_UNIQUE:
            break
    first, second = found
    return Parts(first=list(first), second=list(second), unique=[*found[first], *found[second]])


def _cases_in_turn(session: ProbeSession, parts: Parts) -> list[Case]:
    first, second, unique = parts.first, parts.second, parts.unique
    near = list(_near_misses(session, first, unique[2]))
    cases = [
        *(Case(kind=RESUMED, ids=first + own, instead=second + own, is_fresh=own is unique[0]) for own in unique[:3]),
        Case(kind=OTHER, ids=second + unique[2], instead=first + unique[2], is_fresh=True),
        *(Case(kind=NEAR, ids=prefix + unique[2], instead=first + unique[2]) for prefix in near),
        *(Case(kind=SHORTER, ids=ids, instead=first + ids[-UNIQUE_TOKENS:])
          for ids in _left_early(session, first, unique[3:5])),
        Case(kind=RESUMED, ids=first + unique[5], instead=second + unique[5]),
    ]  # fmt: skip
    return [case for case in cases if _text(session, case.ids) is not None]


def _cases_at_once(session: ProbeSession, parts: Parts) -> list[Case]:
    first, second, unique = parts.first, parts.second, parts.unique
    return [
        *(Case(kind=TOGETHER, ids=first + own, instead=second + own) for own in unique[6:8]),
        *(Case(kind=TOGETHER, ids=second + own, instead=first + own) for own in unique[8:10]),
    ]


def _near_misses(session: ProbeSession, prefix: list[int], unique: Sequence[int]) -> Iterator[list[int]]:
    """Prefixes of the same length with one other token, whose text is read as exactly these ids."""
    generator = random.Random(f"near-{session.seed}")
    for place in NEAR_PLACES:
        for _ in range(MAX_DRAWS):
            near = list(prefix)
            near[-place] = generator.choice(prefix)
            if near[-place] != prefix[-place] and _text(session, [*near, *unique]) is not None:
                yield near
                break


def _left_early(session: ProbeSession, prefix: list[int], unique: Sequence[list[int]]) -> Iterator[list[int]]:
    """Prompts that go on in the last fifth of the prefix, where their text is read as these ids."""
    for own in unique:
        places = range(len(prefix) - 3, len(prefix) * 4 // 5, -1)
        cut = (prefix[:place] + own for place in places)
        yield from [ids for ids in cut if _text(session, ids) is not None][:1]


def _reply(session: ProbeSession, case: Case) -> Served:
    """Greedy. The prompt is sent as text, as the timed ones are."""
    answer: Any = session.client.with_options(timeout=LONG_TIMEOUT_S).completions.create(
        model=session.model, prompt=_text(session, case.ids) or case.ids, max_tokens=REPLY_TOKENS, temperature=0.0,
        logprobs=1, extra_body={"return_token_ids": True, "ignore_eos": True},
    )  # fmt: skip
    ids = list((answer.choices[0].model_extra or {}).get("token_ids") or [])
    expect(len(ids) == REPLY_TOKENS, f"{len(ids)} ids for max_tokens {REPLY_TOKENS}")
    expect(
        answer.usage.prompt_tokens == len(case.ids),
        f"usage reports {answer.usage.prompt_tokens} prompt tokens for {len(case.ids)} behind a shared prefix",
    )
    logprobs = answer.choices[0].logprobs
    values = list((logprobs.token_logprobs if logprobs is not None else None) or [])
    expect(len(values) == len(ids) and None not in values, f"{len(values)} log-probabilities for {len(ids)} ids")
    return Served(ids, values)


def _text(session: ProbeSession, ids: Sequence[int]) -> str | None:
    """Text that the tokenizer reads as exactly these ids, special tokens that it adds by itself left out; None where
    there is none."""
    texts = (session.tokenizer.decode(list(ids), skip_special_tokens=is_plain) for is_plain in (True, False))
    return next((text for text in texts if session.tokenizer.encode(text).ids == list(ids)), None)


PREFIX_CHECKS: dict[str, Callable[[ProbeSession], None]] = {"shared_prefixes": check_shared_prefixes}
