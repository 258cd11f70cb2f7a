"""What a search takes over from the one that its seed came from, and which ideas a changed fact opens again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vibeserve.core.documents import to_data
from vibeserve.journal import Event, Journal, read_events
from vibeserve.plan.difference import ChangedFact
from vibeserve.planning import BACKLOG, NOTE, PERSON, Change, ItemState, NoteChange, PlanningBook, inherit

SOURCE = "tiny_cpu/0123456789abcdef"


def earlier(*changes: Change | NoteChange) -> list[Event]:
    return [
        Event(seq=seq, time_s=0.0, kind=NOTE if isinstance(each, NoteChange) else BACKLOG, data=to_data(each))
        for seq, each in enumerate(changes)
    ]  # fmt: skip


def idea(item: str, state: ItemState, **changes: Any) -> Change:
    values: dict[str, Any] = {"title": f"idea {item}", "why": "measured: 0.98x", "who": "planner", "round": 3}
    return Change(item=item, state=state, **(values | changes))


def taken(tmp_path: Path, events: list[Event], *facts: ChangedFact) -> tuple[PlanningBook, Any]:
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        book = PlanningBook(journal)
        return book, inherit(book, journal, events=events, facts=facts, source=SOURCE)


def states(book: PlanningBook) -> dict[str, str]:
    return {item.title: item.state.value for item in book.backlog.of()}


def test_ideas_keep_what_became_of_them(tmp_path: Path) -> None:
    events = earlier(
        idea("b1", ItemState.DONE), idea("b2", ItemState.PARKED), idea("b3", ItemState.ABANDONED),
        idea("b4", ItemState.IN_PROGRESS), idea("b5", ItemState.OPEN, who=f"{PERSON} ada"),
    )  # fmt: skip
    book, found = taken(tmp_path, events)
    assert states(book) == {
        "idea b1": "done", "idea b2": "parked", "idea b3": "abandoned", "idea b4": "open", "idea b5": "open",
    }  # fmt: skip
    assert not any(item.is_persons for item in book.backlog.of())
    assert (found.num_items, found.num_notes, found.reopened) == (5, 0, ())


def test_notes_come_along_but_for_those_that_were_removed(tmp_path: Path) -> None:
    events = earlier(
        NoteChange(note="n1", action="add", text="bf16 is slow here", who="person", round=1),
        NoteChange(note="n2", action="add", text="wrong", who="person", round=1),
        NoteChange(note="n2", action="remove", who="person", round=2),
    )  # fmt: skip
    book, found = taken(tmp_path, events)
    assert [note.text for note in book.memory.notes.values()] == ["bf16 is slow here"]
    assert found.num_notes == 1


@pytest.mark.parametrize(
    ("mechanism", "why", "fact"),
    [
        ("needs the AVX512 VNNI instructions", "", ChangedFact(
            name="machine.cpu_flags", before=["avx2"], after=["avx2", "avx512_vnni"])),
        ("", "measured: the driver copies too slowly", ChangedFact(
            name="machine.gpus", before=[{"driver": "550"}], after=[{"driver": "570"}])),
        ("splits the vocabulary by its size", "vocab size is odd", ChangedFact(
            name="model.vocab_size", before=1023, after=1024)),
        ("packs the weights", "", ChangedFact(name="model.revision", before="a" * 40, after="b" * 40)),
        ("one thread per core", "", ChangedFact(name="machine.num_cpus", before=2, after=8)),
    ],
)  # fmt: skip
def test_an_abandoned_idea_whose_words_name_a_changed_fact_is_open_again(
    tmp_path: Path, mechanism: str, why: str, fact: ChangedFact
) -> None:
    events = earlier(idea("b1", ItemState.ABANDONED, mechanism=mechanism, why=why or "measured", keys=("k1",)))
    book, found = taken(tmp_path, events, fact)
    (item,) = book.backlog.of()
    assert item.state is ItemState.OPEN
    assert item.last.why.startswith("reopened: it was abandoned for '") and str(fact) in item.last.why
    assert book.backlog.abandoned_keys == frozenset(), "the same assembly may be tried again"
    assert found.reopened == (f"idea b1 ({fact})",)


@pytest.mark.parametrize(
    "fact",
    [
        ChangedFact(name="hardware.memory_gib", before=16.0, after=32.0),
        ChangedFact(name="workload.loads.c4.concurrency", before=4, after=8),
        ChangedFact(name="model.id", before="tiny_llama", after="tiny_llama_2"),
        ChangedFact(name="search.seed", before=0, after=1),
    ],
)
def test_an_idea_that_names_nothing_that_changed_stays_abandoned(tmp_path: Path, fact: ChangedFact) -> None:
    events = earlier(idea("b1", ItemState.ABANDONED, mechanism="fuses gate and up into one product", keys=("k1",)))
    book, found = taken(tmp_path, events, fact)
    assert states(book) == {"idea b1": "abandoned"}
    assert book.backlog.abandoned_keys == {"k1"} and found.reopened == ()


def test_a_parked_idea_is_not_reopened_by_a_fact(tmp_path: Path) -> None:
    fact = ChangedFact(name="machine.num_cpus", before=2, after=8)
    book, _ = taken(tmp_path, earlier(idea("b1", ItemState.PARKED, mechanism="more threads")), fact)
    assert states(book) == {"idea b1": "parked"}


def test_it_is_done_once_a_run(tmp_path: Path) -> None:
    events = earlier(idea("b1", ItemState.ABANDONED, mechanism="more threads"))
    fact = ChangedFact(name="machine.num_cpus", before=2, after=8)
    _, first = taken(tmp_path, events, fact)
    before = read_events(tmp_path / "journal.jsonl")
    book, second = taken(tmp_path, events, fact)
    assert second == first and read_events(tmp_path / "journal.jsonl") == before
    assert len(book.backlog.items) == 1
