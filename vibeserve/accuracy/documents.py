"""Documents between the judge and its child: what is to be scored, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vibeserve.client.records import HARNESS_FIELDS, record_data, record_reader, request_reader
from vibeserve.contract import Finding, Judgement, Limit, Record, ReplyDistances
from vibeserve.modalities import Bundle, BundleRef


class JobKind(Enum):
    RECORDS = "records"
    FAULTS = "faults"
    EXPECTED = "expected"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the child does: judge records of a server, try the bundle's faults, or say what the reference expects."""

    bundle: BundleRef
    kind: JobKind
    seed: int = 0
    records: tuple[Any, ...] = ()
    """records: what `packed` gave"""
    max_replies: int = 0
    """records: size of the sample that is scored; 0 = all"""
    num_requests: int = 0
    """faults: outputs of each fault"""
    only: tuple[str, ...] = ()
    """faults: these alone; empty = all"""
    device: str = "cpu"
    dtype: str = "float32"
    schema_version: int = 1


def packed(record: Record) -> dict[str, Any]:
    """A record for a job: its request, what `send` decided, and the harness's fields."""
    return {**{name: getattr(record, name) for name in HARNESS_FIELDS}, "record": record_data(record)}


def unpacked(records: Sequence[dict[str, Any]], *, bundle: Bundle) -> list[Record]:
    """The records of a job, as the bundle's own types."""
    read_request, read_record = request_reader(bundle.request_type), record_reader(bundle.record_type)
    return [
        read_record(
            each["record"], request=read_request(each["request"]),
            **{name: each[name] for name in HARNESS_FIELDS if name != "request"},
        )
        for each in records
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Distances of the scored replies from what is right, and what the check said about all of them."""

    replies: tuple[ReplyDistances, ...] = ()
    num_offered: int = 0
    """replies that the sample was drawn from"""
    limits: tuple[Limit, ...] = ()
    inspected: tuple[Finding, ...] = ()
    """of `inspect`, over every record and not the sample alone"""
    judgement: Judgement = field(default_factory=Judgement)
    wall_s: float = 0.0
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class FaultScores:
    """One planted fault's outputs, scored."""

    name: str
    is_wrong: bool
    scores: Scores
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A SpecError on its way to the parent."""

    message: str
    problems: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the child found; `problem` where a target's own file failed."""

    scores: Scores | None = None
    faults: tuple[FaultScores, ...] = ()
    logprobs: tuple[tuple[float, ...], ...] = ()
    """expected: of every record's served ids under the reference, nats; none for a record that it cannot score"""
    problem: Problem | None = None
    schema_version: int = 1
