"""Does the manifest say what the artifact's other documents say? Reads them, starts nothing.

A list of digests that was written again hides an edited manifest. What it claims also stands elsewhere in the artifact:
in the spec and the plan, in the journal, in the folders of the rounds, on the pages. Whoever rewrites all of these
alike is found by `--expect`, a signature, or a measurement only (`docs/verify.md`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.artifact.claimed import CLAIMED, claimed_fields
from vibeserve.artifact.manifest import to_json_data
from vibeserve.core.digests import framework_digest
from vibeserve.core.documents import digest_of, to_data
from vibeserve.core.manifest import Manifest
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError, SpecError
from vibeserve.journal import Event, read_events

CONTRADICTION = "contradiction"
Fault = tuple[str, str]
"""file that says otherwise, text"""
SPEC, PLAN, JOURNAL = "spec.yaml", "plan.json", "journal.jsonl"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What lies beside the manifest, as data."""

    folder: Path
    spec: dict[str, Any]
    plan: dict[str, Any]
    events: list[Event]
    is_same_framework: bool
    """made by this very version: what it derives from the documents can be derived again"""

    def last(self, kind: str) -> Any:
        """Data of the newest event of that kind; None without one."""
        return next((event.data for event in reversed(self.events) if event.kind == kind), None)

    def rounds(self) -> list[dict[str, Any]]:
        """Records of the search's rounds."""
        return [event.data["record"] for event in self.events if event.kind == "round" and "record" in event.data]


def contradictions(artifact: Path, manifest: Manifest) -> list[Refusal]:
    """Every place where the artifact's own documents contradict its manifest; empty where they agree."""
    try:
        beside = _read(artifact, manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InfraError, SpecError) as error:
        text = f"the documents beside manifest.json cannot be read, so that nothing bears it out: {error}"
        return [Refusal(gate="integrity", reason_class=CONTRADICTION, text=text, file=artifact.name)]
    checks = (_identity, _level, _digests, _tier, _rounds, _search, _certified, _spent, _left_out, _derived, _record)
    faults: list[Fault] = []
    for check in checks:
        try:
            faults += check(manifest, beside)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            faults.append((artifact.name, f"the documents beside manifest.json lack what bears it out: {error!r}"))
    return [
        Refusal(gate="integrity", reason_class=CONTRADICTION, text=text, file=file)
        for file, text in dict.fromkeys(faults)
    ]


def _read(artifact: Path, manifest: Manifest) -> Beside:
    import yaml

    try:
        spec = yaml.safe_load((artifact / SPEC).read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{SPEC} is no YAML ({error})") from error
    return Beside(
        folder=artifact, spec=dict(spec), plan=dict(json.loads((artifact / PLAN).read_text(encoding="utf-8"))),
        events=read_events(artifact / JOURNAL),
        is_same_framework=manifest.digests.get("framework") == framework_digest(),
    )  # fmt: skip


def _says(what: str, ours: Any, file: str, theirs: Any) -> Iterator[Fault]:
    """A fault where the two differ as JSON data."""
    if json.loads(json.dumps(to_data(ours))) != json.loads(json.dumps(to_data(theirs))):
        yield file, f"manifest.json says {what} {_short(ours)}, {file} says {_short(theirs)}: {CHANGED}"


CHANGED = "one of them was changed after packaging"


def _short(value: Any) -> str:
    text = json.dumps(to_data(value)) if not isinstance(value, str) else value
    return text if len(text) <= 60 else text[:57] + "..."


def _identity(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    opened = beside.last("opened")
    yield from _says("target", manifest.target, SPEC, beside.spec["target"]["name"])
    yield from _says("target", manifest.target, PLAN, beside.plan["target"])
    yield from _says("plan_id", manifest.plan_id, PLAN, beside.plan["plan_id"])
    yield from _says("plan_id", manifest.plan_id, JOURNAL, opened["plan_id"])
    if beside.is_same_framework:
        from vibeserve.plan.compile import hashed_data

        found = digest_of({"spec": hashed_data(beside.spec), "digests": beside.plan["digests"]})[:16]
        if found != manifest.plan_id:
            text = f"spec.yaml and the digests of plan.json make plan {found}, manifest.json claims {manifest.plan_id}"
            yield SPEC, f"{text}: {CHANGED}"


def _level(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    for file, level in ((SPEC, beside.spec["budget"]["level"]), (PLAN, beside.plan["budget"]["level"])):
        if manifest.level != level:
            text = f"manifest.json claims level {manifest.level}, {file} says that it was certified at level {level}"
            yield file, f"{text}: what a level holds was not run"


def _digests(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    for name, digest in beside.plan["digests"].items():
        yield from _says(f"digest of {name}", manifest.digests.get(name), PLAN, digest)
    if "hardware" in beside.plan["digests"]:
        yield from _says("hardware, digested,", digest_of(manifest.hardware), PLAN, beside.plan["digests"]["hardware"])
    materials = manifest.provenance["buildDefinition"]["resolvedDependencies"]
    for each in materials:
        digest = manifest.digests.get(each["name"])
        yield from _says(f"digest of {each['name']} {digest}, provenance", each["digest"]["sha256"], PLAN, digest)


def _tier(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    yield from _says("sandbox_tier", manifest.sandbox_tier, JOURNAL, beside.last("tier"))


def _rounds(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    folders = sorted(path.name for path in (beside.folder / "rounds").iterdir() if (path / "entry.json").is_file())
    numbers = [f"{entry.number:04d}" for entry in manifest.rounds]
    yield from _says("rounds", numbers, "rounds", folders)
    for entry in manifest.rounds:
        file = f"rounds/{entry.number:04d}/entry.json"
        if (beside.folder / file).is_file():
            found = json.loads((beside.folder / file).read_text(encoding="utf-8"))
            if to_json_data(entry) != found:
                yield file, f"manifest.json says otherwise than {file} of round {entry.number}: {CHANGED}"


def _search(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    records = beside.rounds()
    ours = [(entry.number, entry.outcome, entry.reason, entry.seconds) for entry in manifest.rounds]
    yield from _says("rounds", ours, JOURNAL, [[each[name] for name in _OF_A_ROUND] for each in records])
    tried = sum(each["attempts"] + len((each["proposal"] or {}).get("variants") or ()) for each in records)
    yield from _says("candidates_tried", manifest.candidates_tried, JOURNAL, tried)


_OF_A_ROUND = ("number", "outcome", "reason", "seconds")


def _certified(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    found = beside.last("certified")
    if found is None:
        yield JOURNAL, f"{JOURNAL} holds no certification, and manifest.json says status {manifest.status}"
        return
    if manifest.status == "certified" and not found["passed"]:
        yield JOURNAL, f"manifest.json says certified, {JOURNAL} says that a gate refused"
    if manifest.status == "certified" and manifest.reasons:
        yield "manifest.json", "manifest.json says certified, and gives reasons why it is not"
    yield from _says("accuracy", manifest.accuracy, JOURNAL, found["accuracy"])
    yield from _says("environment", manifest.environment, JOURNAL, found.get("environment"))
    if manifest.environment is not None:
        yield from _says("sandbox_tier", manifest.sandbox_tier, JOURNAL, manifest.environment.sandbox_tier)


def _spent(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    from vibeserve.agents.ledger import Spend
    from vibeserve.agents.team import SPEND
    from vibeserve.control import interventions_of
    from vibeserve.core.documents import from_data

    spends = [from_data(Spend, event.data) for event in beside.events if event.kind == SPEND]
    yield from _says(
        "usage.tokens", manifest.usage["tokens"], JOURNAL, float(sum(each.usage.tokens for each in spends))
    )
    yield from _says("usage.usd", manifest.usage["usd"], JOURNAL, round(sum(each.usd or 0.0 for each in spends), 6))
    rounds_s = sum(float(each["seconds"]) for each in beside.rounds())
    if manifest.usage["wall_s"] < rounds_s - 1.0:
        text = (
            f"manifest.json says usage.wall_s {manifest.usage['wall_s']:g}, the rounds of {JOURNAL} took {rounds_s:.1f}"
        )
        yield JOURNAL, f"{text}: {CHANGED}"
    yield from _says("interventions", manifest.interventions, JOURNAL, interventions_of(beside.events))
    backends = {beside.spec["agents"]["backend"]} | {
        beside.spec["agents"][role]["backend"] for role in ("planner", "implementer", "judge", "evaluator")
    }
    if not backends - {"", "playbook"} and any(each.origin.startswith("agent:") for each in manifest.authorship):
        yield SPEC, f"manifest.json says that an agent wrote of it, {SPEC} declares none (agents.backend playbook)"


def _left_out(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    """What the spec itself leaves out must be in `not_run`."""
    evaluation, workload = beside.spec["evaluation"], beside.spec["workload"]
    needed = []
    if evaluation["clock"] == "fake":
        needed.append(("fake clock", "evaluation.clock fake"))
    if evaluation["window_scale"] != 1.0:
        needed.append(("scaled by", f"evaluation.window_scale {evaluation['window_scale']}"))
    if evaluation["loads"] != "all" and len(workload["loads"]) > 1:
        needed.append(("loads ", f"evaluation.loads {evaluation['loads']}"))
    if beside.spec["agents"]["backend"] == "replay":
        needed.append(("recording", "agents.backend replay"))
    for words, setting in needed:
        if not any(words in text for text in manifest.not_run):
            yield SPEC, f"not_run of manifest.json leaves out what {SPEC} says by {setting}: {CHANGED}"


def _derived(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    """Roles and goals follow from the spec and the metrics; baselines are declared."""
    from vibeserve.artifact.open import read_spec
    from vibeserve.results import goal_results, role_of

    declared = beside.spec["baseline"]
    for metric in manifest.metrics:
        for base in metric.baselines:
            if base.name not in declared:
                yield SPEC, f"manifest.json compares with {base.name}, which {SPEC} does not declare"
                continue
            own = declared[base.name]
            yield from _says(f"class of {base.name}", base.baseline_class, SPEC, own["baseline_class"])
            if own["version"] and base.state == "measured":
                yield from _says(f"version of {base.name}", base.version, SPEC, own["version"])
    if not beside.is_same_framework:
        return
    spec = read_spec(beside.folder)
    for metric in manifest.metrics:
        role = role_of(metric.name, metric.load, spec=spec)
        yield from _says(f"role of {metric.name} at {metric.load}", metric.role, SPEC, role)
    if manifest.metrics and manifest.goals != goal_results(manifest.metrics, spec=spec):
        yield SPEC, f"goals of manifest.json are not what {SPEC} and its own metrics make of them: {CHANGED}"


def _record(manifest: Manifest, beside: Beside) -> Iterator[Fault]:
    """Field by field, what the journal recorded of the manifest when it was packaged."""
    recorded = beside.last(CLAIMED)
    if recorded is None:
        if beside.is_same_framework:
            yield JOURNAL, f"{JOURNAL} holds no record of what manifest.json claims ({CLAIMED}): {CHANGED}"
        return
    found = claimed_fields(manifest)
    for name in sorted(found.keys() | recorded["fields"].keys()):
        if found.get(name) != recorded["fields"].get(name):
            yield "manifest.json", f"{name} of manifest.json is not what {JOURNAL} recorded of it: {CHANGED}"
