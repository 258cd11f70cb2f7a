"""The outer loop over scripted roles and a real journal: what ends it, what it keeps, how it goes on after a kill."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, WRONG_TOKENS, Library, LibrarySeed, facts, make_team, small_spec

from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.core.documents import canonical_json, from_data, to_data
from vibeserve.core.nouns import Outcome, Refusal, Round
from vibeserve.errors import InfraError, RefusedError, ServerError
from vibeserve.journal import Journal
from vibeserve.rounds import Team
from vibeserve.spec import Spec
from vibeserve.synthesis import Entry, Search, restore, synthesize

CARDS = {"first": "linear", "second": "attention", "third": "scheduler", "fourth": "sampler"}
FACTORS = {"first": 5.0, "second": 4.0, "third": 3.0, "fourth": 2.0}


class Rig:
    """One run's folder; `start` is what a command does: open the journal, make a team, search."""

    def __init__(self, root: Path, spec: Spec, **card: Any) -> None:
        self.root = root
        self.spec = spec
        self.library = Library(root / "library")
        for name, seam in CARDS.items():
            self.library.add(name, seams=(seam,), relieves=["prefill"], expected_factor=FACTORS[name], **card)
        self.team: Any = None
        self.deadline_s = 1e6

    def start(self, prepare: Callable[[Any], None] = lambda team: None) -> Search:
        self.team = make_team(self.library, self.root / "run", spec=self.spec)
        prepare(self.team)
        with Journal.open(self.root / "journal.jsonl") as journal:
            return synthesize(
                self.team, seed=LibrarySeed(self.library), planner=PlaybookPlanner(), facts=facts(), journal=journal,
                deadline_s=self.deadline_s, monotonic=lambda: 0.0,
            )  # fmt: skip

    def told(self) -> list[str]:
        return [text for stage, text in self.team.progress.events if stage == "synthesize"]

    def journalled(self) -> list[dict[str, Any]]:
        with Journal.open(self.root / "journal.jsonl") as journal:
            return [event.data["record"] for event in journal.events("round")]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, small_spec(rounds=4, attempts=1))


def refuse_every_round(team: Any) -> None:
    for number in range(1, 9):
        team.judge.judged[f"r0{number}a1"] = (WRONG_TOKENS,)


def fail_the_machine(*numbers: int) -> Callable[[Any], None]:
    def prepare(team: Any) -> None:
        for number in numbers:
            team.evaluator.failures[f"r0{number}a1"] = InfraError(f"no memory left in round {number}")

    return prepare


def outcomes(search: Search) -> list[str]:
    return [entry.record.outcome.value for entry in search.entries]


def test_accepted_candidates_are_built_upon_one_after_the_other(rig: Rig) -> None:
    search = rig.start()
    assert outcomes(search) == ["baseline", "accepted", "accepted", "accepted", "accepted"]
    assert search.incumbent is not None
    assert search.incumbent.assembled.components == ("first", "fourth", "second", "third")
    assert rig.team.evaluator.compared == [
        ("r00a1", "r00a1-again"), ("r01a1", "r00a1"), ("r02a1", "r01a1"), ("r03a1", "r02a1"), ("r04a1", "r03a1"),
    ]  # fmt: skip
    assert 0 < search.noise_floor < 0.01
    assert all(server.num_stops > 0 for server in rig.team.bench.servers)


def test_a_refused_candidate_leaves_the_incumbent_in_place(rig: Rig) -> None:
    def prepare(team: Any) -> None:
        team.judge.judged["r01a1"] = (WRONG_TOKENS,)

    search = rig.start(prepare)
    assert outcomes(search)[:3] == ["baseline", "rejected", "accepted"]
    assert rig.team.evaluator.compared[1:3] == [("r01a1", "r00a1"), ("r02a1", "r00a1")]
    record = rig.journalled()[1]
    assert record["reason"] == "refused: accuracy/wrong_tokens: top-1 agreement 0.50"
    assert record["metrics"]["candidate"]["output_throughput"] > 400


def test_rounds_are_limited_by_the_budget(tmp_path: Path) -> None:
    assert outcomes(Rig(tmp_path, small_spec(rounds=1)).start()) == ["baseline", "accepted"]
    assert outcomes(Rig(tmp_path / "none", small_spec(rounds=0)).start()) == ["baseline"]


def test_patience_ends_it_at_a_plateau(rig: Rig) -> None:
    search = rig.start(refuse_every_round)
    assert outcomes(search) == ["baseline", "rejected", "rejected"]
    assert rig.told() == ["plateau: 2 rounds in a row without a gain"]


def test_a_round_that_the_machine_spoilt_does_not_use_up_patience(rig: Rig) -> None:
    def prepare(team: Any) -> None:
        refuse_every_round(team)
        fail_the_machine(2)(team)

    assert outcomes(rig.start(prepare)) == ["baseline", "rejected", "infra", "rejected"]


def test_wall_time_that_certification_needs_is_kept(rig: Rig) -> None:
    rig.deadline_s = -1.0
    search = rig.start()
    assert outcomes(search) == ["baseline"]
    assert rig.told()[0].startswith("budget: 0 s are left before certification and a round takes")


def test_it_ends_when_no_card_promises_a_gain(tmp_path: Path) -> None:
    rig = Rig(tmp_path, small_spec(rounds=9))
    assert outcomes(rig.start()) == ["baseline"] + ["accepted"] * 4
    assert rig.told() == ["no card that is left promises a gain"]


def test_where_no_card_applies_it_ends_after_round_0_and_says_so(tmp_path: Path) -> None:
    rig = Rig(tmp_path, small_spec(rounds=4, attempts=1), conditions={"modalities": ["speech"]})
    search = rig.start()
    assert outcomes(search) == ["baseline"]
    assert search.incumbent is not None
    assert rig.told() == ["nothing applicable: no card fits this target; the seed goes on as it is"]


def test_two_spoilt_rounds_in_a_row_end_it_as_an_infrastructure_failure(rig: Rig) -> None:
    with pytest.raises(
        InfraError, match="2 rounds in a row failed for the machine's reasons: no memory left in round 2"
    ):
        rig.start(fail_the_machine(1, 2))
    assert [record["outcome"] for record in rig.journalled()] == ["baseline", "infra", "infra"]


def test_spoilt_rounds_with_a_good_one_between_them_do_not_end_it(rig: Rig) -> None:
    search = rig.start(fail_the_machine(1, 3))
    assert outcomes(search) == ["baseline", "infra", "accepted", "infra", "accepted"]
    # the card of the spoilt round came again
    assert [entry.record.proposal.card for entry in search.entries[1:3] if entry.record.proposal] == ["first", "first"]


def test_after_an_infrastructure_failure_the_same_command_goes_on(rig: Rig) -> None:
    with pytest.raises(InfraError):
        rig.start(fail_the_machine(1, 2))
    assert outcomes(rig.start())[:4] == ["baseline", "infra", "infra", "accepted"]


def test_a_seed_that_the_gates_refuse_ends_it(rig: Rig) -> None:
    refusal = Refusal(gate="probe", reason_class="chat", text="no answer")

    def refuse(team: Any) -> None:
        team.judge.screened["r00a1"] = (refusal,)

    with pytest.raises(RefusedError, match="the seed is refused: probe/chat: no answer") as caught:
        rig.start(refuse)
    assert caught.value.reasons == (refusal,)
    assert rig.journalled() == []

    def judge(team: Any) -> None:
        team.judge.judged["r00a1"] = (WRONG_TOKENS,)

    with pytest.raises(RefusedError, match="the seed is refused: accuracy/wrong_tokens"):
        rig.start(judge)
    assert all(server.num_stops > 0 for server in rig.team.bench.servers)


def test_a_seed_whose_server_dies_is_an_infrastructure_failure(rig: Rig) -> None:
    def kill(team: Any) -> None:
        team.evaluator.failures["r00a1"] = ServerError("r00a1", outcome="died", detail="exit status 1", log_tail="")

    with pytest.raises(ServerError):
        rig.start(kill)
    assert outcomes(rig.start())[0] == "baseline"


# -- resuming


class Killed(BaseException):
    """Ends the process between two rounds, as a signal would."""


def kill_in_round(number: int) -> Callable[[Any], None]:
    def prepare(team: Any) -> None:
        team.evaluator.failures[f"r0{number}a1"] = Killed()

    return prepare


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_killed_in_any_round_the_same_command_ends_with_the_same_rounds(rig: Rig, number: int) -> None:
    with pytest.raises(Killed):
        rig.start(kill_in_round(number))
    assert len(rig.journalled()) == number
    search = rig.start()
    assert outcomes(search) == ["baseline"] + ["accepted"] * 4
    assert [record["number"] for record in rig.journalled()] == [0, 1, 2, 3, 4]
    first_pair = rig.team.evaluator.compared[0]
    assert first_pair == (("r00a1", "r00a1-again") if number == 0 else (f"r0{number}a1", f"r0{number - 1}a1"))
    assert (f"resumed after round {number - 1}" in rig.told()) == (number > 0)


def test_a_finished_search_measures_nothing_again(rig: Rig) -> None:
    before = rig.start()
    after = rig.start()
    assert rig.team.evaluator.compared == []
    assert canonical_json(after) == canonical_json(before)


def test_the_plateau_is_remembered(rig: Rig) -> None:
    rig.start(refuse_every_round)
    rig.start()
    assert rig.told() == ["resumed after round 2", "plateau: 2 rounds in a row without a gain"]


def test_what_was_tried_is_not_tried_again_after_a_kill(rig: Rig) -> None:
    def prepare(team: Any) -> None:
        team.judge.judged["r01a1"] = (WRONG_TOKENS,)
        kill_in_round(2)(team)

    with pytest.raises(Killed):
        rig.start(prepare)
    search = rig.start()
    cards = [entry.record.proposal.card for entry in search.entries if entry.record.proposal]
    assert cards[:2] == ["first", "second"]


def test_workspaces_that_are_gone_are_checked_out_again(rig: Rig) -> None:
    with pytest.raises(Killed):
        rig.start(kill_in_round(2))
    workspaces = rig.root / "run/workspaces"
    original = (workspaces / "r01a1/runtime/linear.py").read_text()
    shutil.rmtree(workspaces)
    search = rig.start()
    assert outcomes(search)[-1] == "accepted"
    assert (workspaces / "r01a1/runtime/linear.py").read_text() == original == '"""linear of first."""\n'


def test_a_half_written_checkout_is_not_taken_for_a_workspace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from vibeserve.checkpoint import CheckpointStore

    rig.spec.budget.rounds = 1
    rig.start()
    shutil.rmtree(rig.root / "run/workspaces")

    def half(self: CheckpointStore, sha: str, destination: Path) -> None:
        (destination / "runtime").mkdir(parents=True)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointStore, "checkout", half)
        with pytest.raises(Killed):
            rig.start()
    search = rig.start()
    assert search.incumbent is not None
    assert (search.incumbent.workspace / "runtime/linear.py").is_file()


def test_a_project_that_was_moved_goes_on_where_it_is_now(rig: Rig, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        rig.start(kill_in_round(2))
    moved = Path(shutil.move(rig.root / "run", tmp_path / "elsewhere"))
    rig.team = make_team(rig.library, moved, spec=rig.spec)
    with Journal.open(rig.root / "journal.jsonl") as journal:
        search = restore(rig.team, journal)
    assert search.incumbent is not None
    assert search.incumbent.workspace == moved / "workspaces/r01a1"
    assert not (rig.root / "run").exists()


# -- documents


@pytest.fixture
def entries(rig: Rig) -> Iterator[list[Entry]]:
    def prepare(team: Any) -> None:
        team.judge.judged["r02a1"] = (WRONG_TOKENS,)
        fail_the_machine(3)(team)

    yield rig.start(prepare).entries


def test_an_entry_survives_the_journal(entries: list[Entry]) -> None:
    assert {entry.record.outcome for entry in entries} >= {Outcome.BASELINE, Outcome.ACCEPTED, Outcome.REJECTED}
    for entry in entries:
        data = json.loads(canonical_json(entry))
        again = from_data(Entry, data)
        assert to_data(again) == data
        assert again.record == entry.record
        assert again.checkpoint == entry.checkpoint


def test_a_record_with_refused_attempts_survives_it_too(tmp_path: Path) -> None:
    rig = Rig(tmp_path, small_spec(rounds=1, attempts=2))
    rig.library.add("tuned", seams=("model",), parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=99.0)

    def prepare(team: Any) -> None:
        team.judge.judged["r01a1"] = (WRONG_TOKENS,)

    entry = rig.start(prepare).entries[1]
    again = from_data(Entry, json.loads(canonical_json(entry)))
    assert again.record == entry.record
    assert len(again.record.refused_attempts) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_journal_holds_no_number_that_is_none(tmp_path: Path, value: float) -> None:
    record = Round(number=0, proposal=None, candidate=None, outcome=Outcome.INFRA, reason="", spans={"prefill": value})
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        with pytest.raises(ValueError, match="not JSON compliant"):
            journal.append("round", to_data(Entry(record=record, checkpoint=None)))
        assert journal.events() == []


def test_a_team_names_its_headline(rig: Rig) -> None:
    team: Team = make_team(rig.library, rig.root / "run", spec=rig.spec)
    assert (team.headline, team.headline_load) == ("output_throughput", "c8")
