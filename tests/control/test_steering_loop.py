"""Each command at each safe point of a search over scripted roles, and what happens to one that comes too late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS, small_spec
from steering_rig import DOCUMENT, Killed, Rig, Scripted, cards, outcomes

from vibeserve.agents import Agents
from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookImplementer, PlaybookJudge, PlaybookPlanner
from vibeserve.agents.schemas import proposal_of
from vibeserve.control import CONTROL, Phase, Site, Steering, interventions_of, steering_of
from vibeserve.control.requests import path_of
from vibeserve.core.documents import to_data
from vibeserve.errors import SpecError
from vibeserve.journal import Journal
from vibeserve.planning import FRAMEWORK
from vibeserve.spec import Spec

SECOND: dict[str, Any] = {"title": "adopt second at once", "components": ["second"], "parameters": []}
"""another proposal, as changes of `DOCUMENT`"""


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def refuse(*names: str) -> Callable[[Any], None]:
    return lambda team: team.judge.judged.update(dict.fromkeys(names, (WRONG_TOKENS,)))


# -- pause, resume, stop


@pytest.mark.parametrize("place", ["before r1", "before r2", "in r1a1"])
def test_a_pause_waits_at_the_next_safe_point_until_it_is_lifted(rig: Rig, place: str) -> None:
    rig.when = {place: rig.asking("pause", why="lunch"), "asleep": rig.asking("resume")}
    search = rig.start()
    assert outcomes(search) == ["baseline", "accepted", "accepted", "accepted"]
    assert rig.answers() == [("pause", "the run waits here until `resume` or `stop`"), ("resume", "the run goes on")]
    assert rig.num_naps == 1
    assert ("aside", "") in rig.team.bench.lease.granted, "a paused run holds no device"
    assert rig.told("control")[1] == "paused by person ada: lunch; `vibeserve steer resume` goes on"


def test_a_pause_between_two_attempts(rig: Rig) -> None:
    rig.spec.budget.rounds = 1
    rig.prepare = refuse("r01a1")
    rig.when = {"in r1a1": rig.asking("pause"), "asleep": rig.asking("resume")}
    search = rig.start()
    assert search.entries[1].record.attempts == 2 and outcomes(search) == ["baseline", "accepted"]
    assert [(done.phase, done.round) for done in rig.handled()] == [("attempt", 1)] * 2


def test_a_stop_ends_the_pause_and_the_search(rig: Rig) -> None:
    rig.when = {"before r2": rig.asking("pause"), "asleep": rig.asking("stop", why="good enough")}
    search = rig.start()
    assert outcomes(search) == ["baseline", "accepted"]
    assert rig.told("synthesize")[-1] == "stopped by person ada: good enough"
    assert search.incumbent is not None and search.incumbent.candidate.candidate_id == "r01a1"


def test_a_stop_before_the_first_round_leaves_the_seed(rig: Rig) -> None:
    rig.ask("stop")
    assert outcomes(rig.start()) == ["baseline"]


def test_a_stop_in_a_round_ends_it_at_the_border_of_its_attempts(rig: Rig) -> None:
    rig.prepare = refuse("r01a1")
    rig.when = {"in r1a1": rig.asking("stop")}
    search = rig.start()
    record = search.entries[1].record
    assert outcomes(search) == ["baseline", "rejected"] and record.attempts == 1
    assert record.reason == "refused: accuracy/wrong_tokens: top-1 agreement 0.50; stopped by person ada"
    assert rig.answers() == [("stop", "the round ends with this attempt; the best so far is certified")]


def test_a_stop_is_remembered(rig: Rig) -> None:
    rig.when = {"before r2": rig.asking("stop")}
    rig.start()
    assert outcomes(rig.start()) == ["baseline", "accepted"]


@pytest.mark.parametrize(
    ("commands", "last"),
    [
        (("resume",), "refused: the run is not paused"),
        (("stop", "stop"), "refused: the search is stopped by person ada already"),
        (("pause", "pause", "resume"), "refused: the run is paused already, by person ada"),
    ],
)
def test_what_makes_no_sense_now_is_refused(rig: Rig, commands: tuple[str, ...], last: str) -> None:
    for command in commands:
        rig.ask(command)
    rig.start()
    assert last in [answer for _, answer in rig.answers()]


# -- constrain, pin


def test_a_banned_component_is_not_brought_in(rig: Rig) -> None:
    rig.when = {"before r1": rig.asking("constrain", ban=["second"])}
    assert cards(rig.start()) == ["first", "third", "tuning"]
    assert rig.answers() == [("constrain", "from the next proposal on")]


def test_a_component_that_the_incumbent_has_stays(rig: Rig) -> None:
    rig.when = {"before r2": rig.asking("constrain", ban=["first"])}
    search = rig.start()
    assert search.incumbent is not None and search.incumbent.assembled.components == ("first", "second", "third")
    assert rig.answers() == [("constrain", "from the next proposal on; the incumbent has first and keeps it")]


def test_a_ban_holds_for_every_planner_and_is_a_typed_refusal(rig: Rig) -> None:
    rig.planner = Scripted([proposal_of({"proposal": {**DOCUMENT, **SECOND}}, proposal_id="p001")])
    rig.when = {"before r1": rig.asking("constrain", ban=["second"])}
    search = rig.start()
    record = search.entries[1].record
    assert (record.outcome.value, record.candidate) == ("rejected", None)
    assert record.verdict is not None and record.verdict.refusals[0].feedback == (
        "planning/banned_component: component second is banned for this run"
    )
    assert rig.backlog().of() == [], "nobody's idea: it was not tried"


def test_values_are_left_out_and_a_constraint_is_lifted(rig: Rig) -> None:
    rig.spec.budget.rounds = 2
    rig.when = {
        "before r1": rig.asking("constrain", only={"first_block": [4, 16]}),
        "before r2": rig.asking("constrain", lift=["first_block"]),
    }
    search = rig.start()
    proposals = [entry.record.proposal for entry in search.entries[1:]]
    assert proposals[0] is not None and proposals[0].parameters["first_block"] == 4, "the card's default is 8"
    assert steering_of(rig.events()).constraints.allowed == {}


def test_a_pin_holds_from_the_next_proposal_on(rig: Rig) -> None:
    rig.when = {"in r1a1": rig.asking("pin", values={"second_block": 16})}
    search = rig.start()
    by_card = {entry.record.proposal.card: entry.record.proposal for entry in search.entries if entry.record.proposal}
    assert by_card["second"].parameters["second_block"] == 16
    assert by_card["third"].parameters["second_block"] == 16
    assert rig.team.pins == {"second_block": 16}


def test_a_pin_that_comes_in_a_round_leaves_its_next_attempt_alone(rig: Rig) -> None:
    rig.spec.budget.rounds = 1
    rig.prepare = refuse("r01a1")
    rig.when = {"in r1a1": rig.asking("pin", values={"first_block": 16})}
    record = rig.start().entries[1].record
    assert record.outcome.value == "accepted" and record.proposal is not None
    assert record.proposal.parameters["first_block"] == 4


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ([("constrain", {"ban": ["secnd"]})], "there is no component 'secnd'; did you mean 'second'?; valid: first, "),
        ([("constrain", {"only": {"blck": [1]}})], "nothing that applies here has a parameter 'blck'"),
        ([("constrain", {"only": {"first_block": [99]}})], "parameter first_block must be from 1 to 64, got 99"),
        ([("constrain", {"lift": ["first"]})], "nothing rules out first; ruled out: nothing"),
        ([("pin", {"values": {"first_block": "wide"}})], "parameter first_block must be of type int, got 'wide'"),
        ([("pin", {"lift": ["first_block"]})], "first_block was not pinned by a request; pinned so: nothing"),
        (
            [("constrain", {"only": {"first_block": [4]}}), ("pin", {"values": {"first_block": 8}})],
            "first_block may only be 4 in this run",
        ),
        (
            [("pin", {"values": {"first_block": 8}}), ("constrain", {"only": {"first_block": [4, 16]}})],
            "first_block is pinned to 8, which is not among 4, 16",
        ),
        ([("constrain", {"only": {"evaluation.min_effect": [0]}})], "evaluation.min_effect: that is a new plan"),
    ],
)  # fmt: skip
def test_wrong_names_and_values_are_refused_with_what_is_valid(
    rig: Rig, asked: list[tuple[str, dict[str, Any]]], refused: str
) -> None:
    rig.spec.budget.rounds = 1
    rig.when = {"before r1": lambda: [rig.ask(command, **arguments) for command, arguments in asked]}
    assert outcomes(rig.start()) == ["baseline", "accepted"], "a refused request changes nothing"
    assert refused in rig.answers()[-1][1] and rig.answers()[-1][1].startswith("refused: ")


# -- veto, propose


def test_a_veto_ends_the_round_at_the_border_of_its_attempts(rig: Rig) -> None:
    rig.prepare = refuse("r01a1")
    rig.when = {"in r1a1": rig.asking("veto", item="b1", why="a dead end")}
    search = rig.start()
    record = search.entries[1].record
    assert record.attempts == 1
    assert record.reason.endswith("; vetoed by person ada: a dead end")
    assert rig.answers() == [("veto", "round 1 makes no further attempt")]
    assert rig.items()["adopt first"] == "abandoned"
    assert [change.who for change in [rig.backlog().items["b1"].last]] == ["person ada"], f"not the {FRAMEWORK}"


def test_a_veto_that_comes_too_late_says_what_became_of_the_idea(rig: Rig) -> None:
    rig.when = {"in r1a1": rig.asking("veto", item="b1"), "before r3": rig.asking("veto", item="b77")}
    rig.start()
    (_, late), (_, unknown) = rig.answers()
    assert late.startswith("refused: b1 is done already: ")
    assert unknown == "refused: there is no item 'b77' in the backlog; valid: b1, b2"


def test_a_persons_proposal_is_next_in_line_and_is_assembled_as_a_cards_would_be(rig: Rig) -> None:
    rig.when = {"before r2": rig.asking("propose", proposal={**DOCUMENT, "components": ["first", "third"]})}
    search = rig.start()
    assert cards(search) == ["first", "third", "second"]
    candidate = search.entries[2].record.candidate
    assert candidate is not None and candidate.origin == "component:third"
    assert search.entries[2].record.proposal is not None
    assert search.entries[2].record.proposal.parameters["third_block"] == 16
    assert rig.answers() == [("propose", "b2 is next in line")]
    assert rig.items() == {"adopt first": "done", "adopt third at once": "done", "adopt second": "done"}
    assert rig.backlog().items["b2"].opened_by == "person ada"


def test_it_does_not_wait_for_a_gain(rig: Rig) -> None:
    rig.spec.search.patience = 1
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.1}})
    rig.when = {"before r2": rig.asking("propose", proposal=DOCUMENT)}
    assert outcomes(rig.start()) == ["baseline", "rejected", "accepted", "accepted"]


def test_it_comes_though_the_planner_has_nothing_left(rig: Rig) -> None:
    class Last(Scripted):
        def propose(self, state: Any) -> None:
            rig.happen("asked")

    rig.planner = Last([])
    rig.when = {"asked": rig.asking("propose", proposal=DOCUMENT)}
    assert cards(rig.start()) == ["third"]


def test_two_proposals_come_in_order_and_a_vetoed_one_is_left_out(rig: Rig) -> None:
    narrow = {"title": "adopt second, too", "parameters": [{"name": "second_block", "value": 4}]}

    def ask() -> None:
        rig.ask("propose", proposal=DOCUMENT)
        rig.ask("propose", proposal={**DOCUMENT, **SECOND, **narrow})
        rig.ask("propose", proposal={**DOCUMENT, **SECOND})
        rig.ask("veto", item="b2")

    rig.when = {"before r1": ask}
    search = rig.start()
    assert cards(search) == ["third", "second", "first"]
    assert rig.items()["adopt second, too"] == "abandoned"


def test_a_persons_proposal_that_the_machine_spoilt_is_tried_again(rig: Rig) -> None:
    from vibeserve.errors import InfraError

    rig.prepare = lambda team: team.evaluator.failures.update({"r01a1": InfraError("no memory left")})
    rig.when = {"before r1": rig.asking("propose", proposal=DOCUMENT)}
    assert cards(rig.start()) == ["third", "third", "first"]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"components": ["thrd"]}, "there is no component 'thrd'; did you mean 'third'?"),
        ({"parameters": [{"name": "third_block", "value": 99}]}, "parameter third_block must be from 1 to 64, got 99"),
        ({"components": []}, "unknown parameter 'third_block'; valid: max_num_seqs"),
        ({"components": [], "parameters": []}, "it assembles the incumbent as it is, and the playbook writes no code"),
        ({"parameters": [{"name": "second_block", "value": 8}]}, "unknown parameter 'second_block'; valid: "),
    ],
)  # fmt: skip
def test_a_proposal_that_cannot_become_a_round_is_refused(rig: Rig, changes: dict[str, Any], refused: str) -> None:
    rig.when = {"before r1": rig.asking("propose", proposal={**DOCUMENT, **changes})}
    assert cards(rig.start()) == ["first", "second", "third"]
    assert refused in rig.answers()[0][1]


def test_a_proposal_against_a_pin_a_ban_or_an_abandoned_idea_is_refused(rig: Rig) -> None:
    def ask() -> None:
        rig.ask("pin", values={"third_block": 4})
        rig.ask("propose", proposal=DOCUMENT)
        rig.ask("pin", lift=["third_block"])
        rig.ask("constrain", ban=["third"])
        rig.ask("propose", proposal=DOCUMENT)
        rig.ask("constrain", lift=["third"])
        rig.ask("propose", proposal=DOCUMENT)

    rig.when = {"before r1": ask, "before r2": rig.asking("propose", proposal=DOCUMENT)}
    rig.prepare = lambda team: team.evaluator.scaled.update({"r01a1": {"output_throughput": 0.1}})
    rig.start()
    answers = [answer for command, answer in rig.answers() if command == "propose"]
    assert answers[:3] == [
        "refused: parameter third_block is pinned to 4, proposed is 16",
        "refused: component third is banned for this run", "b1 is next in line",
    ]  # fmt: skip
    assert answers[3].startswith("refused: it is like b1 'adopt third at once', abandoned: measured: ")


def test_a_queued_proposal_that_is_ruled_out_later_is_a_round_without_a_candidate(rig: Rig) -> None:
    rig.prepare = refuse("r01a1")
    rig.when = {
        "in r1a1": lambda: [rig.ask("propose", proposal=DOCUMENT), rig.ask("constrain", ban=["third"])],
    }
    search = rig.start()
    assert search.entries[2].record.candidate is None
    assert search.entries[2].record.reason.startswith("adopt third at once: component third is banned")
    assert rig.items()["adopt third at once"] == "abandoned" and len(search.entries) == 4


# -- budget, backend


def test_more_rounds(rig: Rig) -> None:
    rig.spec.budget.rounds = 1
    rig.when = {"in r1a1": rig.asking("budget", rounds=2)}
    assert outcomes(rig.start()) == ["baseline", "accepted", "accepted"]
    assert rig.answers() == [("budget", "rounds 1 -> 2")]
    assert outcomes(rig.start()) == ["baseline", "accepted", "accepted"], "and they are remembered"


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"rounds": 1}, "rounds 3 -> 1"),
        ({"rounds": 0}, "refused: rounds=0 is below what is spent, 1"),
        ({"wall_s": 9.0}, "refused: wall_s=9 is below what is spent, 10"),
        ({"tokens": 99}, "refused: tokens=99 is below what is spent, 110"),
        ({"tokens": 0}, "tokens 1e+07 -> 0"),
        ({"usd": 0.2}, "refused: usd=0.2 is below what is spent, 0.25"),
        ({"usd": 0.5, "tokens": 110}, "tokens 1e+07 -> 110, usd 0 -> 0.5"),
    ],
)
def test_a_budget_is_never_lowered_below_what_is_spent(rig: Rig, asked: dict[str, Any], answer: str) -> None:
    def spend_and_ask() -> None:
        usage = {"input_tokens": 100, "output_tokens": 10}
        rig.steering.journal.append("spend", {"role": "planner", "key": "p01", "usage": usage, "usd": 0.25})
        rig.ask("budget", **asked)

    rig.when = {"before r2": spend_and_ask}
    rig.start()
    assert rig.answers() == [("budget", answer)]


def test_more_wall_time_moves_the_end_of_the_search(rig: Rig) -> None:
    rig.spec.budget.wall_s = 100.0
    rig.when = {"before r1": rig.asking("budget", wall_s=50.0)}
    rig.start()
    assert rig.steering.wall_added_s == -50.0 and rig.steering.spec.budget.wall_s == 50.0


class Seats:
    """Makes agents that remember which spec they are of."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.made: list[Spec] = []

    def __call__(self, spec: Spec) -> Agents:
        if spec.agents.planner.backend == "command":
            raise SpecError("agents.command.argv is empty", problems=["a recipe: gemini, opencode"])
        self.made.append(spec)
        implementer = PlaybookImplementer(self.rig.library.scaffold, skills=self.rig.library.skills)
        return Agents(
            planner=Scripted([]) if spec.agents.planner.backend == "external" else PlaybookPlanner(),
            implementer=implementer, judge=PlaybookJudge(), evaluator=PlaybookEvaluator(),
        )  # fmt: skip


def test_another_back_end_plays_a_role_from_the_next_call_on(rig: Rig) -> None:
    rig.rebuild = seats = Seats(rig)
    rig.when = {"before r2": rig.asking("backend", roles={"planner": {"backend": "external"}})}
    search = rig.start()
    assert outcomes(search) == ["baseline", "accepted"] and rig.told("synthesize")[-1] == "nothing is left on the list"
    assert rig.answers() == [("backend", "planner playbook -> external, from the next call on")]
    assert [spec.agents.planner.backend for spec in seats.made] == ["external"]
    assert rig.spec.agents.planner.backend == "", "what was declared stays as it is"


def test_between_attempts_the_next_one_has_the_new_implementer(rig: Rig) -> None:
    rig.rebuild = Seats(rig)
    rig.prepare = refuse("r01a1")
    first: list[Any] = []
    rig.when = {
        "in r1a1": lambda: (
            first.append(rig.team.implementer), rig.ask("backend", roles={"implementer": {"backend": "openai"}})
        ),
    }  # fmt: skip
    rig.start()
    assert rig.team.implementer is not first[0]


def test_a_back_end_that_cannot_be_had_is_refused_and_changes_nothing(rig: Rig) -> None:
    rig.rebuild = Seats(rig)
    rig.when = {"before r1": rig.asking("backend", roles={"planner": {"backend": "command"}})}
    assert cards(rig.start()) == ["first", "second", "third"]
    assert rig.answers() == [("backend", "refused: agents.command.argv is empty;   a recipe: gemini, opencode")]
    assert rig.steering.agents is None


def test_an_agents_review_cannot_be_taken_out(rig: Rig) -> None:
    rig.spec.agents.judge.backend = "claude"
    rig.rebuild = Seats(rig)
    rig.when = {
        "before r1": lambda: [
            rig.ask("backend", roles={"judge": {"backend": "playbook"}}),
            rig.ask("backend", roles={"judge": {"backend": "codex"}}),
        ]
    }
    rig.start()
    (_, refused), (_, applied) = rig.answers()
    assert refused == "refused: an agent's review can be added to a run or played by another, not taken out of it"
    assert applied == "judge claude -> codex, from the next call on"


def test_more_tokens_reach_the_agents_caps(rig: Rig) -> None:
    rig.rebuild = seats = Seats(rig)
    rig.when = {"before r1": rig.asking("budget", tokens=123)}
    rig.start()
    assert [spec.budget.tokens for spec in seats.made] == [123]


# -- too late, two at once, broken files, kills


def test_after_the_search_only_planning_state_and_pauses_are_left(rig: Rig) -> None:
    rig.start()
    for command, arguments in (
        ("stop", {}), ("constrain", {"ban": ["first"]}), ("veto", {"item": "b1"}),
        ("pin", {"values": {"first_block": 8}}), ("propose", {"proposal": DOCUMENT}), ("budget", {"rounds": 9}),
        ("backend", {"roles": {"planner": {"backend": "external"}}}), ("note", {"action": "add", "text": "done"}),
        ("backlog", {"action": "add", "title": "for next time"}), ("pause", {}), ("resume", {}),
    ):  # fmt: skip
        rig.ask(command, **arguments)
    with Journal.open(rig.journal) as journal:
        Steering(journal, spec=rig.spec).safe_point(Site(phase=Phase.CERTIFICATION, round=3))
    answers = rig.answers()
    assert {answer for _, answer in answers[:7]} == {"refused: the search has ended: its winner is being certified"}
    assert [answer for _, answer in answers[7:]] == [
        "n1 is kept", "b4 is open", "the run waits here until `resume` or `stop`", "the run goes on",
    ]  # fmt: skip


def test_a_pause_holds_before_certification(rig: Rig) -> None:
    rig.start()
    rig.ask("pause")
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            rig.ask("resume")

    with Journal.open(rig.journal) as journal:
        steering = Steering(journal, spec=rig.spec, sleep=nap)
        steering.safe_point(Site(phase=Phase.CERTIFICATION, round=3))
    assert naps == [0.5] * 3


def test_requests_wait_while_nobody_carries_the_run_out(rig: Rig) -> None:
    rig.prepare = lambda team: team.evaluator.failures.update({"r02a1": Killed()})
    with pytest.raises(Killed):
        rig.start()
    rig.ask("constrain", ban=["second"])
    assert rig.answers() == []
    rig.prepare = lambda team: None
    assert cards(rig.start()) == ["first", "third", "tuning"]
    assert rig.answers() == [("constrain", "from the next proposal on")]


def test_a_pause_outlives_its_process(rig: Rig) -> None:
    def die() -> None:
        raise Killed

    rig.when = {"before r2": rig.asking("pause"), "asleep": die}
    with pytest.raises(Killed):
        rig.start()
    rig.when = {"asleep": rig.asking("resume")}
    assert outcomes(rig.start()) == ["baseline", "accepted", "accepted", "accepted"]
    assert rig.num_naps == 2


def test_a_broken_request_is_told_and_the_others_are_carried_out(rig: Rig) -> None:
    (rig.root / CONTROL).mkdir()
    path_of(rig.root / CONTROL, 1).write_text('{"schema_version": 1, "number": 1, "comm')
    (rig.root / CONTROL / ".000002.json.tmp").write_text("half")
    rig.ask("budget", rounds=1)
    assert outcomes(rig.start()) == ["baseline", "accepted"]
    (_, broken), (_, carried_out) = rig.answers()
    assert broken.startswith("refused: it is no request: Unterminated string")
    assert carried_out == "rounds 3 -> 1"
    rig.start()
    assert len(rig.handled()) == 2, "none of them is looked at again"


EDITS: list[tuple[str, dict[str, Any]]] = [
    ("backlog", {"action": "add", "title": "an idea"}),
    ("backlog", {"action": "done", "item": "b1"}),
    ("note", {"action": "add", "text": "a note"}),
    ("propose", {"proposal": DOCUMENT}),
    ("veto", {"item": "b1"}),
    ("pin", {"values": {"first_block": 16}}),
    ("budget", {"rounds": 2}),
    ("pause", {}),
]


@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize(("command", "arguments"), EDITS, ids=[f"{name}{n}" for n, (name, _) in enumerate(EDITS)])
def test_a_kill_between_journal_and_effect_carries_nothing_out_twice(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, command: str, arguments: dict[str, Any], is_before: bool
) -> None:
    """The process ends right before, or right after, the event that says that the request was handled."""
    with Journal.open(rig.journal) as journal:
        Steering(journal, spec=rig.spec).book.add("there before", who="person", round=0)
    rig.ask(command, **arguments)
    original = Journal.append

    def append(self: Journal, name: str, data: Any = None, *, durable: bool = True) -> int:
        if name == "control" and is_before:
            raise Killed
        seq = original(self, name, data, durable=durable)
        if name == "control":
            raise Killed
        return seq

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", append)
        with pytest.raises(Killed):
            rig.start()
    rig.when = {"asleep": rig.asking("resume")}
    search = rig.start()
    (done, *rest) = rig.handled()
    assert (done.number, done.command, done.refused) == (1, command, "")
    assert [each.command for each in rest] == (["resume"] if command == "pause" else [])
    counts = {item.title: item.num_changes for item in rig.backlog().of() if item.last.request or item.is_persons}
    assert counts["there before"] == 1 + (arguments.get("item") == "b1")
    assert counts.get("an idea", 1) == 1 and counts.get(DOCUMENT["title"], 3) == 3
    assert len(rig.steering.book.memory.notes) == (command == "note")
    expected = 3 if command != "budget" else 2
    assert len(search.entries) == 1 + expected


def test_interventions_are_what_the_artifact_lists(rig: Rig) -> None:
    rig.when = {"before r1": rig.asking("constrain", ban=["second"]), "before r2": rig.asking("resume")}
    rig.start()
    found = interventions_of(rig.events())
    assert [(each.number, each.text, each.who, each.round, each.state, each.effect) for each in found] == [
        (1, "constrain ban second", "person ada", 0, "applied", "from the next proposal on"),
        (2, "resume", "person ada", 1, "refused", "the run is not paused"),
    ]  # fmt: skip
    assert found[0].at.endswith("+00:00")


def test_no_request_leaves_a_trace_in_what_was_declared(rig: Rig) -> None:
    declared = to_data(rig.spec)
    rig.when = {
        "before r1": lambda: [rig.ask("budget", rounds=1, wall_s=50.0), rig.ask("pin", values={"first_block": 16})]
    }
    rig.start()
    assert to_data(rig.spec) == declared
    assert to_data(replace(rig.steering.spec, budget=rig.spec.budget)) == declared


def test_a_search_on_its_own_needs_no_folder(tmp_path: Path) -> None:
    rig = Rig(tmp_path, spec=small_spec(rounds=1))
    rig.start()
    assert not (tmp_path / CONTROL).exists()
