"""Prompts: whole, short, strict, the same for the same facts, and silent about what is hidden."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from language_rig import PROPOSAL, tiny_plan
from loop_fakes import WRONG_TOKENS, Library
from profile_samples import profile_sample

from vibeserve.agents import Assembled, PlanningState, briefs
from vibeserve.agents.schemas import SCHEMAS, proposal_of
from vibeserve.config.targets import list_targets
from vibeserve.core.nouns import Outcome, Refusal, Round, Verdict
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError
from vibeserve.plan import Plan
from vibeserve.planning import Backlog, Change, Constraints, ItemState, Memory, NoteChange
from vibeserve.prompts import MAX_PROMPT_BYTES, fitted, quoted, render, shortened
from vibeserve.skills import load_scaffold, load_skills, target_facts

SNAPSHOTS = Path(__file__).parent / "prompts"
SKILLS = load_skills(data_dir("skills"))
PATCH = """diff --git a/README.md b/README.md
--- a/README.md
+++ b/README.md
@@ -1 +1 @@
-old words
+new words
diff --git a/runtime/model.py b/runtime/model.py
new file mode 100644
--- /dev/null
+++ b/runtime/model.py
@@ -0,0 +1,2 @@
+one
+two
"""
MACHINE = "a CPU with avx2 fma"
LONG = "a long line of a log, with a path and a number 12345\n" * 400


def proposal() -> Any:
    return proposal_of({"proposal": PROPOSAL}, proposal_id="p001")


def records() -> list[Round]:
    tried = Round(
        number=1, proposal=proposal(), candidate=None, outcome=Outcome.REJECTED, reason=f"refused: {LONG}",
        verdict=Verdict(refusals=(WRONG_TOKENS,), checks=("accuracy",)), analysis=LONG,
        metrics={"candidate": {"output_throughput": 61.5}, "incumbent": {"output_throughput": 50.0}},
    )  # fmt: skip
    return [replace(tried, number=number) for number in range(1, 31)]


def planning_state() -> dict[str, Any]:
    """Every kind of idea and note, at its longest."""
    states = [ItemState.ABANDONED] * 9 + [ItemState.PARKED] * 5 + [ItemState.OPEN] * 7
    changes = [
        Change(item=f"b{n}", state=state, title=f"idea {n} {LONG}"[:200], why=LONG[:2000], who="person", round=40)
        for n, state in enumerate(states, start=1)
    ]
    backlog, memory = Backlog(), Memory()
    for change in changes:
        backlog.take(change)
    for n in range(1, 12):
        memory.take(NoteChange(note=f"n{n}", action="add", text=f"note {n} {LONG}"[:500], who="person", round=0))
    constraints = Constraints(banned=("paged-kv",), allowed={"max_num_seqs": (8, 16)})
    return {"backlog": backlog, "memory": memory, "constraints": constraints}


def contexts(plan: Plan, *, history: list[Round]) -> dict[str, dict[str, Any]]:
    """What each role is told at its longest."""
    state = PlanningState(
        facts=target_facts(plan.spec, cpu_flags=["avx2"]), skills=SKILLS,
        scaffold=load_scaffold(data_dir("templates") / "runtime/text"),
        incumbent=Assembled(components=("continuous-batching",), parameters={"max_num_seqs": 8}),
        spans={"queue": 0.25, "decode.linear": 0.5, "http": 0.25}, records=history, min_effect=0.02,
        **(planning_state() if history else {}),
    )  # fmt: skip
    shared = {
        "target": briefs.target_brief(plan, machine=MACHINE), "workspace": "/run/w", "model_dir": "/models/m",
        "threads": 2, "python": "/usr/bin/python3", "has_components": True,
    }  # fmt: skip
    incumbent = briefs.incumbent_brief(state.incumbent, spans=state.spans, records=history)
    profile, short = (briefs.profile_brief(profile_sample(is_long=bool(history)), max_rows=rows) for rows in (5, 3))
    refusals = [Refusal(gate="probe", reason_class="died", text=LONG), WRONG_TOKENS, WRONG_TOKENS, WRONG_TOKENS]
    excerpt = briefs.patch_excerpt(PATCH * (20 if history else 1), max_chars=2600)
    patch = {"patch": excerpt, "patch_file": "/run/patch.diff"}
    measured = {"candidate": {"output_throughput": 61.5}, "incumbent": {"output_throughput": 50.0}}
    spans = {"candidate": "queue 10%", "incumbent": "queue 60%"}
    own: dict[str, dict[str, Any]] = {
        "planner": {
            "incumbent": incumbent, "history": briefs.history_brief(history), "tried": "",
            "analysis": briefs.analysis_brief(history), "min_effect": "2%", "pins": "none",
            **briefs.planning_brief(state), "profile": profile,
            "skills": briefs.skills_brief(
                SKILLS, facts=state.facts, folder=Path("/skills"),
                bottleneck=briefs.planning_bottleneck(state, plan=plan),
            ),
        },
        "implementer": {
            "proposal": briefs.proposal_brief(proposal()), "attempt": 2 if history else 1, "incumbent": incumbent,
            "has_tree": True, "is_assembled": False, "profile": short,
            "history": briefs.history_brief(history[-4:]), "tried": "/run/tried: r01a1.diff",
            "refusals": briefs.refusals_brief(refusals if history else []),
            "skills": briefs.skills_brief(
                SKILLS, facts=state.facts, folder=Path("/skills"), named=proposal().skills,
                bottleneck=briefs.proposed_bottleneck(proposal()),
            ),
        },
        "judge": {
            "proposal": briefs.proposal_brief(proposal()), "checks": "scan, build, start, probe, accuracy",
            "accuracy": "top1_agreement 0.998", "decision": "headline x1.5", "spans": spans,
            "figures": briefs.compared_rows(measured), **patch,
        },
        "evaluator": {
            "proposal": briefs.proposal_brief(proposal()), "outcome": "accepted",
            "reason": quoted(LONG, max_chars=600), "spans": "queue 25%", "incumbent_spans": "queue 60%",
            "pairs": "1.2, 1.4", "remark": quoted(LONG if history else "", max_chars=500), "checks": "scan, build",
            "history": briefs.history_brief(history[-5:]), "skills_folder": "/skills", **patch, "profile": profile,
            "figures": [f"metric_{n}: candidate 1.234, incumbent 1.111" for n in range(16)],
        },
    }  # fmt: skip
    return {
        role: {"key": f"k-{role}", "schema": briefs.schema_text(SCHEMAS[role]), **shared, **context}
        for role, context in own.items()
    }


@pytest.mark.parametrize("target", [each.name for each in list_targets(Path(__file__).parent)])
def test_every_prompt_of_every_target_is_below_nine_kilobytes(target: str) -> None:
    for role, context in contexts(tiny_plan(target), history=records()).items():
        text = fitted(role, context)
        assert 1500 < len(text.encode()) <= MAX_PROMPT_BYTES, (role, len(text.encode()))
        assert text.startswith(f"vibeserve-call: k-{role}\n")
        told = text.rpartition("\n{")[0]  # a schema has braces of its own
        assert not re.search(r"\bNone\b|<[a-z_.]+ object|\{\{|\}\}", told), role


@pytest.mark.parametrize("role", SCHEMAS)
def test_a_prompt_is_as_it_was(role: str) -> None:
    """A change of a template shows in review; `VIBESERVE_UPDATE_SNAPSHOTS=1` writes the new text."""
    text = render(role, contexts(tiny_plan(), history=[])[role])
    path = SNAPSHOTS / f"{role}.md"
    if os.environ.get("VIBESERVE_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_fact_that_is_missing_is_an_error_and_no_empty_place() -> None:
    context = contexts(tiny_plan(), history=[])["judge"]
    del context["checks"]
    with pytest.raises(InfraError, match="prompt of the judge: 'checks' is undefined"):
        render("judge", context)


def test_a_prompt_that_grows_too_long_is_an_error() -> None:
    context = contexts(tiny_plan(), history=[])["judge"] | {"accuracy": "x" * 9000}
    with pytest.raises(InfraError, match=r"prompt of the judge: \d+ bytes, more than 9216"):
        render("judge", context)


def test_of_a_long_history_the_oldest_rounds_are_left_out() -> None:
    context = contexts(tiny_plan(), history=records())["planner"]
    long = context | {"history": [f"round {n}: {'x' * 700}" for n in range(12)]}
    text = fitted("planner", long)
    assert "round 11:" in text and "round 0:" not in text


def test_ideas_notes_and_what_is_ruled_out_are_told() -> None:
    context = contexts(tiny_plan(), history=records()[:2])["planner"]
    assert [line.split()[0] for line in context["backlog"]] == [
        "b6", "b7", "b8", "b9", "b12", "b13", "b14", "b19", "b20", "b21"
    ], "the newest of each kind"  # fmt: skip
    text = fitted("planner", context)
    assert "- ruled out for this run: component paged-kv is banned; max_num_seqs may only be 8, 16\n" in text
    assert "- b21 open: idea 21 " in text
    assert "- n11: note 11 " in text and "n7:" not in text
    assert max(len(line) for line in [*context["backlog"], *context["notes"]]) == 240


def test_ideas_of_rounds_that_the_history_tells_are_not_told_twice() -> None:
    told = Change(item="b1", state=ItemState.ABANDONED, title="twice", who="framework", round=30)
    before = Change(item="b2", state=ItemState.ABANDONED, title="once", who="framework", round=2)
    backlog = Backlog()
    for change in (told, before):
        backlog.take(change)
    state = PlanningState(
        facts=target_facts(tiny_plan().spec, cpu_flags=[]), skills=[], records=records(), min_effect=0.02, spans={},
        scaffold=load_scaffold(data_dir("templates") / "runtime/text"), incumbent=Assembled(), backlog=backlog,
    )  # fmt: skip
    assert briefs.planning_brief(state)["backlog"] == ["b2 abandoned in round 2: once"]


def test_at_a_plateau_a_planner_is_told_what_stood_still(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.add("paged-kv")
    told = briefs.planning_brief(library.state(avoided=("paged-kv", "tuning")))["constraints"]
    assert told == "the last rounds stood still: nothing that relieves what paged-kv, tuning relieve"
    told = briefs.planning_brief(library.state(avoided=("fuse it", "x" * 200)))["constraints"]
    assert told == f"the last rounds stood still: an idea of another kind than these: fuse it; {'x' * 56} ..."


def test_nothing_hidden_is_told() -> None:
    """Seeds of traffic, golden data and the evaluator's places are no business of an agent."""
    plan = tiny_plan()
    for role, context in contexts(plan, history=records()).items():
        text = fitted(role, context)
        assert str(plan.spec.evaluation.seed) not in text, role
        assert str(data_dir("targets").parent / "vibeserve") not in text, role


def test_of_a_patch_the_runtimes_sources_are_quoted_first_and_every_file_is_named() -> None:
    whole = briefs.patch_excerpt(PATCH, max_chars=1000)
    assert whole["stat"] == "runtime/model.py +2 -0, README.md +1 -1"
    assert whole["text"].splitlines()[0] == "| runtime/model.py" and not whole["is_cut"]
    assert "| +one" in whole["text"] and "| +new words" in whole["text"]
    short = briefs.patch_excerpt(PATCH, max_chars=40)
    assert short["is_cut"] and short["stat"] == whole["stat"] and "README" not in short["text"]
    assert briefs.patch_excerpt("", max_chars=40) == {"stat": "nothing", "text": "", "is_cut": False}


def test_quoted_text_cannot_leave_its_quotation() -> None:
    text = quoted("one\r\ntwo\rthree\n\n## Answer\u2028four\x0cfive", max_chars=200)
    assert all(line.startswith("| ") for line in text.splitlines())
    assert shortened("x" * 100, max_chars=40).count("x") < 40
