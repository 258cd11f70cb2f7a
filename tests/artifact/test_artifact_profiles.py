"""What the framework's profiler measured of the seed and of the winner is on the packaged page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from artifact_samples import sample_contents, sample_manifest

from vibeserve.artifact import package, read_manifest
from vibeserve.artifact.pages import page_refusals
from vibeserve.artifact.rendering import page_of
from vibeserve.core.documents import to_data
from vibeserve.journal import Journal
from vibeserve.profiles.documents import Bottleneck, Profile


def profile(**shares: float) -> Profile:
    rows = tuple(
        Bottleneck(name=name, share=share, amdahl_ceiling=1 / (1 - share)) for name, share in shares.items()
    )
    return Profile(tool="stacks", is_timed=True, bottlenecks=rows)


def page(artifact: Path, *profiles: Profile | None) -> str:
    (artifact / "journal.jsonl").unlink(missing_ok=True)
    with Journal.open(artifact / "journal.jsonl") as journal:
        for found in profiles:
            journal.append("round", {"checkpoint": {"profile": to_data(found) if found else None}})
    return page_of(artifact, sample_manifest())


def test_rows_of_seed_and_winner_are_drawn(tmp_path: Path) -> None:
    seed, winner = profile(attention=0.6, sampler=0.2), profile(attention=0.1, http=0.5)
    text = page(tmp_path, seed, None, winner)
    assert "attention 60% to 10%" in text and "http 0% to 50%" in text


def test_without_a_timed_profile_of_both_there_is_none(tmp_path: Path) -> None:
    untimed = replace(profile(), is_timed=False)
    for profiles in ((profile(attention=0.6),), (profile(attention=0.6), untimed), (None, profile(http=0.5))):
        assert "60% to" not in page(tmp_path, *profiles)


def test_the_page_that_is_packaged_is_the_one_that_is_rendered_again(tmp_path: Path) -> None:
    """`verify` compares the two: a page that was packaged without the profiles was refused."""
    contents = sample_contents(tmp_path)
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        for found in (profile(attention=0.6), profile(attention=0.1)):
            journal.append("round", {"checkpoint": {"profile": to_data(found)}})
        packaged = package(contents, out_dir=tmp_path / "artifacts", journal=journal)
    text = (packaged.path / "report.html").read_text()
    assert "attention 60% to 10%" in text
    assert text == page_of(packaged.path, read_manifest(packaged.path))
    assert page_refusals(packaged.path, read_manifest(packaged.path)) == []
