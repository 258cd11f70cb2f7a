"""What a summary has to say of the search: that it tried nothing, or that a ratio compares a runtime with itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vibeserve.core.manifest import Manifest
from vibeserve.core.nouns import Outcome
from vibeserve.journal import read_events
from vibeserve.plan import Plan
from vibeserve.synthesis import SEARCH_ENDED

SCAFFOLD = "scaffold"
"""the kind of seed, and the peer that is the same runtime"""


def search_lines(plan: Plan, manifest: Manifest, *, journal: Path) -> Iterator[str]:
    """Nothing where the search went as one would expect. `journal` may be gone: the artifact outlives it."""
    outcomes = [entry.outcome for entry in manifest.rounds]
    if not outcomes or Outcome.ACCEPTED in outcomes:
        return
    if len(outcomes) == 1:
        why = _why_ended(journal)
        told = f"no round was tried{': ' if why else ''}{why.removeprefix('budget: ')}"
        more = f" (budget.wall_s is {plan.spec.budget.wall_s:g}; a larger one has time)"
        yield f"{told}; the winner is round 0's runtime{more if why.startswith('budget') else ''}"
    else:
        yield f"none of {len(outcomes) - 1} rounds was accepted; the winner is round 0's runtime"
    if _is_own_baseline(plan, manifest):
        yield f"baseline '{SCAFFOLD}' is that runtime too: its ratio compares it with itself, and shows the noise"


def broken_invariant(journal: Path) -> str:
    """What of the search's state contradicted itself and ended it; empty where nothing did, or the journal is gone."""
    if not journal.is_file():
        return ""
    ended = [event.data for event in read_events(journal) if event.kind == SEARCH_ENDED]
    return next((str(data["why"]) for data in ended if data.get("incumbent")), "")


def _why_ended(journal: Path) -> str:
    if not journal.is_file():
        return ""
    return next((str(event.data["why"]) for event in reversed(read_events(journal)) if event.kind == SEARCH_ENDED), "")


def _is_own_baseline(plan: Plan, manifest: Manifest) -> bool:
    spec, headline = plan.spec, manifest.headline()
    if spec.parallelism.tensor > 1:
        return False  # the peer is one process
    is_measured = headline is not None and any(
        row.name == SCAFFOLD and row.ratio is not None and not row.flags for row in headline.baselines
    )
    return is_measured and spec.seed.kind == SCAFFOLD and not spec.search.pins
