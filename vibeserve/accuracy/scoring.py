"""Score records with a bundle's reference and check. Every call into the bundle is blamed on the file it goes to.

Runs in the judge's child: a target's own files are never called in the controller's process to judge a server.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from vibeserve.accuracy.documents import Scores
from vibeserve.contract import CUT, Distance, Finding, Judgement, Record, Reference, ReplyDistances, Request
from vibeserve.errors import ContractError
from vibeserve.modalities import Bundle


def score_records(
    bundle: Bundle, records: Sequence[Record], *, load: Callable[[], Reference], max_replies: int, seed: int
) -> Scores:
    """Distances of a sample of the records, and the check's word on all of them.

    Cut records take part where `send` returned an output for them; failed ones do not. A finished record without an
    output, or with one that the bundle's files cannot read though they read a right one, has no distance: it refuses.
    """
    offered = [record for record in records if is_offered(record)]
    chosen = sample(bundle, offered, max_replies=max_replies, seed=seed)
    scorable = [record for record in chosen if record.served is not None]
    if not scorable:
        return _scores(bundle, [without_output(record) for record in chosen], offered, inspected=())
    right = RightReply(bundle, load(), scorable[0].request)
    distances = {
        id(record): found for record, found in zip(scorable, _compared_all(bundle, scorable, right), strict=True)
    }
    replies = [distances.get(id(record)) or without_output(record) for record in chosen]
    return _scores(bundle, replies, offered, inspected=_inspected_or_unreadable(bundle, offered, right))


def _scores(
    bundle: Bundle, replies: Sequence[ReplyDistances], offered: Sequence[Record], *, inspected: tuple[Finding, ...]
) -> Scores:
    return Scores(
        replies=tuple(replies), num_offered=len(offered), limits=bundle.limits, inspected=inspected,
        judgement=judged(bundle, replies),
    )  # fmt: skip


class RightReply:
    """The reference's own output for one request. A file that fails on it is at fault; one that fails only on what a
    server sent was given what nobody can read, which refuses the server and must not end the run."""

    def __init__(self, bundle: Bundle, reference: Reference, request: Request) -> None:
        self.reference = reference
        self._bundle = bundle
        self._request = request

    @cached_property
    def pair(self) -> tuple[Any, Record]:
        """(what the reference says to it, its record)"""
        with self._bundle.blamed("reference"):
            output = json.loads(json.dumps(self.reference.run(self._request)))
        (expected,) = expected_of(self._bundle, self.reference, [(self._request, output)])
        return expected, self._bundle.record(self._request, output)

    def is_read_by(self, call: Callable[[Any, Record], object]) -> bool:
        try:
            call(*self.pair)
        except ContractError:
            return False
        return True


def _compared_all(bundle: Bundle, records: Sequence[Record], right: RightReply) -> list[ReplyDistances]:
    pairs = [(record.request, record.served) for record in records]
    try:
        expected = expected_of(bundle, right.reference, pairs)
    except ContractError:
        if not right.is_read_by(lambda *_: None):
            raise
        return [_scored_alone(bundle, record, right) for record in records]
    return [_compared_or_unreadable(bundle, *each, right) for each in zip(expected, records, strict=True)]


def _scored_alone(bundle: Bundle, record: Record, right: RightReply) -> ReplyDistances:
    try:
        (expected,) = expected_of(bundle, right.reference, [(record.request, record.served)])
    except ContractError as error:
        return without_output(record, missing=_unreadable(error))
    return _compared_or_unreadable(bundle, expected, record, right)


def _compared_or_unreadable(bundle: Bundle, expected: Any, record: Record, right: RightReply) -> ReplyDistances:
    try:
        return compared(bundle, expected, record)
    except ContractError as error:
        if not right.is_read_by(lambda expected, record: compared(bundle, expected, record)):
            raise
        return without_output(record, missing=_unreadable(error))


def _inspected_or_unreadable(bundle: Bundle, records: Sequence[Record], right: RightReply) -> tuple[Finding, ...]:
    try:
        return inspected(bundle, records)
    except ContractError as error:
        if not right.is_read_by(lambda _, record: inspected(bundle, [record])):
            raise
        return (Finding(reason_class="unreadable_output", text=_unreadable(error)),)


def _unreadable(error: ContractError) -> str:
    """The fault without the next step: it is the server's."""
    return f"a reply cannot be read ({str(error).splitlines()[0]})"


def is_offered(record: Record) -> bool:
    """Whether a record can be judged: finished, or cut off with something to show."""
    return record.error is None or (record.error == CUT and record.served is not None)


def sample(bundle: Bundle, offered: Sequence[Record], *, max_replies: int, seed: int) -> list[Record]:
    """`max_replies` of them (0 = all), drawn by `seed`: every kind of request in its share, at least one of each."""
    if not max_replies or len(offered) <= max_replies:
        return list(offered)
    generator = random.Random(f"rescore-{seed}")
    groups = grouped(bundle, offered)
    chosen: list[Record] = []
    left = max_replies
    # the rarest first: what is rounded up for them is taken from the commonest
    for number, name in enumerate(sorted(groups, key=lambda key: (len(groups[key]), key)), start=1):
        members = groups[name]
        share = left if number == len(groups) else max(1, round(max_replies * len(members) / len(offered)))
        drawn = generator.sample(members, min(len(members), share, left))
        chosen += drawn
        left -= len(drawn)
    return chosen


def grouped(bundle: Bundle, records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by `check.group`; all under one name where the check has none."""
    group = getattr(bundle.check, "group", None)
    groups: dict[str, list[Record]] = defaultdict(list)
    with bundle.blamed("check"):
        for record in records:
            groups[str(group(record)) if callable(group) else ""].append(record)
    return groups


def expected_of(bundle: Bundle, reference: Reference, pairs: Sequence[tuple[Request, Any]]) -> list[Any]:
    """What the reference says to each (request, output): `score_many`, `score` or `run`, whichever it has first."""
    score_many, score = (getattr(reference, name, None) for name in ("score_many", "score"))
    with bundle.blamed("reference"):
        if callable(score_many):
            answers = list(score_many(pairs))
        elif callable(score):
            answers = [score(request, output) for request, output in pairs]
        else:
            answers = [reference.run(request) for request, _ in pairs]
    if len(answers) != len(pairs):
        text = f"score_many answered {len(answers)} of {len(pairs)} pairs"
        raise ContractError(text, hint="docs/contract.md")
    return answers


def compared(bundle: Bundle, expected: Any, record: Record) -> ReplyDistances:
    """The record's distances. A value that is no finite number makes its distance a missing one."""
    with bundle.blamed("check"):
        distances = tuple(_plain(distance) for distance in bundle.check.compare(expected, record))
    if not distances:
        distances = (Distance(name="output", values=(), missing="compare gave no distance"),)
    return ReplyDistances(request_id=record.request.request_id, distances=distances)


def without_output(record: Record, *, missing: str = "a finished reply has no output") -> ReplyDistances:
    absent = Distance(name="output", values=(), missing=missing)
    return ReplyDistances(request_id=record.request.request_id, distances=(absent,))


def inspected(bundle: Bundle, records: Sequence[Record]) -> tuple[Finding, ...]:
    """`check.inspect`, where the check has it."""
    inspect = getattr(bundle.check, "inspect", None)
    if not callable(inspect):
        return ()
    with bundle.blamed("check"):
        return tuple(_finding(found) for found in inspect(records))


def judged(bundle: Bundle, replies: Sequence[ReplyDistances]) -> Judgement:
    """`check.judge`, where the check has it. A figure that is no finite number is an absent one."""
    judge = getattr(bundle.check, "judge", None)
    if not callable(judge):
        return Judgement()
    with bundle.blamed("check"):
        judgement = judge(replies)
        if not isinstance(judgement, Judgement):
            raise TypeError(f"judge returned {type(judgement).__name__}, expected vibeserve.contract.Judgement")
        figures = {str(name): float(value) for name, value in judgement.figures.items()}
        findings = tuple(_finding(found) for found in judgement.findings)
    finite = {name: value for name, value in figures.items() if math.isfinite(value)}
    return Judgement(findings=findings, figures=finite)


def _finding(found: object) -> Finding:
    if not isinstance(found, Finding):
        raise TypeError(f"found a {type(found).__name__}, expected vibeserve.contract.Finding")
    return found


def _plain(distance: object) -> Distance:
    if not isinstance(distance, Distance):
        raise TypeError(f"compare gave a {type(distance).__name__}, expected vibeserve.contract.Distance")
    values = tuple(float(value) for value in distance.values)
    num_bad = sum(not math.isfinite(value) for value in values)
    if num_bad and not distance.missing:
        return replace(distance, values=(), missing=f"{num_bad} of {len(values)} values are not finite numbers")
    if not values and not distance.missing:
        return replace(distance, values=(), missing="no values")
    return replace(distance, values=() if distance.missing else values)
