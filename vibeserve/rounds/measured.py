"""What was measured of a candidate, kept before anybody is asked about it: a kill in between must not cost it twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from vibeserve.core.documents import digest_of, digest_tree, read_document, write_document
from vibeserve.core.nouns import Activation, Decision, RatioInterval, Verdict
from vibeserve.roles.evaluator import Series
from vibeserve.rounds.nouns import Checkpoint, Team


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Document: a candidate's windows beside its opponents', and what they decide. Without its replies, which were
    judged."""

    schema_version: int = 1
    key: str
    """of the candidate's files and of those that it was measured beside: others are measured anew"""
    ours: Series
    theirs: Series
    verdict: Verdict
    decision: Decision
    is_beside_incumbent: bool
    series: dict[str, Series] = field(default_factory=dict)
    """of every comparison that was made"""
    against_parent: RatioInterval | None = None
    activation: Activation | None = None
    """of what the windows would accept, where it was profiled"""


def measurement_key(offered: Checkpoint, *, opponents: tuple[str, ...]) -> str:
    """Digest of what a measurement is of."""
    return digest_of({"tree": digest_tree(offered.workspace), "opponents": list(opponents)})


def keep_measured(team: Team, name: str, measured: Measured) -> None:
    """Replace the document of the candidate `name`."""
    path = _path(team, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    series = {key: _without_replies(row) for key, row in measured.series.items()}
    write_document(
        path,
        replace(
            measured, series=series, ours=_without_replies(measured.ours), theirs=_without_replies(measured.theirs)
        ),
    )


def kept_measured(team: Team, name: str, *, key: str) -> Measured | None:
    """What an interrupted round measured of this very candidate; None where it did not come so far."""
    path = _path(team, name)
    if not path.is_file():
        return None
    measured = read_document(path, Measured)
    return measured if measured.key == key else None


def _path(team: Team, name: str) -> Path:
    return team.bench.run_dir / "measured" / f"{name}.json"


def _without_replies(series: Series) -> Series:
    return replace(series, replies=())
