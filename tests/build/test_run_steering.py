"""Steering in a run as the command opens it: its agents, its clock, its steps and its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vibeserve.agents.language import LanguagePlanner
from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.build.graph import StepResult
from vibeserve.build.runs import Run
from vibeserve.build.steps import Bodies, make_steps
from vibeserve.build.target import describe
from vibeserve.config import compose_spec
from vibeserve.control import CONTROL, Phase, Site, submit
from vibeserve.core.manifest import Calibration, Intervention, ScoredForecast
from vibeserve.core.paths import data_dir
from vibeserve.hardware import probe
from vibeserve.journal import Journal
from vibeserve.lease import FreeLease
from vibeserve.plan import compile_plan
from vibeserve.progress import QuietProgress


@pytest.fixture
def run(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    spec = compose_spec(["+target=tiny_cpu", "sandbox=none"], cwd=data_dir("targets").parent)
    model: Any = SimpleNamespace(path=tiny_model_dir, digest="d" * 64)
    monkeypatch.setattr(Run, "model", lambda self: model)
    plan = compile_plan(spec, facts=probe())
    with Journal.open(tmp_path / ".vibeserve" / "runs" / f"tiny_cpu-{plan.plan_id}" / "journal.jsonl") as journal:
        journal.append("round", {"record": {"seconds": 100.0}})
        lease = FreeLease()
        yield Run(
            plan=plan, facts=probe(), project=tmp_path, progress=QuietProgress(), journal=journal, lease=lease,
            started_s=lease.monotonic(), search_until_s=lease.monotonic() + 60.0,
        )  # fmt: skip


def ask(run: Run, command: str, **arguments: Any) -> None:
    submit(run.folder / CONTROL, command=command, arguments=arguments, who="person ada")


def looked_at(run: Run, *, is_ended: bool = False) -> list[str]:
    """What became of the requests."""
    team, _ = run.team()
    state: Any = SimpleNamespace(pins={})
    phase = Phase.CERTIFICATION if is_ended else Phase.PROPOSAL
    site = Site(phase=phase, round=0, state=None if is_ended else state, is_assembling=not team.implementer.origin)
    run.steering.steered = lambda state: state  # type: ignore[method-assign]
    run.steering.safe_point(site)
    return [event.data["refused"] or event.data["effect"] for event in run.journal.events("control")]


def test_another_back_end_holds_in_this_process_and_in_the_next(run: Run) -> None:
    assert isinstance(run.team()[1], PlaybookPlanner)
    ask(run, "backend", roles={"planner": {"backend": "external"}})
    assert looked_at(run) == ["planner playbook -> external, from the next call on"]
    assert run.steering.agents is not None and isinstance(run.steering.agents.planner, LanguagePlanner)
    next_process = replace(run)
    assert isinstance(next_process.team()[1], LanguagePlanner)
    assert run.plan.spec.agents.planner.backend == "", "the plan is what it was"


def test_a_client_without_its_template_is_refused_where_it_is_asked_for(run: Run) -> None:
    ask(run, "backend", roles={"planner": {"backend": "command"}})
    (answer,) = looked_at(run)
    assert "agents.command" in answer and run.steering.agents is None


def test_the_wall_time_is_that_of_the_whole_run(run: Run) -> None:
    before_s = run.search_left_s()
    ask(run, "budget", wall_s=50.0)
    ask(run, "budget", wall_s=run.plan.spec.budget.wall_s + 600.0)
    refused, applied = looked_at(run)
    assert refused.startswith("wall_s=50 is below what is spent, 10"), "an earlier process took 100 s"
    assert applied.startswith("wall_s ")
    assert run.search_left_s() - before_s == pytest.approx(600.0, abs=5.0)


def test_more_tokens_reach_the_ledger(run: Run) -> None:
    ask(run, "backend", roles={"planner": {"backend": "openai", "model": "m"}})
    ask(run, "budget", tokens=123)
    looked_at(run)
    agents: Any = run.steering.agents
    assert agents is not None and agents.planner.caller.ledger.run_cap.tokens == 123


def test_steps_look_at_requests_before_they_certify_and_package(run: Run) -> None:
    Bodies(run)._safe_point()
    ask(run, "note", action="add", text="for next time")
    ask(run, "stop")
    Bodies(run)._safe_point()
    assert looked_at(run, is_ended=True) == ["n1 is kept", "the search has ended: its winner is being certified"]
    assert [event.data["phase"] for event in run.journal.events("control")] == ["certification"] * 2


def test_a_pause_holds_before_a_step_that_comes_ahead_of_the_search(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    done: list[str] = []
    for name in ("weights", "reference", "baselines"):
        monkeypatch.setattr(Bodies, name, lambda self, context: done.append(context.name) or StepResult(document={}))
    monkeypatch.setattr(run.steering, "_sleep", lambda seconds: (done.append("asleep"), ask(run, "resume")))
    steps = {step.name: step for step in make_steps(run)}
    ask(run, "budget", rounds=9)
    for name in ("weights", "reference", "baselines"):
        context: Any = SimpleNamespace(name=name)
        if name == "reference":
            ask(run, "pause")
        steps[name].body(context)
    assert done == ["weights", "asleep", "reference", "baselines"]
    told = [(event.data["command"], event.data["phase"]) for event in run.journal.events("control")]
    assert told == [("pause", "build"), ("resume", "build")], "a budget speaks of the search, and waits for it"


def test_a_summary_says_how_good_forecasts_were_and_that_people_stepped_in() -> None:
    from artifact_samples import sample_manifest

    row = ScoredForecast(
        round=1, forecast=2.0, measured=1.5, ci_low=1.4, ci_high=1.6, log_error=-0.288, is_inside=False
    )  # fmt: skip
    asked = Intervention(
        number=1, command="stop", text="stop", who="person ada", at="2026-11-30T08:00:00+00:00", round=1,
        state="applied", effect="no further round",
    )  # fmt: skip
    lines = describe(
        sample_manifest(
            calibration=Calibration(forecasts=(row,), judgement="too few"),
            interventions=(asked, replace(asked, number=2, command="resume", state="refused")),
        )
    )
    assert "forecasts   1 measured, too few to judge forecasts by (from 5 on)" in lines
    assert "steered     stop 1; 1 refused" in lines
