"""An artifact is asked for again under changed conditions: its runtime is gated first, a search comes only after."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from vibeserve.agents.team import SPEND
from vibeserve.artifact import read_manifest, read_spec
from vibeserve.artifact.verification import Origin, hardware_difference, verify
from vibeserve.build.runs import run_folder
from vibeserve.build.seeded import changes_since
from vibeserve.build.target import RunSummary, measured_facts, run_target
from vibeserve.config.recompose import recompose
from vibeserve.config.targets import project_root
from vibeserve.core.manifest import Manifest, VerifyResult
from vibeserve.core.paths import state_dir
from vibeserve.errors import RefusedError
from vibeserve.hardware import identity, probe
from vibeserve.journal import Event, read_events
from vibeserve.plan import Plan
from vibeserve.plan.difference import ChangedFact
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.plan.unresolved import unresolved
from vibeserve.planning.inheriting import INHERITED
from vibeserve.progress import Progress
from vibeserve.rules import refuse_own_rules, take_contract
from vibeserve.spec import Seed, SeedSearch, Spec
from vibeserve.synthesis.round0 import SEEDED

Outcome = Literal["unchanged", "asked", "reused", "searched"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an upgrade is about, before anything is started."""

    artifact: Path
    manifest: Manifest
    spec: Spec
    """the artifact's own with the overrides, its seed the artifact"""
    plan: Plan
    changes: tuple[ChangedFact, ...]


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """Document: what became of it."""

    schema_version: int = 1
    kind: Literal["upgrade"] = "upgrade"
    artifact: str
    """the one that was upgraded"""
    target: str
    plan_before: str
    plan_after: str
    changes: tuple[ChangedFact, ...]
    outcome: Outcome
    """unchanged: nothing differs, nothing was run; asked: only compared (`--diff`); reused: the runtime was certified
    as it is; searched: it, or an older checkpoint, was only where a search began"""
    started_from: str = ""
    """origin of round 0's runtime"""
    refused: tuple[str, ...] = ()
    """of each runtime that was tried before that one, and why it was refused"""
    reopened: tuple[str, ...] = ()
    """abandoned ideas that are open again, with the changed fact that they name"""
    agent_calls: int = 0
    rounds: int = 0
    """rounds after round 0"""
    result: RunSummary | None = None
    """None where nothing was run"""


def ask(artifact: Path, overrides: Sequence[str], *, expect: str | None = None) -> Asked:
    """Read and compare; nothing is started.

    RefusedError where the artifact does not hold (`verify --level bytes`) or judges itself by rules of its own;
    SpecError where what is asked for does not compose or compile.
    """
    checked = verify(artifact, level="bytes", origin=Origin(expect=expect), identity=dict, reverify=_runs_nothing)
    if checked.reasons:
        raise RefusedError(f"{checked.line}\nnext: vibeserve verify {artifact} --level bytes", reasons=checked.reasons)
    manifest = read_manifest(artifact)
    spec = _taken(artifact, manifest, is_vouched=checked.is_origin_known)
    refuse_own_rules(spec, manifest=manifest, plan_id="")
    is_same_machine = not hardware_difference(manifest.hardware, identity(probe()))
    asked = recompose(unresolved(spec, is_same_machine=is_same_machine), overrides)
    asked.seed = Seed(kind="artifact", path=str(artifact), search=SeedSearch.if_refused)
    facts, is_asked = (probe(), False) if asked.host.kind == "local" else (measured_facts(asked), True)
    plan = compile_unmeasured(asked, facts=facts, is_asked=is_asked)
    changes = changes_since(artifact, plan, hardware=identity(facts))
    return Asked(artifact=artifact, manifest=manifest, spec=asked, plan=plan, changes=changes)


def preview(asked: Asked) -> Upgrade:
    """What differs, and no more."""
    return _document(asked, outcome="asked" if asked.changes else "unchanged", events=(), result=None)


def upgrade(asked: Asked, *, progress: Progress) -> Upgrade:
    """Carry it out, unless nothing differs. Raises what a run raises: RefusedError where it is not certified."""
    if not asked.changes:
        return preview(asked)
    result = run_target(asked.spec, progress=progress)
    events = read_events(run_folder(project_root(), asked.plan) / "journal.jsonl")
    seeded = next((event.data for event in reversed(events) if event.kind == SEEDED), {"position": 1})
    is_as_it_was = seeded["position"] == 0 and len(result.manifest.rounds) == 1
    return _document(asked, outcome="reused" if is_as_it_was else "searched", events=events, result=result)


def _document(asked: Asked, *, outcome: Outcome, events: Sequence[Event], result: RunSummary | None) -> Upgrade:
    last = {event.kind: event.data for event in events}
    seeded, inherited = last.get(SEEDED, {}), last.get(INHERITED, {})
    return Upgrade(
        artifact=str(asked.artifact), target=asked.plan.target, plan_before=asked.manifest.plan_id,
        plan_after=asked.plan.plan_id, changes=asked.changes, outcome=outcome,
        started_from=seeded.get("origin", ""), refused=tuple(seeded.get("refused", ())),
        reopened=tuple(inherited.get("reopened", ())), agent_calls=sum(event.kind == SPEND for event in events),
        rounds=max(0, len(result.manifest.rounds) - 1) if result is not None else 0, result=result,
    )  # fmt: skip


def _taken(artifact: Path, manifest: Manifest, *, is_vouched: bool) -> Spec:
    """The artifact's spec, with a copy of the target's own files that outlives this command: a run is resumed."""
    destination = state_dir(project_root()) / "contracts" / manifest.plan_id
    shutil.rmtree(destination, ignore_errors=True)
    destination.parent.mkdir(parents=True, exist_ok=True)
    return take_contract(
        replace(read_spec(artifact)), contract=artifact / "contract", is_vouched=is_vouched, destination=destination
    )


def _runs_nothing(known: object, artifact: Path) -> VerifyResult:
    raise AssertionError("level bytes starts nothing")
