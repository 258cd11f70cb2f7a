"""Backlog, abandoned ideas and forecasts in a whole search over scripted roles and a real journal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS, small_spec
from steering_rig import Killed, Rig, Scripted, cards, outcomes
from test_planning_views import proposal

from vibeserve.agents.random_choice import RandomPlanner
from vibeserve.core.nouns import Outcome, Refusal
from vibeserve.errors import AgentCapError, InfraError
from vibeserve.journal import Journal

IDEA = proposal("fuse the projections", components=("first",), parameters={}, forecast_ratio=3.0)
WORDS = proposal("pack the weights once", mechanism="the matrices are packed when the model is loaded")


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def refuse(*names: str, gate: str = "") -> Any:
    refusal = Refusal(gate=gate, reason_class="x", text="no") if gate else WRONG_TOKENS

    def prepare(team: Any) -> None:
        team.judge.judged = dict.fromkeys(names, (refusal,))

    return prepare


def test_every_round_has_its_item_and_every_change_its_event(rig: Rig) -> None:
    def prepare(team: Any) -> None:
        refuse("r01a1", "r01a2")(team)
        team.evaluator.failures["r02a1"] = InfraError("no memory left")

    rig.prepare = prepare
    search = rig.start()
    assert outcomes(search) == ["baseline", "rejected", "infra", "accepted"]
    assert rig.items() == {"adopt first": "parked", "adopt second": "done"}
    changes = [
        (event.data["item"], event.data["state"], event.data["who"], event.data["round"])
        for event in rig.events()
        if event.kind == "backlog"
    ]
    assert changes == [
        ("b1", "in_progress", "planner", 1), ("b1", "parked", "framework", 1),
        ("b2", "in_progress", "planner", 2), ("b2", "open", "framework", 2),
        ("b2", "in_progress", "planner", 3), ("b2", "done", "framework", 3),
    ]  # fmt: skip
    (both,) = [item for item in rig.backlog().of() if item.title == "adopt first"]
    assert len(both.last.keys) == 2, "the revised attempt's assembly was tried, too"


@pytest.mark.parametrize(("gate", "state"), [("accuracy", "parked"), ("scan", "abandoned")])
def test_a_refusal_parks_or_abandons_by_its_gate(rig: Rig, gate: str, state: str) -> None:
    rig.spec.budget.rounds = 1
    rig.prepare = refuse("r01a1", "r01a2", gate=gate)
    rig.start()
    assert rig.items() == {"adopt first": state}


def test_what_is_measured_and_not_better_is_abandoned_with_its_mechanism(rig: Rig) -> None:
    rig.spec.budget.rounds = 1
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.25}})
    rig.start()
    (item,) = rig.backlog().of()
    assert item.state.value == "abandoned" and item.last.mechanism == "What first is for."
    assert item.last.why.startswith("measured: ")


def test_an_abandoned_idea_is_a_round_without_a_candidate_until_it_says_what_changed(rig: Rig) -> None:
    changed = replace(IDEA, what_changed="the block is read once for all rows")
    rig.planner = Scripted([IDEA, replace(IDEA, title="in other words"), changed])
    rig.spec.search.patience = 9
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.1}})
    search = rig.start()
    assert outcomes(search) == ["baseline", "rejected", "rejected", "accepted"]
    repeated = search.entries[2].record
    assert repeated.candidate is None and repeated.attempts == 0 and repeated.verdict is not None
    assert [reason.feedback.partition(",")[0] for reason in repeated.verdict.refusals] == [
        "planning/already_abandoned: it is like b1 'fuse the projections'"
    ]
    assert repeated.verdict.checks == ("planning",)
    assert rig.team.evaluator.compared[1:] == [("r01a1", "r00a1"), ("r03a1", "r00a1")], "nothing was measured for it"
    assert [(item.id, item.state.value) for item in rig.backlog().of()] == [("b1", "abandoned"), ("b2", "done")]


def test_repetitions_end_at_the_plateau(rig: Rig) -> None:
    rig.planner = Scripted([IDEA] * 9)
    rig.spec.budget.rounds = 9
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.1}})
    assert outcomes(rig.start()) == ["baseline", "rejected", "rejected", "rejected", "rejected"]
    assert rig.told("synthesize")[-1] == "plateau: 2 rounds in a row without a gain, 1 pivot included"


@pytest.mark.parametrize("planner", ["playbook", "random"])
@pytest.mark.parametrize("bad", list(itertools.product([False, True], repeat=3)))
def test_planners_without_a_model_never_repeat_what_was_given_up(
    tmp_path: Path, bad: tuple[bool, ...], planner: str
) -> None:
    """Whatever fails, and with every idea of an earlier search given up by a person."""
    rig = Rig(tmp_path, spec=small_spec(rounds=12, attempts=2))
    rig.spec.search.patience = 99
    rig.planner = RandomPlanner(3) if planner == "random" else rig.planner
    slow = {f"r{n + 1:02d}a1": {"output_throughput": 0.01} for n, is_bad in enumerate(bad) if is_bad}
    rig.prepare = lambda team: team.evaluator.scaled.update(slow)
    rig.when = {
        f"before r{n}": rig.asking("backlog", action="abandon", item=f"b{n - 1}", why="no use") for n in range(2, 13)
    }
    search = rig.start()
    refused = [
        reason.reason_class
        for entry in search.entries
        if entry.record.verdict is not None
        for reason in entry.record.verdict.refusals
    ]
    assert refused == [] and len(search.entries) > 3


def test_an_idea_that_a_person_gave_up_is_not_proposed_by_the_playbook(rig: Rig) -> None:
    def prepare(team: Any) -> None:
        team.evaluator.failures["r01a1"] = InfraError("no memory left")
        team.evaluator.scaled["r02a1"] = {"output_throughput": 0.1}

    rig.prepare = prepare
    rig.spec.budget.rounds = 4
    rig.when["before r2"] = rig.asking("backlog", action="abandon", item="b1", why="not by itself")
    search = rig.start()
    assert cards(search) == ["first", "second", "third", "first"]
    assert outcomes(search) == ["baseline", "infra", "rejected", "accepted", "accepted"]
    last = search.entries[-1].record.proposal
    assert last is not None and last.components == ("first", "third"), "on top of another one it is another assembly"


# -- kills


def kill_at_append(rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str, number: int, *, is_before: bool) -> None:
    """The process ends right before, or right after, the `number`-th event of `kind` is appended."""
    original, seen = Journal.append, itertools.count(1)

    def append(self: Journal, name: str, data: Any = None, *, durable: bool = True) -> int:
        is_it = name == kind and next(seen) == number
        if is_it and is_before:
            raise Killed
        seq = original(self, name, data, durable=durable)
        if is_it:
            raise Killed
        return seq

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", append)
        with pytest.raises(Killed):
            rig.start()


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_kill_at_any_change_of_the_backlog_leaves_the_same_search_and_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_before: bool
) -> None:
    whole, cut = Rig(tmp_path / "whole"), Rig(tmp_path / "cut")
    expected = whole.start()
    kill_at_append(cut, monkeypatch, "backlog", number, is_before=is_before)
    search = cut.start()
    assert [(entry.record.proposal, entry.record.outcome) for entry in search.entries] == [
        (entry.record.proposal, entry.record.outcome) for entry in expected.entries
    ]
    assert cut.items() == whole.items() == {"adopt first": "done", "adopt second": "done", "adopt third": "done"}
    assert [item.num_changes for item in cut.backlog().of()] == [2, 2, 2], "no change is journalled twice"


def test_an_idea_whose_round_was_cut_short_by_a_cap_is_open_again(rig: Rig) -> None:
    class Capped:
        origin = ""

        def implement(self, *_: Any) -> None:
            raise AgentCapError("the run's cap of 5 tokens is reached (7)", scope="run")

    rig.prepare = lambda team: setattr(team, "implementer", Capped())
    assert outcomes(rig.start()) == ["baseline"]
    assert rig.items() == {"adopt first": "open"}


def test_forecasts_are_scored_as_rounds_end(rig: Rig) -> None:
    rig.planner = Scripted([IDEA])
    rig.start()
    (line,) = [text for text in rig.told("round 1") if text.startswith("forecast")]
    assert line.startswith("forecast x3, measured x4") and line.endswith(" of it")


def test_the_planner_is_given_ideas_and_notes(rig: Rig) -> None:
    rig.planner = Scripted([IDEA, WORDS])
    rig.when["before r2"] = rig.asking("note", action="add", text="two cores only")
    rig.start()
    state = rig.planner.states[-1]
    assert [note.text for note in state.memory.notes.values()] == ["two cores only"]
    assert {item.title for item in state.backlog.of()} == {"fuse the projections", "pack the weights once"}
    assert Outcome.ACCEPTED in [entry.outcome for entry in state.records]
