"""An artifact's page: of its manifest and its own journal alone, for whoever packages, renders again or compares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vibeserve.core.documents import from_data
from vibeserve.core.manifest import Manifest
from vibeserve.journal import Event, read_events
from vibeserve.profiles import Profile
from vibeserve.report import ProfileRow, render_report

PAGE, JOURNAL = "report.html", "journal.jsonl"


def page_of(artifact: Path, manifest: Manifest) -> str:
    """The page of `manifest` beside the artifact's own journal. JournalError where that is damaged."""
    journal = artifact / JOURNAL
    events = read_events(journal) if journal.is_file() else ()
    return render_report(manifest, events=events, profile=_profiles(events))


def _profiles(events: Sequence[Event]) -> tuple[list[ProfileRow], list[ProfileRow]]:
    """Rows of the seed's profile and of the last incumbent's; empty where one has none that is timed."""
    kept = [event.data["checkpoint"] for event in events if event.kind == "round" and event.data.get("checkpoint")]
    found = [checkpoint.get("profile") for checkpoint in kept]
    if len(found) < 2 or not found[0] or not found[-1]:
        return [], []
    before, after = (
        [
            ProfileRow(name=row.name, share=row.share, ceiling=row.amdahl_ceiling)
            for row in from_data(Profile, data).bottlenecks
        ]
        for data in (found[0], found[-1])
    )
    return before, after
