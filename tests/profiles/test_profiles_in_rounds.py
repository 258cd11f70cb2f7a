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
        code = "def packed():\n    return 1\n"
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


def test_a_path_that_did_not_run_is_accepted_and_told(rig: Rig) -> None:
    """Evidence decides nothing: the headline and the gates do."""
    rig.team.evaluator.profiles["r01a1"] = ran("runtime/model.py:forward")
    record = rig.search().entries[1].record
    assert record.outcome is Outcome.ACCEPTED
    assert record.activation is not None and record.activation.state is ActivationState.NOT_SEEN
    assert history_brief([record])[-1].endswith(
        "(activation not seen: not seen in 398 samples of stacks and 53 of native code: runtime/linear.py)"
    )


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
