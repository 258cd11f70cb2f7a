"""Are the pages that people read the ones that the manifest makes? Rendered again, and compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vibeserve.artifact.open import read_golden_seeds
from vibeserve.artifact.rendering import JOURNAL, PAGE, page_of
from vibeserve.core.digests import framework_digest
from vibeserve.core.manifest import Manifest
from vibeserve.core.nouns import Refusal
from vibeserve.errors import SpecError
from vibeserve.journal import JournalError

VERDICT_NAME = "VERDICT.md"
REASON_CLASS = "other_page"


OTHER_VERSION = "written by another version: only the claim was looked for"


def pages_note(manifest: Manifest) -> str:
    """What a comparison of the pages leaves open; empty where they are compared byte for byte."""
    return "" if manifest.digests.get("framework") == framework_digest() else OTHER_VERSION


def page_refusals(artifact: Path, manifest: Manifest) -> list[Refusal]:
    """A page that says otherwise than the manifest. Of another version's template only the claim is looked for."""
    from vibeserve.report import render_verdict

    try:
        seeds = read_golden_seeds(artifact)
    except SpecError as error:
        return [Refusal(gate="integrity", reason_class=REASON_CLASS, text=str(error), file="golden/seeds.json")]
    try:
        page = page_of(artifact, manifest)
    except JournalError as error:
        return [Refusal(gate="integrity", reason_class=REASON_CLASS, text=str(error), file=JOURNAL)]
    pages = {VERDICT_NAME: render_verdict(manifest, seeds=seeds), PAGE: page}
    is_same = not pages_note(manifest)
    refusals = []
    for name, page in pages.items():
        path = artifact / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        fault = "is missing" if text is None else _fault(text, page) if is_same else _missing_claim(text, manifest)
        if fault:
            advice = "read the page that `vibeserve report PATH --verdict` prints, and ask where the artifact is from"
            refusals.append(
                Refusal(
                    gate="integrity", reason_class=REASON_CLASS, file=name,
                    text=f"{name} {fault}, so it is not the page of this manifest; {advice}",
                )
            )  # fmt: skip
    return refusals


def _fault(text: str, page: str) -> str:
    if text == page:
        return ""
    ours, theirs = page.splitlines(), text.splitlines()
    place = next(
        (n for n, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), min(len(ours), len(theirs))
    )
    shown = theirs[place].strip()[:60] if place < len(theirs) else "nothing more"
    return f"says otherwise than manifest.json in line {place + 1} ({shown!r})"


def _missing_claim(text: str, manifest: Manifest) -> str:
    """What any version's page says: target, status and level, and the headline's interval."""
    missing = [fact for fact in _facts(manifest) if fact not in text]
    return f"does not say {', '.join(map(repr, missing))}, which manifest.json does" if missing else ""


def _facts(manifest: Manifest) -> Iterator[str]:
    from vibeserve.report.page import interval_text

    yield from (manifest.target, manifest.status, manifest.level, manifest.plan_id)
    headline = manifest.headline()
    for base in headline.baselines if headline else ():
        if base.ci_low is not None:
            yield interval_text(base)
