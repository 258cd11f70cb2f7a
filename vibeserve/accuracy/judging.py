"""Judge the records of one server: the same way for every bundle, from distances and findings alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.limits import limit_refusals, missing_refusals
from vibeserve.accuracy.requests import request_refusals, stale_refusals
from vibeserve.accuracy.rescore import rescore
from vibeserve.accuracy.scoring import is_offered
from vibeserve.contract import Finding, Record
from vibeserve.core.nouns import Refusal
from vibeserve.modalities import BundleRef


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was found about the records of one server."""

    refusals: tuple[Refusal, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    scores: Scores = field(default_factory=Scores)


def judge_records(
    records: Sequence[Record], *, bundle: BundleRef, num_threads: int, max_replies: int, seed: int, run_dir: Path
) -> Judged:
    """Everything that the records of one server can be refused for, and the measured figures.

    `max_replies` 0 scores all. Missing evidence refuses. Raises as `rescore` does.
    """
    scores = (
        rescore(
            records, bundle=bundle, num_threads=num_threads, max_replies=max_replies, seed=seed, run_dir=run_dir
        )
        if has_evidence(records)
        else Scores()
    )  # fmt: skip
    return judge_scores(records, scores)


def has_evidence(records: Sequence[Record]) -> bool:
    """Whether there is anything to score."""
    return any(record.error is None for record in records) and any(map(is_offered, records))


def judge_scores(records: Sequence[Record], scores: Scores) -> Judged:
    """The same from scores that are there already. Pure."""
    found, figures = refusals_of(scores)
    refusals = (*request_refusals(records), *found, *stale_refusals(records, scores))
    return Judged(refusals=refusals, figures=figures, scores=scores)


def refusals_of(scores: Scores) -> tuple[list[Refusal], dict[str, float]]:
    """Refusals by missing distances, limits and the check's own rules; figures by name. Pure."""
    exceeded, figures = limit_refusals(scores.replies, limits=scores.limits)
    refusals = [
        *_typed(scores.inspected),
        *missing_refusals(scores.replies),
        *exceeded,
        *_typed(scores.judgement.findings),
    ]
    return refusals, figures | dict(scores.judgement.figures)


def _typed(findings: Sequence[Finding]) -> Iterator[Refusal]:
    for found in findings:
        yield Refusal(gate=found.gate, reason_class=found.reason_class, text=found.text)
