"""The events of a run are typed, and every line that a build prints with --json satisfies one schema."""

from __future__ import annotations

import ast
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_manifest
from jsonschema import Draft202012Validator
from loop_fakes import WRONG_TOKENS
from steering_rig import DOCUMENT, Rig, outcomes

from vibeserve.build.target import RunSummary
from vibeserve.cli.boundary import error_document
from vibeserve.cli.document_schemas import SCHEMAS, events_schema, schema_texts
from vibeserve.cli.main import main
from vibeserve.core.documents import to_data
from vibeserve.core.paths import data_dir
from vibeserve.errors import BudgetError, SpecError
from vibeserve.progress import EVENTS, JsonProgress, LineProgress, QuietProgress, event_data, event_of

ROOT = Path(__file__).resolve().parents[2]
IN_WORDS = {"verify", "noise", "exploit", "honest"}
"""stages of verbs that are no build: notes"""


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(events_schema())


def faults(line: Any) -> list[str]:
    return [error.message for error in validator().iter_errors(line)]


def test_the_checked_in_schemas_are_the_generated_ones() -> None:
    folder = data_dir("targets").parent / "docs" / "schemas"
    again = "from vibeserve.cli.document_schemas import write_schemas; write_schemas(Path('docs/schemas'))"
    for name, text in schema_texts().items():
        assert (folder / name).read_text() == text, f"{name} has drifted; regenerate: {again}"
        Draft202012Validator.check_schema(json.loads(text))


def test_the_verb_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    for name, make in SCHEMAS.items():
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == make()
    assert main(["schema"]) == 0
    assert {"events", "status"} <= {line.split()[0] for line in capsys.readouterr().out.splitlines()}


@pytest.mark.parametrize(
    ("stage", "facts", "kind"),
    [
        ("plan", {}, "plan"),
        ("weights", {"state": "ran", "seconds": 1.0}, "step"),
        ("reference", {"faults": ["one"]}, "step"),
        ("round 12", {"outcome": "accepted", "ratio": 1.5, "ci_low": 1.4, "ci_high": 1.6}, "round"),
        ("measure", {}, "measure"),
        ("profile", {}, "profile"),
        ("audit", {"busy_s": 2.0}, "audit"),
        ("lease", {"device": "cpu"}, "lease"),
        ("control", {"number": 1, "command": "pause", "is_refused": False}, "control"),
        ("inbox", {}, "inbox"),
        ("r02a1-implementer", {}, "agent"),
        ("p001", {}, "variant"),
        ("anything", {}, "note"),
    ],
)
def test_an_events_kind_follows_from_where_it_comes_from(stage: str, facts: dict[str, Any], kind: str) -> None:
    stream = io.StringIO()
    JsonProgress(stream).event(stage, "text", **facts)
    line = json.loads(stream.getvalue())
    assert (line["kind"], line["schema_version"], line["stage"]) == (kind, 1, stage)
    assert faults(line) == []
    assert facts.items() <= line.items()


def test_every_kind_has_its_case_above() -> None:
    kinds = {event.__dataclass_fields__["kind"].default for event in EVENTS}
    assert kinds == {
        "plan", "step", "round", "measure", "profile", "audit", "lease", "control", "inbox", "agent", "variant", "note"
    }  # fmt: skip


@pytest.mark.parametrize("progress", [LineProgress(io.StringIO()), JsonProgress(io.StringIO()), QuietProgress()])
def test_a_fact_that_nobody_declared_is_a_fault_of_the_program(progress: Any) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        progress.event("round 1", "text", colour="red")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "rumour"}, {"schema_version": 2}, {"outcome": "won"}, {"at_s": "soon"}, {"surprise": 1},
        {"round": None},
    ],
)  # fmt: skip
def test_the_schema_refuses_what_is_no_event(change: dict[str, Any]) -> None:
    line = event_data(event_of("round 1", "accepted", {"outcome": "accepted"}, at_s=1.0))
    assert faults(line) == []
    assert faults({**line, **change}) != []


def test_every_event_of_a_scripted_search_satisfies_the_schema(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.prepare = lambda team: team.judge.judged.update({"r01a1": (WRONG_TOKENS,)})
    rig.when = {
        "before r1": lambda: [rig.ask("pause"), rig.ask("budget", attempts=9)], "asleep": rig.asking("resume"),
        "in r1a1": rig.asking("propose", proposal=DOCUMENT),
    }  # fmt: skip
    search = rig.start()
    lines = rig.team.progress.documents
    assert [fault for line in lines for fault in faults(line)] == []
    rounds = [line for line in lines if line["kind"] == "round"]
    ended = [line["outcome"] for line in rounds if "outcome" in line]
    assert ended == outcomes(search) and len(ended) == 4
    assert [line["forecast_ratio"] for line in rounds if "proposal" in line][1] == DOCUMENT["forecast_ratio"]
    assert all(line["ci_low"] <= line["ratio"] <= line["ci_high"] for line in rounds if "ratio" in line)
    told = [(line["command"], line["is_refused"]) for line in lines if line["kind"] == "control" and "number" in line]
    assert told == [("pause", False), ("budget", True), ("resume", False), ("propose", False)]


def test_the_last_line_is_the_result_or_the_error() -> None:
    summary = RunSummary(artifact="artifacts/x", latest="artifacts/x/latest", manifest=sample_manifest())
    line = json.loads(json.dumps(to_data(summary)))
    assert line["kind"] == "result" and faults(line) == []
    for error in (BudgetError("no time"), SpecError("wrong", problems=["a"], hint="mend it")):
        document = json.loads(json.dumps(error_document(error)))
        assert document["kind"] == "error" and faults(document) == []
    assert faults({**line, "kind": "error"}) != []


def stages_told() -> dict[str, str]:
    """Literal stage -> file, of every event and busy block of the package."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "vibeserve").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_told = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_told and node.func.attr in ("event", "busy") and len(node.args) >= 2:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found[first.value] = str(path.relative_to(ROOT))
    return found


def test_no_stage_of_a_build_is_only_a_note() -> None:
    told = stages_told()
    assert {"plan", "baselines", "certify", "audit", "control", "inbox", "lease", "measure"} <= set(told)
    notes = {stage for stage in told if event_data(event_of(stage, "", {}, at_s=0.0))["kind"] == "note"}
    assert notes == IN_WORDS, "give the stage a kind in progress/events.py"
