"""Profiles in the loop: who is profiled, what the journal keeps, what planners and the artifact get."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_contents
from loop_fakes import WRONG_TOKENS, Library, LibrarySeed, facts, make_team, small_spec, tried
from profile_samples import profile_sample

from vibeserve.agents import PlanningState
from vibeserve.agents.briefs import history_brief, profile_brief
from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.artifact import package
from vibeserve.core.documents import from_data, read_document
from vibeserve.core.nouns import Activation, ActivationState, Outcome, Proposal, Round
from vibeserve.journal import Journal
from vibeserve.planning import ItemState, scored, settled
from vibeserve.profiles import Bottleneck, Profile, Structure, spans_profile
from vibeserve.synthesis import Entry, Search, restore, synthesize

SEED = profile_sample(structure=Structure(functions=("runtime/linear.py:old",)))


def ran(*functions: str) -> Profile:
    return profile_sample(structure=Structure(functions=functions))


class WatchingPlanner(PlaybookPlanner):
    """Remembers the profile that every proposal was planned from."""

    def __init__(self) -> None:
        self.told: list[Profile | None] = []

    def propose(self, state: PlanningState) -> Proposal | None:
        self.told.append(state.profile)
        return super().propose(state)


class Rig:
    def __init__(self, root: Path) -> None:
        self.root, self.planner = root, WatchingPlanner()
        self.library = Library(root / "library")
        self.library.add("fast", seams=("linear",), relieves=["prefill"], expected_factor=5.0)
        code = "def packed(rows):\n    return [row.pack() for row in rows]\n"
        (self.library.skills_root / "fast/assets/linear.py").write_text(code)
        self.team: Any = make_team(self.library, root / "run", spec=small_spec(rounds=1, attempts=1))
        self.team.evaluator.profiles = {"r00a1": SEED, "r01a1": ran("runtime/linear.py:packed")}

    def search(self) -> Search:
        with Journal.open(self.root / "journal.jsonl") as journal:
            return synthesize(
                self.team, seed=LibrarySeed(self.library), planner=self.planner, facts=facts(), journal=journal,
                deadline_s=1e6, monotonic=lambda: 0.0,
            )  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_the_seed_and_what_is_accepted_are_profiled_and_planned_from(rig: Rig) -> None:
    search = rig.search()
    assert [entry.record.outcome for entry in search.entries] == [Outcome.BASELINE, Outcome.ACCEPTED]
    assert rig.team.evaluator.profiled_names == ["r00a1", "r01a1"]
    assert rig.planner.told == [SEED]
    assert search.incumbent is not None and search.incumbent.profile == ran("runtime/linear.py:packed")


def test_the_record_says_whether_the_new_path_was_seen(rig: Rig) -> None:
    activation = rig.search().entries[1].record.activation
    assert activation is not None and activation.state is ActivationState.SEEN, activation
    assert activation.seen == ("runtime/linear.py",), "the card's evidence names its modules"
    told = [text for stage, text in rig.team.progress.events if stage == "profile"]
    assert told == ["activation seen: seen in 398 samples of stacks and 53 of native code: runtime/linear.py"]


UNSEEN = (
    "nothing of what it changes was seen in 398 samples, which show whatever takes 0.8% of the time: "
    "runtime/linear.py:packed"
)


def lucky(rig: Rig, *, then: float) -> None:
    """The candidate's second comparison gives `then` times the speed of the parent; the first one its five times."""
    factors = iter([5.0, then])
    compare = rig.team.evaluator.compare

    def compared(entrants: Any, **more: Any) -> Any:
        if entrants[0].name == "r01a1":
            rig.team.clock.declare("r01a1", factor=next(factors))
        return compare(entrants, **more)

    rig.team.evaluator.compare = compared


def test_a_gain_without_its_path_is_refused_where_the_path_off_is_as_fast(rig: Rig) -> None:
    rig.team.evaluator.profiles["r01a1"] = ran("runtime/model.py:forward")
    lucky(rig, then=1.0)
    search = rig.search()
    record, kept = search.entries[1].record, search.entries[1].kept
    assert (record.outcome, record.is_refused, record.is_unactivated) == (Outcome.REJECTED, False, True)
    assert record.reason.startswith(f"not activated: {UNSEEN}; beside the path off, measured again: ")
    assert search.incumbent is not None and search.incumbent.candidate.candidate_id == "r00a1"
    assert kept is not None and search.tree.nodes["r01a1"].log_gain == pytest.approx(0.0, abs=0.05)
    assert scored(record) is None, "a path that did not run tests no forecast"
    assert settled(record)[0] is ItemState.PARKED, "nothing was falsified"
    assert rig.team.evaluator.compared[-2:] == [("r01a1", "r00a1")] * 2
    windows = search.entries[1].measurements
    assert set(windows) == {"r01a1", "r00a1", "r01a1-before-path-off", "r00a1-before-path-off"}
    assert len(windows["r01a1"]["windows"]) == 2 * len(windows["r01a1-before-path-off"]["windows"])
    assert all(server.num_stops > 0 for server in rig.team.bench.servers)


def test_a_gain_that_is_there_again_beside_the_path_off_is_kept_and_not_credited(rig: Rig) -> None:
    rig.team.evaluator.profiles["r01a1"] = ran("runtime/model.py:forward")
    lucky(rig, then=4.0)
    record = rig.search().entries[1].record
    assert (record.outcome, record.is_unactivated) == (Outcome.ACCEPTED, True)
    assert record.decision is not None and record.decision.headline is not None
    assert record.decision.headline.ratio == pytest.approx(4.0, rel=0.05), "the first one was chosen for being high"
    assert record.reason.endswith("; again beside the path off, but nothing of what it changes was seen to run")
    assert scored(record) is None and settled(record)[0] is ItemState.DONE
    assert f"(its mechanism is not shown: {UNSEEN[:60]}" in history_brief([record])[-1]


def test_a_path_that_is_seen_at_the_second_look_is_as_any_other(rig: Rig) -> None:
    looks = iter([ran("runtime/model.py:forward"), ran("runtime/linear.py:packed")])
    seen_now = rig.team.evaluator.profiled
    rig.team.evaluator.profiled = lambda row, entrant, **more: (
        replace(row, profile=next(looks)) if entrant.name == "r01a1" else seen_now(row, entrant, **more)
    )
    record = rig.search().entries[1].record
    assert (record.outcome, record.is_unactivated) == (Outcome.ACCEPTED, False)
    assert "path off" not in record.reason and scored(record) is not None


@pytest.mark.parametrize("change", [{"is_timed": False, "bottlenecks": ()}, {"num_samples": 60}])
def test_a_profile_that_cannot_tell_withholds_nothing(rig: Rig, change: dict[str, Any]) -> None:
    rig.team.evaluator.profiles["r01a1"] = replace(ran("runtime/model.py:forward"), **change)
    record = rig.search().entries[1].record
    assert record.outcome is Outcome.ACCEPTED and rig.team.evaluator.compared.count(("r01a1", "r00a1")) == 1
    assert record.activation is not None and record.activation.state is ActivationState.NOT_SEEN
    assert "(activation not seen: not seen in " in history_brief([record])[-1]


def test_without_time_for_the_path_off_the_measurement_stands_and_is_not_credited(rig: Rig) -> None:
    rig.team.evaluator.profiles["r01a1"] = ran("runtime/model.py:forward")
    rig.team.search_left_s = lambda: 0.0
    record = rig.search().entries[1].record
    assert (record.outcome, record.is_unactivated) == (Outcome.ACCEPTED, True)
    assert record.activation is not None and record.activation.text.endswith(
        "; no time is left for an A/B with the path off, so the measurement stands by itself"
    )
    assert scored(record) is None


def test_what_was_measured_beside_the_path_off_is_not_measured_again_after_a_kill(rig: Rig) -> None:
    class Killed(BaseException):
        pass

    rig.team.evaluator.profiles["r01a1"] = ran("runtime/model.py:forward")
    lucky(rig, then=4.0)

    def killed(given: Any) -> Any:
        raise Killed

    rig.team.reviewer.review, review = killed, rig.team.reviewer.review
    with pytest.raises(Killed):
        rig.search()
    num_compared = len(rig.team.evaluator.compared)
    rig.team.reviewer.review = review
    record = rig.search().entries[1].record
    assert (record.outcome, record.is_unactivated) == (Outcome.ACCEPTED, True)
    assert len(rig.team.evaluator.compared) == num_compared


def test_what_is_not_accepted_is_not_profiled(rig: Rig) -> None:
    rig.team.evaluator.scaled = {"r01a1": {"output_throughput": 0.1}}
    search = rig.search()
    assert search.entries[1].record.outcome is Outcome.REJECTED
    assert rig.team.evaluator.profiled_names == ["r00a1"]
    assert search.entries[1].record.activation is None


def test_a_profile_of_what_a_gate_refuses_afterwards_is_dropped(rig: Rig) -> None:
    rig.team.judge.judged["r01a1"] = (WRONG_TOKENS,)
    search = rig.search()
    assert search.entries[1].record.is_refused and search.entries[1].checkpoint is None
    assert search.incumbent is not None and search.incumbent.profile == SEED


def test_without_a_profile_there_is_no_statement(rig: Rig) -> None:
    rig.team.evaluator.profiles = {}
    search = rig.search()
    assert search.entries[1].record.outcome is Outcome.ACCEPTED
    assert search.entries[1].record.activation is None and rig.planner.told == [None]


def test_the_journal_keeps_both_over_a_restart(rig: Rig) -> None:
    rig.search()
    with Journal.open(rig.root / "journal.jsonl") as journal:
        again = restore(rig.team, journal)
    assert again.incumbent is not None and again.incumbent.profile == ran("runtime/linear.py:packed")
    assert again.entries[1].record.activation is not None


def test_an_entry_from_before_there_were_profiles_is_read(rig: Rig) -> None:
    rig.search()
    with Journal.open(rig.root / "journal.jsonl") as journal:
        data = [event.data for event in journal.events("round")][1]
    del data["record"]["activation"], data["checkpoint"]["profile"]
    entry = from_data(Entry, data)
    assert entry.record.activation is None and entry.checkpoint is not None and entry.checkpoint.profile is None


def test_a_seen_path_needs_no_words_in_the_history(rig: Rig) -> None:
    record = rig.search().entries[1].record
    assert "activation" not in history_brief([record])[-1]


def test_the_artifact_has_the_profile_of_every_round_that_has_one(tmp_path: Path) -> None:
    contents = sample_contents(tmp_path)
    activation = Activation(state=ActivationState.SEEN, text="seen", seen=("f",))
    rounds = list(contents.rounds)
    rounds[1] = replace(rounds[1], profile=profile_sample(), entry=replace(rounds[1].entry, activation=activation))
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append("round", {"number": 0})
        packaged = package(replace(contents, rounds=tuple(rounds)), out_dir=tmp_path / "artifacts", journal=journal)
    root = packaged.path
    assert read_document(root / "rounds/0001/profile.json", Profile) == profile_sample()
    assert not (root / "rounds/0002/profile.json").exists()
    entry = json.loads((root / "rounds/0001/entry.json").read_text())
    assert entry["activation"]["state"] == "seen"


def test_names_in_a_profile_are_data_in_a_prompt_and_counters_are_no_profile() -> None:
    lines = profile_brief(profile_sample(is_long=True), max_rows=5)
    assert lines[0].startswith("| stacks, 398 samples") and all(line.startswith("| ") for line in lines)
    assert sum(map(len, lines)) < 900
    assert profile_brief(spans_profile({"http": 1.0}, load="c4", notes=["py-spy: not installed"]), max_rows=5) == []
    assert profile_brief(None, max_rows=5) == []


# -- the playbook plans from it


def two_cards(library: Library) -> None:
    library.add("sampling", seams=("sampler",), relieves=["sampling"], expected_factor=10.0)
    library.add("linears", seams=("linear",), relieves=["decode.linear"], expected_factor=10.0)


def next_card(library: Library, *, profile: Profile | None, records: Sequence[Round] = ()) -> Proposal:
    spans = {"decode.linear": 0.8, "sampling": 0.2}
    proposal = PlaybookPlanner().propose(library.state(spans=spans, profile=profile, records=records))
    assert proposal is not None
    return proposal


def test_the_playbook_believes_the_profiler_and_not_the_counters(tmp_path: Path) -> None:
    library = Library(tmp_path)
    two_cards(library)
    seen = profile_sample(
        bottlenecks=(
            Bottleneck(name="sampler", share=0.7, thread="engine"),
            Bottleneck(name="linear", share=0.3, thread="engine"),
        )
    )  # fmt: skip
    assert next_card(library, profile=None).card == "linears"
    chosen = next_card(library, profile=seen)
    assert (chosen.card, chosen.forecast_ratio) == ("sampling", pytest.approx(1 / (1 - 0.7 + 0.07), abs=1e-3))
    assert "70% of the requests' wall time" in chosen.hypothesis
    assert next_card(library, profile=replace(seen, is_timed=False)).card == "linears"
    again = next_card(library, profile=seen, records=[tried(chosen), tried(chosen)])
    assert again.card == "linears", "the next largest comes then"
