"""Backlog and memory as folds over a journal, and what a round makes of its item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vibeserve.core.nouns import Decision, Outcome, Proposal, Refusal, Round, Verdict
from vibeserve.journal import Journal, JournalError, read_events
from vibeserve.planning import (
    FRAMEWORK,
    PERSON,
    PLANNER,
    ItemState,
    PlanningBook,
    backlog_lines,
    backlog_of,
    memory_of,
    note_lines,
    settled,
)


def proposal(title: str = "batch the rows", **changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "proposal_id": "p1", "title": title, "hypothesis": "one read of the weights for all rows",
        "mechanism": f"how to {title}", "activation_evidence": "", "falsification": "", "forecast_ratio": 1.5,
        "components": (), "parameters": {},
    }  # fmt: skip
    return Proposal(**(values | changes))


def record(outcome: Outcome, *refusals: Refusal, number: int = 1, reason: str = "scripted") -> Round:
    return Round(
        number=number, proposal=proposal(), candidate=None, outcome=outcome, reason=reason,
        verdict=Verdict(refusals=refusals, checks=("scan",)),
        decision=None if refusals else Decision(accepted=False, reason=reason, headline=None, noise_floor=0.01),
    )  # fmt: skip


def refusal(gate: str, reason_class: str = "x") -> Refusal:
    return Refusal(gate=gate, reason_class=reason_class, text="text")


@pytest.fixture
def journal(tmp_path: Path) -> Any:
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        yield journal


@pytest.mark.parametrize(
    ("done", "state"),
    [
        (record(Outcome.ACCEPTED), ItemState.DONE),
        (record(Outcome.INFRA), ItemState.OPEN),
        (record(Outcome.REJECTED), ItemState.ABANDONED),
        (record(Outcome.REJECTED, refusal("accuracy")), ItemState.PARKED),
        (record(Outcome.CRASHED, refusal("serving", "died")), ItemState.PARKED),
        (record(Outcome.CRASHED, refusal("build", "build_failed")), ItemState.PARKED),
        (record(Outcome.TIMED_OUT, refusal("start", "timed_out")), ItemState.PARKED),
        (record(Outcome.REJECTED, refusal("agent", "gave_up")), ItemState.PARKED),
        (record(Outcome.REJECTED, refusal("review", "wrong_output")), ItemState.PARKED),
        (record(Outcome.REJECTED, refusal("review", "cheating")), ItemState.ABANDONED),
        (record(Outcome.REJECTED, refusal("scan", "engine_import")), ItemState.ABANDONED),
        (record(Outcome.REJECTED, refusal("assembly", "invalid_proposal")), ItemState.ABANDONED),
        (record(Outcome.REJECTED, refusal("accuracy"), refusal("integrity")), ItemState.ABANDONED),
    ],
)
def test_what_a_round_makes_of_its_item(done: Round, state: ItemState) -> None:
    assert settled(done)[0] is state


def test_an_item_goes_through_its_states_and_every_change_is_an_event(journal: Journal) -> None:
    book = PlanningBook(journal)
    item = book.start(proposal(), number=1, keys=())
    assert item == "b1" and book.backlog.items[item].state is ItemState.IN_PROGRESS
    measured = record(Outcome.REJECTED, reason="ratio 1.001, interval includes 1")
    settled_item = book.settle(measured)
    assert settled_item is not None and settled_item.state is ItemState.ABANDONED
    assert settled_item.last.mechanism == "how to batch the rows"
    assert settled_item.last.why == "measured: ratio 1.001, interval includes 1"
    assert book.settle(measured) is None, "once"
    changes = [(event.data["state"], event.data["who"], event.data["round"]) for event in journal.events("backlog")]
    assert changes == [("in_progress", PLANNER, 1), ("abandoned", FRAMEWORK, 1)]


def test_both_views_are_folds_that_a_reader_gets_as_well(journal: Journal) -> None:
    book = PlanningBook(journal)
    book.start(proposal(), number=1, keys=("k1",))
    book.settle(record(Outcome.ACCEPTED), keys=["k1", "k2"])
    book.add("quantise the cache", who=f"{PERSON} ada", round=1, mechanism="8 bits", request=3)
    book.change_note("n1", "add", text="the node  is\nnoisy \x1b[31m", who=PERSON, round=1)
    book.change_note("n2", "add", text="second", who=PERSON, round=1)
    book.change_note("n1", "edit", text="the node is quiet", who=PERSON, round=2, request=4)
    book.change_note("n2", "remove", text="", who=PERSON, round=2)
    events = read_events(journal.path)
    assert backlog_of(events) == book.backlog and memory_of(events) == book.memory
    assert [(item.id, item.state.value, item.opened_by) for item in backlog_of(events).of()] == [
        ("b1", "done", "planner"), ("b2", "open", "person ada"),
    ]  # fmt: skip
    assert backlog_of(events).items["b1"].last.keys == ("k1", "k2")
    assert {key: note.text for key, note in memory_of(events).notes.items()} == {"n1": "the node is quiet"}
    assert memory_of(events).next_id() == "n3", "the number of a note that is gone is not given again"
    assert backlog_of(events).requests == {3: "b2"} and memory_of(events).requests == {4: "n1"}


def test_what_a_terminal_would_obey_is_not_kept(journal: Journal) -> None:
    book = PlanningBook(journal)
    book.change_note("n1", "add", text="red \x1b[31m\nnext", who=PERSON, round=0)
    book.add("title\x07", who=PERSON, round=0)
    assert book.memory.notes["n1"].text == "red [31m next"
    assert book.backlog.items["b1"].title == "title"


def test_the_same_idea_takes_up_its_parked_item(journal: Journal) -> None:
    book = PlanningBook(journal)
    assert book.start(proposal(), number=1, keys=()) == "b1"
    book.settle(record(Outcome.REJECTED, refusal("accuracy")))
    assert book.start(proposal("batch rows"), number=2, keys=()) == "b1"
    assert book.backlog.items["b1"].last.round == 2
    book.settle(record(Outcome.ACCEPTED, number=2))
    assert book.start(proposal(), number=3, keys=()) == "b2", "what is done is not done again"


def test_a_round_that_left_no_record_leaves_its_item_open(journal: Journal) -> None:
    PlanningBook(journal).start(proposal(), number=1, keys=())
    again = PlanningBook(journal)
    assert again.start(proposal(), number=1, keys=()) == "b1"
    assert len(journal.events("backlog")) == 1, "the same round of the same idea is no change"
    other = PlanningBook(journal)
    assert other.start(proposal("quantise the cache"), number=1, keys=()) == "b2"
    assert other.backlog.items["b1"].state is ItemState.OPEN
    assert other.backlog.items["b1"].last.why == "the round was interrupted"


def test_a_change_of_another_version_is_refused_with_the_version(journal: Journal) -> None:
    PlanningBook(journal).add("an idea", who=PERSON, round=0)
    newer = dict(journal.events("backlog")[0].data, schema_version=7)
    journal.append("backlog", newer)
    with pytest.raises(JournalError, match="a change of the backlog of schema_version 7; this version of VibeServe"):
        backlog_of(journal.events())


def test_lines_for_people_are_bounded(journal: Journal) -> None:
    book = PlanningBook(journal)
    for number in range(1, 40):
        book.add(f"idea {number} " + "x" * 300, who=PERSON, round=0, why="y" * 3000)
        book.change_note(f"n{number}", "add", text="z" * 900, who=PERSON, round=0)
    lines = [*backlog_lines(book.backlog), *note_lines(book.memory)]
    assert len(lines) == 7 and max(map(len, lines)) == 240
    assert max(len(event.data["why"]) for event in journal.events("backlog")) == 2000
