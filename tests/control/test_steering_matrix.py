"""Every command at every phase of a run, with somebody there to carry it out and with nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS
from steering_rig import DOCUMENT, Killed, Rig, outcomes

from vibeserve.agents import Agents
from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookImplementer, PlaybookJudge, PlaybookPlanner
from vibeserve.control import Phase, Site, Steering, interventions_of
from vibeserve.journal import Journal
from vibeserve.planning import PlanningBook
from vibeserve.spec import Spec

COMMANDS: dict[str, dict[str, Any]] = {
    "constrain": {"ban": ["second"]},
    "pin": {"values": {"third_block": 4}},
    "propose": {"proposal": {**DOCUMENT, "parameters": [{"name": "third_block", "value": 4}]}},
    "veto": {"item": "b1"},
    "budget": {"rounds": 2},
    "backend": {"roles": {"planner": {"backend": "external"}}},
    "backlog": {"action": "add", "title": "another idea"},
    "note": {"action": "add", "text": "two cores"},
    "pause": {"why": "lunch"},
    "resume": {},
    "stop": {},
}
"""in an order in which each of them makes sense after the others; b1 is there before the run begins"""
NEXT, WAITS, GOES_ON = "from the next proposal on", "the run waits here until `resume` or `stop`", "the run goes on"
PROPOSAL = {
    "constrain": NEXT, "pin": NEXT, "propose": "b2 is next in line", "veto": "it is not tried",
    "budget": "rounds 3 -> 2", "backend": "planner playbook -> external, from the next call on",
    "backlog": "b3 is open", "note": "n1 is kept",
    "pause": WAITS, "resume": GOES_ON, "stop": "no further round; the best so far is certified",
}  # fmt: skip
LATER = {**PROPOSAL, "propose": "b3 is next in line", "backlog": "b4 is open"}
"""an idea of the planner came between"""
ATTEMPT = {**LATER, "stop": "the round ends with this attempt; the best so far is certified"}
TOO_LATE = "refused: the search has ended: its winner is being certified"
ENDED = dict.fromkeys(COMMANDS, TOO_LATE) | {
    "backlog": "b5 is open", "note": "n1 is kept", "pause": WAITS, "resume": GOES_ON
}  # fmt: skip
PLACES: dict[str, tuple[dict[str, str], str]] = {
    "asked before the first round": (PROPOSAL, "proposal"),
    "before r1": (PROPOSAL, "proposal"),
    "implementing": (ATTEMPT, "attempt"),
    "in r1a1": (ATTEMPT, "attempt"),
    "before r2": (LATER, "proposal"),
}
"""place -> (answers, phase in which the requests are looked at); round 1's first attempt is refused"""


def seats(rig: Rig) -> Callable[[Spec], Agents]:
    def make(spec: Spec) -> Agents:
        return Agents(
            planner=PlaybookPlanner(), judge=PlaybookJudge(), evaluator=PlaybookEvaluator(),
            implementer=PlaybookImplementer(rig.library.scaffold, skills=rig.library.skills),
        )  # fmt: skip

    return make


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.rebuild = seats(rig)
    with Journal.open(rig.journal) as journal:
        PlanningBook(journal).add("there before", who="person", round=0)
    return rig


def ask_everything(rig: Rig) -> None:
    for command, arguments in COMMANDS.items():
        rig.ask(command, **arguments)


def prepare(rig: Rig, place: str, then: Callable[[], None]) -> None:
    """`then` happens at the place. Round 1's first attempt is refused where requests are looked at behind it."""

    def arrange(team: Any) -> None:
        if place in ("implementing", "in r1a1"):
            team.judge.judged["r01a1"] = (WRONG_TOKENS,)
        if place == "implementing":
            implement = team.implementer.implement

            def implementing(*arguments: Any) -> None:
                rig.happen("implementing")
                implement(*arguments)

            team.implementer.implement = implementing

    rig.prepare = arrange
    rig.when = {place: then}


@pytest.mark.parametrize("place", PLACES)
def test_with_an_owner_every_command_is_carried_out_at_the_next_safe_point(rig: Rig, place: str) -> None:
    answers, phase = PLACES[place]
    prepare(rig, place, lambda: ask_everything(rig))
    if place == "asked before the first round":
        ask_everything(rig)
    search = rig.start()
    assert dict(rig.answers()) == answers
    assert {done.phase for done in rig.handled()} == {phase}
    expected = {"attempt": ["baseline", "rejected"], "proposal": ["baseline"]}[phase]
    assert outcomes(search) == (["baseline", "accepted"] if place == "before r2" else expected)
    assert [row.state for row in interventions_of(rig.events())] == ["applied"] * len(COMMANDS)


@pytest.mark.parametrize("place", PLACES)
def test_without_an_owner_every_command_waits_and_is_carried_out_when_the_run_goes_on(rig: Rig, place: str) -> None:
    """The process dies at the place; people ask; the same command is started again."""

    def die() -> None:
        raise Killed

    prepare(rig, place, die)
    if place == "asked before the first round":
        rig.prepare = lambda team: team.evaluator.failures.update({"r00a1": Killed()})
    with pytest.raises(Killed):
        rig.start()
    ask_everything(rig)
    assert rig.answers() == [], "nobody else writes the journal"
    rig.prepare = lambda team: None
    search = rig.start()
    answers = dict(rig.answers())
    is_idea_there = place in ("implementing", "in r1a1", "before r2")
    assert answers == (LATER if is_idea_there else PROPOSAL)
    assert {done.phase for done in rig.handled()} == {"proposal"}
    assert outcomes(search) == (["baseline", "accepted"] if place == "before r2" else ["baseline"])


@pytest.mark.parametrize("is_owned", [True, False])
def test_once_the_search_has_ended_only_pauses_and_planning_state_are_left(rig: Rig, is_owned: bool) -> None:
    rig.start()
    if not is_owned:
        ask_everything(rig)
    with Journal.open(rig.journal) as journal:
        steering = Steering(journal, spec=rig.spec)
        if is_owned:
            ask_everything(rig)
        steering.safe_point(Site(phase=Phase.CERTIFICATION, round=3))
    assert dict(rig.answers()) == ENDED
    refused = [row.command for row in interventions_of(rig.events()) if row.state == "refused"]
    assert refused == [name for name, answer in ENDED.items() if answer == TOO_LATE], "the artifact lists them, too"


# -- ahead of the search: weights, reference, baselines


def at_a_step(rig: Rig, *, sleep: Callable[[float], None] = lambda seconds: None) -> Steering:
    with Journal.open(rig.journal) as journal:
        steering = Steering(journal, spec=rig.spec, sleep=sleep)
        steering.safe_point(Site(phase=Phase.BUILD, round=0))
    return steering


def test_before_a_step_only_what_does_not_speak_of_the_search_is_carried_out(rig: Rig) -> None:
    ask_everything(rig)
    at_a_step(rig)
    assert dict(rig.answers()) == {
        "backlog": "b2 is open", "note": "n1 is kept", "pause": WAITS, "resume": GOES_ON,
        "stop": "no further round; the best so far is certified",
    }  # fmt: skip
    assert outcomes(rig.start()) == ["baseline"], "the seed is certified"
    others = {
        name: answer for name, answer in rig.answers() if name in ("constrain", "pin", "budget", "backend", "veto")
    }
    assert others == {name: PROPOSAL[name] for name in others} and len(others) == 5


@pytest.mark.parametrize(("lifted_by", "rounds"), [("resume", 4), ("stop", 1)])
def test_a_pause_before_a_step_holds_until_it_is_lifted(rig: Rig, lifted_by: str, rounds: int) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            rig.ask(lifted_by)

    rig.ask("pause", why="the machine is needed")
    at_a_step(rig, sleep=nap)
    assert len(naps) == 3
    assert [done.phase for done in rig.handled()] == ["build", "build"]
    assert len(rig.start().entries) == rounds


def test_a_broken_request_is_refused_at_the_first_safe_point(rig: Rig) -> None:
    rig.ask("restart")
    (rig.root / "control" / "000002.json").write_text("{")
    at_a_step(rig)
    ((command, answer),) = rig.answers()
    assert (command, answer[:30]) == ("unreadable", "refused: it is no request: Exp")
    rig.start()
    assert rig.answers()[1][1].startswith("refused: there is no command 'restart'; valid: pause, resume, ")
