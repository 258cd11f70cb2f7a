"""A run whose round 0 comes from an artifact: what the artifact must be, what differs, and what is taken over."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vibeserve.artifact import read_manifest, read_spec, verify_bytes
from vibeserve.build.authorship import Blamed, blame
from vibeserve.build.runs import Run
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import from_data
from vibeserve.errors import RefusedError
from vibeserve.hardware import identity
from vibeserve.journal import read_events
from vibeserve.plan import Plan
from vibeserve.plan.difference import ChangedFact, changes_of, spec_changes
from vibeserve.planning import Inherited, inherit
from vibeserve.seeds.artifact import BUNDLE
from vibeserve.spec import Spec
from vibeserve.synthesis import Entry

TOLD_OTHERWISE = ("hardware", "seed", "weights", "recording")
"""digests of a plan whose content is compared fact by fact, or that only say where round 0 comes from"""


def refuse_changed_artifact(spec: Spec) -> None:
    """RefusedError where the seed is an artifact and not, byte for byte, what was packaged."""
    if spec.seed.kind != "artifact" or not spec.seed.path:
        return
    artifact = Path(spec.seed.path)
    refusals = verify_bytes(artifact)
    if refusals:
        told = f"the seed is no artifact that holds: {refusals[0].text}"
        raise RefusedError(f"{told}\nnext: vibeserve verify {artifact} --level bytes", reasons=refusals)


def changes_since(artifact: Path, plan: Plan, *, hardware: Mapping[str, Any]) -> tuple[ChangedFact, ...]:
    """What differs between the plan that `artifact` was made for and `plan` on the machine `hardware`."""
    before, manifest = read_spec(artifact), read_manifest(artifact)
    digests = json.loads((artifact / "plan.json").read_text(encoding="utf-8"))["digests"]
    return (
        *spec_changes(before, plan.spec),
        *changes_of("machine", manifest.hardware, hardware),
        *changes_of("inputs", _content(digests), _content(plan.digests)),
    )


def take_over(run: Run) -> Inherited | None:
    """Ideas and notes of the search that the seed came from; None where the seed is no artifact."""
    seed = run.plan.spec.seed
    if seed.kind != "artifact":
        return None
    artifact = Path(seed.path)
    manifest = read_manifest(artifact)
    found = inherit(
        run.steering.book, run.journal, events=read_events(artifact / "journal.jsonl"),
        facts=changes_since(artifact, run.plan, hardware=identity(run.facts)),
        source=f"{manifest.target}/{manifest.plan_id}",
    )  # fmt: skip
    for text in found.reopened:
        run.progress.event("synthesize", f"reopened: {text}")
    return found


def blame_of_seed(run: Run) -> Blamed | None:
    """Whose lines round 0's are, as the search tells that made the artifact; None where the seed is none."""
    seed = run.plan.spec.seed
    if seed.kind != "artifact":
        return None
    artifact = Path(seed.path)
    rounds = [event.data for event in read_events(artifact / "journal.jsonl") if event.kind == "round"]
    with tempfile.TemporaryDirectory(prefix="vibeserve-seed-") as folder:
        store = CheckpointStore(Path(folder) / "store.git")
        store.restore(artifact / BUNDLE)
        return blame([from_data(Entry, data) for data in rounds], store=store, assemble=run.assemble)


def _content(digests: Mapping[str, str]) -> dict[str, str]:
    return {name: digest[:16] for name, digest in digests.items() if name not in TOLD_OTHERWISE}
