"""Searches with branches over scripted roles and a real journal: what beam and a pivoting greedy find and measure,
and how they go on after a kill."""

from __future__ import annotations

import json
import math
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import Library, LibrarySeed, facts, make_team, small_spec

from vibeserve.agents import Implementation
from vibeserve.agents.playbook import PlaybookImplementer, PlaybookPlanner
from vibeserve.core.nouns import Proposal, Refusal
from vibeserve.journal import Journal, read_events
from vibeserve.policies import BrokenInvariantError, search_graph
from vibeserve.spec import Baseline, BaselineClass, Goal, Search, Spec
from vibeserve.synthesis import Search as Found
from vibeserve.synthesis import synthesize

CARDS = {"first": "linear", "second": "attention", "third": "scheduler"}
RELIEVES = {"first": "prefill", "second": "queue", "third": "decode.linear"}


class Killed(BaseException):
    """Ends the process, as a signal would."""


def pair(components: frozenset[str]) -> float:
    """Two cards lose alone and win together; the third one loses, whatever it is beside."""
    base = {frozenset[str](): 1.0, frozenset({"first"}): 0.9, frozenset({"second"}): 0.93}
    whole = components - {"third"}
    return base.get(whole, 1.6) * (0.85 if "third" in components else 1.0)


class Rig:
    """One run's folder. `start` is what a command does: open the journal, make a team, search."""

    def __init__(self, root: Path, search: Search, **budget: Any) -> None:
        self.root = root
        self.spec: Spec = small_spec(**{"rounds": 12, "attempts": 1, **budget})
        self.spec.search = search
        self.library = Library(root / "library")
        for name, seam in CARDS.items():
            self.library.add(name, seams=(seam,), relieves=[RELIEVES[name]], expected_factor=3.0)
        self.truth: Callable[[frozenset[str]], float] = pair
        self.team: Any = None

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    def start(self, prepare: Callable[[Any], None] = lambda team: None) -> Found:
        self.team = make_team(self.library, self.root / "run", spec=self.spec)
        self.team.evaluator.truth = self._factor
        prepare(self.team)
        with Journal.open(self.journal) as journal:
            return synthesize(
                self.team, seed=LibrarySeed(self.library), planner=PlaybookPlanner(), facts=facts(), journal=journal,
                deadline_s=1e6, monotonic=lambda: 0.0,
            )  # fmt: skip

    def _factor(self, name: str) -> float:
        path = self.root / "run/workspaces" / name.removesuffix("-again") / "runtime/assembly.json"
        return self.truth(frozenset(row["name"] for row in json.loads(path.read_text())["components"]))

    def told(self) -> list[str]:
        return [text for stage, text in self.team.progress.events if stage == "synthesize"]

    def events(self, kind: str) -> list[Any]:
        return [event.data for event in read_events(self.journal) if event.kind == kind]


def beam(root: Path, **changes: Any) -> Rig:
    budget = {name: changes.pop(name) for name in ("rounds", "attempts") if name in changes}
    return Rig(root, Search(policy="beam", **{"patience": 3, **changes}), **budget)


def components(search: Found) -> tuple[str, ...]:
    assert search.incumbent is not None
    return search.incumbent.assembled.components


def tried(search: Found) -> list[tuple[str, ...]]:
    return [entry.record.proposal.components for entry in search.entries if entry.record.proposal]


# -- what is found


def test_beam_finds_a_pair_of_cards_that_lose_alone(tmp_path: Path) -> None:
    search = beam(tmp_path).start()
    assert components(search) == ("first", "second")
    winner = next(entry for entry in search.entries if entry.checkpoint and entry.record.number)
    assert winner.step is not None and winner.step.parent in ("r02a1", "r03a1")
    assert winner.step.against_parent is not None and winner.step.against_parent.ratio > 1.6
    headline = winner.record.decision.headline if winner.record.decision else None
    assert headline is not None and headline.ratio == pytest.approx(1.6, rel=0.05)


def test_greedy_without_pivots_does_not_and_with_them_it_does_later(tmp_path: Path) -> None:
    assert components(Rig(tmp_path / "a", Search(patience=2, pivots=0)).start()) == ()
    rig = Rig(tmp_path / "b", Search(patience=2))
    assert components(rig.start()) == ("first", "second")
    assert rig.events("move")[0]["why"] == "another family of ideas: r00a1"
    assert rig.events("move")[1]["why"].startswith("another checkpoint: r0")


def test_a_challenger_is_measured_beside_its_parent_and_then_beside_the_incumbent(tmp_path: Path) -> None:
    rig = beam(tmp_path)
    search = rig.start()
    name = search.incumbent.candidate.candidate_id if search.incumbent else ""
    parent = search.tree.nodes[name].parent
    at = rig.team.evaluator.compared.index((name, parent))
    assert rig.team.evaluator.compared[at + 1] == (name, "r00a1")
    entry = next(e for e in search.entries if e.record.candidate and e.record.candidate.candidate_id == name)
    assert set(entry.measurements) == {name, "r00a1", f"{name}-beside-parent", f"{parent}-beside-parent"}
    assert all(server.num_stops > 0 for server in rig.team.bench.servers)


def test_better_than_its_parent_alone_is_a_branch_and_no_incumbent(tmp_path: Path) -> None:
    rig = beam(tmp_path)
    rig.truth = lambda chosen: {0: 1.0, 1: 0.8, 2: 0.9, 3: 0.7}[len(chosen)]
    search = rig.start()
    assert components(search) == ()
    branch = next(entry for entry in search.entries if entry.record.reason.startswith("branch: "))
    assert branch.record.outcome.value == "rejected" and branch.record.decision is not None
    assert branch.record.decision.headline is None, "a ratio over the parent is no ratio over the incumbent"
    assert "over r0" in branch.record.reason and "; about x0." in branch.record.reason
    assert branch.step is not None and branch.step.against_parent is not None
    assert branch.step.against_parent.ratio == pytest.approx(0.9 / 0.8, rel=0.05)
    assert branch.kept is not None and branch.checkpoint is None
    assert search.tree.nodes[branch.kept.candidate.candidate_id].log_gain == pytest.approx(math.log(0.9), abs=0.05)


def test_a_refused_candidate_is_no_branch(tmp_path: Path) -> None:
    wrong = Refusal(gate="accuracy", reason_class="wrong_tokens", text="top-1 agreement 0.50")
    rig = beam(tmp_path, rounds=4)
    search = rig.start(lambda team: team.judge.judged.update({"r01a1": (wrong,), "r02a1": (wrong,)}))
    assert {"r01a1", "r02a1"}.isdisjoint(search.tree.nodes)
    parents = {planned["parent"] for event in rig.events("move") for planned in event["rounds"]}
    assert parents.isdisjoint({"r01a1", "r02a1"}) and "r00a1" in parents
    assert search.entries[1].kept is None


def test_no_assembly_is_tried_twice_on_any_branch(tmp_path: Path) -> None:
    rig = beam(tmp_path, rounds=20, patience=9)
    rig.truth = lambda chosen: 0.95
    offered = tried(rig.start())
    assert len(offered) == len(set(offered)) == 7, "every set of three cards but the empty one"
    assert rig.told()[-1] == "no card that is left promises a gain"


def test_a_state_that_contradicts_itself_ends_the_search_within_a_move(tmp_path: Path) -> None:
    rig = beam(tmp_path)
    rig.truth = lambda chosen: 0.95

    def prepare(team: Any) -> None:
        refs, evaluator = team.store.refs, team.evaluator
        team.store.refs = lambda run: refs(run) if len(evaluator.compared) < 2 else {}

    with pytest.raises(BrokenInvariantError, match=r"the incumbent's commit [0-9a-f]+ is not in the store"):
        rig.start(prepare)
    assert [event["record"]["number"] for event in rig.events("round")] == [0, 1], "the move had more rounds planned"
    assert len(rig.events("move")[0]["rounds"]) > 1


def test_the_state_is_checked_after_the_last_round_too(tmp_path: Path) -> None:
    rig = beam(tmp_path, rounds=1)
    rig.truth = lambda chosen: 0.95

    def prepare(team: Any) -> None:
        refs, evaluator = team.store.refs, team.evaluator
        team.store.refs = lambda run: refs(run) if len(evaluator.compared) < 2 else {}

    with pytest.raises(BrokenInvariantError, match="is not in the store"):
        rig.start(prepare)


def test_a_new_incumbent_ends_the_move_and_the_rest_is_planned_anew_upon_it(tmp_path: Path) -> None:
    rig = beam(tmp_path, rounds=2)
    rig.truth = lambda chosen: 2.0 ** len(chosen)
    search = rig.start()
    assert [entry.record.outcome.value for entry in search.entries] == ["baseline", "accepted", "accepted"]
    assert rig.team.evaluator.compared == [("r00a1", "r00a1-again"), ("r01a1", "r00a1"), ("r02a1", "r01a1")]
    assert "round 1 is the new incumbent; 1 rounds planned anew" in rig.told()
    states = [(event["item"], event["state"]) for event in rig.events("backlog")]
    assert ("b2", "open") in states, "what was not measured is an open idea"


# -- side by side


class Meeting(PlaybookImplementer):
    """Goes on once a second one is at work."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.barrier = threading.Barrier(2, timeout=20)
        self.names: set[str] = set()

    def implement(self, proposal: Proposal, given: Implementation) -> None:
        if given.number <= 2:
            self.barrier.wait()
            self.names.add(threading.current_thread().name)
        super().implement(proposal, given)


def test_the_rounds_of_a_move_are_made_ready_at_once_and_measured_one_after_the_other(tmp_path: Path) -> None:
    rig = beam(tmp_path, rounds=2)

    def prepare(team: Any) -> None:
        team.implementer = Meeting(rig.library.scaffold, skills=rig.library.skills)

    rig.start(prepare)
    assert len(rig.team.implementer.names) == 2
    assert sorted(rig.team.judge.calls[2:4]) == ["static r01a1", "static r02a1"], "before anything is started"
    assert rig.team.evaluator.compared[1:] == [("r01a1", "r00a1"), ("r02a1", "r00a1")]


def test_what_the_scan_refuses_beforehand_is_never_started(tmp_path: Path) -> None:
    refusal = Refusal(gate="scan", reason_class="engine_import", text="imports vllm")
    rig = beam(tmp_path, rounds=2)
    search = rig.start(lambda team: team.judge.screened.update({"r02a1": (refusal,)}))
    record = search.entries[2].record
    assert record.reason == "scan/engine_import: imports vllm" and record.is_refused
    assert record.candidate is not None and "r02a1" not in {server.name for server in rig.team.bench.servers}
    assert "screen r02a1" not in rig.team.judge.calls


def test_an_implementer_that_fails_beforehand_fails_its_own_round_only(tmp_path: Path) -> None:
    from vibeserve.errors import RefusedError

    class Failing(PlaybookImplementer):
        def implement(self, proposal: Proposal, given: Implementation) -> None:
            if given.number == 1:
                raise RefusedError("r01a1: nothing came of it")
            super().implement(proposal, given)

    rig = beam(tmp_path, rounds=2)

    def prepare(team: Any) -> None:
        team.implementer = Failing(rig.library.scaffold, skills=rig.library.skills)

    search = rig.start(prepare)
    assert [entry.record.reason for entry in search.entries[1:2]] == ["r01a1: nothing came of it"]
    assert search.entries[2].kept is not None


# -- after a kill


def killed_after(journal_events: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends right after so many appends."""
    left = [journal_events]
    append = Journal.append

    def counted(self: Journal, *arguments: Any, **named: Any) -> int:
        sequence = append(self, *arguments, **named)
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return sequence

    monkeypatch.setattr(Journal, "append", counted)


def summary(search: Found) -> list[Any]:
    """What must be the same whenever it was killed: the tree, and what was tried in which order."""
    nodes = [(node.id, node.parent, node.card, round(node.log_gain, 1)) for node in search.tree.nodes.values()]
    return [nodes, search.tree.incumbent, tried(search), [each.outcome for each in search.tree.rounds]]


def resume_everywhere(root: Path, make: Callable[[Path], Rig], points: Any) -> None:
    whole = make(root / "whole")
    expected = summary(whole.start())
    num_events = len(read_events(whole.journal))
    for point in points(num_events):
        rig = make(root / f"at{point}")
        with pytest.MonkeyPatch.context() as patched:
            killed_after(point, patched)
            with pytest.raises(Killed):
                rig.start()
        assert summary(rig.start()) == expected, f"killed after event {point}"
        measured = [entry["record"]["number"] for entry in rig.events("round")]
        assert measured == sorted(set(measured)), "no round was carried out twice"


def test_killed_within_its_first_moves_a_beam_goes_on_to_the_same_tree(tmp_path: Path) -> None:
    # amid the planning of the first move, right after the move itself, and between its two rounds
    resume_everywhere(tmp_path, lambda root: beam(root, rounds=4), lambda num: (3, 5, 7))


@pytest.mark.slow
def test_killed_after_any_event_a_beam_goes_on_to_the_same_tree(tmp_path: Path) -> None:
    resume_everywhere(tmp_path, lambda root: beam(root, rounds=6), lambda num: range(1, num))


@pytest.mark.slow
def test_killed_after_any_event_a_pivoting_greedy_goes_on_to_the_same_tree(tmp_path: Path) -> None:
    resume_everywhere(
        tmp_path, lambda root: Rig(root, Search(patience=2), rounds=6), lambda num: range(1, num)
    )  # fmt: skip


# -- ends


def test_a_lost_commit_ends_the_run_with_one_error_and_the_best_checkpoint_that_is_left(tmp_path: Path) -> None:
    rig = beam(tmp_path, rounds=1)
    rig.truth = lambda chosen: 2.0 ** len(chosen)
    assert components(rig.start()) != ()
    store = rig.team.store.git_dir
    subprocess.run(["git", "-C", store, "update-ref", "-d", "refs/vibeserve/run-1/r01a1"], check=True)
    rig.spec.budget.rounds = 4
    search = rig.start()
    assert search.fault.startswith("the search's state contradicts itself: the incumbent's commit ")
    assert search.incumbent is not None and search.incumbent.candidate.candidate_id == "r00a1"
    assert rig.told()[-1].endswith("is not in the store; r00a1 is certified")
    assert rig.events("search_ended")[-1]["incumbent"] == "r00a1"
    assert rig.team.evaluator.compared == []
    again = rig.start()
    assert again.fault == search.fault and again.incumbent == search.incumbent


def test_every_goal_met_by_the_lower_end_ends_it_where_that_is_asked_for(tmp_path: Path) -> None:
    def rig(name: str, **search: Any) -> Rig:
        made = Rig(tmp_path / name, Search(patience=2, **search), rounds=3)
        made.truth = lambda chosen: 2.0 ** len(chosen)
        made.spec.baseline = {"scaffold": Baseline(baseline_class=BaselineClass.naive)}
        made.spec.goals = [
            Goal(metric="output_throughput", min_ratio=1.5, against="naive"),
            Goal(metric="peak_memory", max_gib=1.1),
        ]  # fmt: skip
        return made

    assert len(rig("all").start().entries) == 4
    stopping = rig("goal", stop_at_goal=True)
    assert len(stopping.start().entries) == 2
    assert stopping.told()[-1].startswith("goal: all 2 are met with the lower end of their intervals (the closest by x")
    above = rig("above", stop_at_goal=True)
    above.spec.goals[1].max_gib = 0.9
    assert len(above.start().entries) == 4
    unknown = rig("unknown", stop_at_goal=True)
    unknown.spec.baseline["vllm"] = Baseline(baseline_class=BaselineClass.naive)
    assert len(unknown.start().entries) == 4, "vllm is not measured in a search"


def test_the_journal_alone_gives_the_graph(tmp_path: Path) -> None:
    rig = beam(tmp_path)
    search = rig.start()
    graph = search_graph(rig.events("round"))
    assert graph.incumbent == search.tree.incumbent and len(graph.winning) == 3
    assert {node.id for node in graph.nodes} == set(search.checkpoints)
    assert {(edge.parent, edge.child) for edge in graph.edges} == {
        (node.parent, node.id) for node in search.tree.nodes.values() if node.parent
    }


# -- people


def steered(root: Path, **when: Any) -> Any:
    """A beam of which the first round loses; `when` maps places of the search to requests."""
    import steering_rig

    rig = steering_rig.Rig(root, spec=small_spec(rounds=2, attempts=1))
    rig.spec.search = Search(policy="beam", patience=3)
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.2}})
    rig.when = {place: rig.asking(command, **arguments) for place, (command, arguments) in when.items()}
    return rig


def test_a_stop_ends_a_move_before_its_next_round(tmp_path: Path) -> None:
    rig = steered(tmp_path, **{"in r1a1": ("stop", {})})
    assert len(rig.start().entries) == 2
    assert rig.told("synthesize")[-1] == "stopped by person ada"
    assert rig.items() == {"adopt first": "abandoned", "adopt second": "open"}


def test_an_idea_that_is_vetoed_while_it_waits_for_its_turn_is_a_round_without_a_candidate(tmp_path: Path) -> None:
    rig = steered(tmp_path, **{"in r1a1": ("veto", {"item": "b2", "why": "too risky"})})
    record = rig.start().entries[2].record
    assert record.candidate is None and record.reason == "adopt second: vetoed by person ada: too risky"
    assert rig.team.evaluator.compared[1:] == [("r01a1", "r00a1")]
