"""What a search takes over from the one that its seed came from: ideas with what became of them, and notes.

An abandoned idea stays abandoned, unless what it was abandoned for is no longer so: its words name a fact that changed
since. Then it is open again. Naming is by words, so an idea may be reopened that had another reason; a round decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.journal import Event, Journal
from vibeserve.plan.difference import ChangedFact
from vibeserve.planning.backlog import FRAMEWORK, Change, Item, ItemState, backlog_of
from vibeserve.planning.book import PlanningBook
from vibeserve.planning.likeness import words_of
from vibeserve.planning.memory import ADD, memory_of

INHERITED = "inherited"
"""event of the journal: ideas and notes were taken over, so that a resumed run does it once"""
UNITS = frozenset(("s", "ms", "gib", "gb", "usd", "per", "num", "max", "min"))
VAGUE = frozenset(("name", "id", "kind", "path", "digest", "source", "config", "options", "value", "dtypes", "loads"))
"""last parts of keys that say nothing by themselves"""
SPOKEN: dict[str, tuple[str, ...]] = {
    "model.revision": ("weights", "checkpoint", "revision"),
    "model.id": ("model",),
    "model.source": ("weights", "checkpoint"),
    "machine.num_cpus": ("cores", "threads", "cpus"),
    "hardware.engine_cpus": ("cores", "threads"),
    "hardware.engine_threads": ("cores", "threads"),
    "machine.gpus": ("gpu", "driver"),
    "machine.memory_gib": ("memory",),
    "inputs.lock": ("torch", "version"),
    "inputs.skills": ("component", "card"),
}
"""beginning of a fact's name -> how one speaks of it"""


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """Document: what was taken over."""

    source: str
    """the artifact: target and plan"""
    num_items: int
    num_notes: int
    reopened: tuple[str, ...] = ()
    """of each reopened idea: its title and the fact that it names"""
    schema_version: int = 1


def inherit(
    book: PlanningBook, journal: Journal, *, events: Iterable[Event], facts: Sequence[ChangedFact], source: str
) -> Inherited:
    """Take over backlog and notes of `events`, the journal of the search that the seed came from, into `book`, whose
    journal is `journal`.

    `facts` are those that changed since. A second call changes nothing and returns what the first one did.
    """
    done = journal.last(INHERITED)
    if done is not None:
        return Inherited(**{**done.data, "reopened": tuple(done.data["reopened"])})
    known = list(events)
    items, reopened = backlog_of(known).of(), []
    for item in items:
        fact = next(filter(None, (_named(item, each) for each in facts)), None)
        book.take(_taken(item, name=book.backlog.next_id(), fact=fact, source=source))
        if fact is not None and item.state is ItemState.ABANDONED:
            reopened.append(f"{item.title} ({fact})")
    notes = list(memory_of(known).notes.values())
    for note in notes:
        book.change_note(book.memory.next_id(), ADD, text=note.text, who=note.who, round=0)
    found = Inherited(source=source, num_items=len(items), num_notes=len(notes), reopened=tuple(reopened))
    journal.append(INHERITED, found)
    return found


def _taken(item: Item, *, name: str, fact: ChangedFact | None, source: str) -> Change:
    """The item as the new search begins with it. A person's wish was for the old one: here it is one idea of many."""
    last, state = item.last, item.state
    why = last.why
    if state is ItemState.IN_PROGRESS:
        state, why = ItemState.OPEN, f"it was under way when {source} was made"
    if state is ItemState.ABANDONED and fact is not None:
        state, why = ItemState.OPEN, f"reopened: it was abandoned for '{last.why}', and {fact}"
    keys = () if state is ItemState.OPEN and last.state is ItemState.ABANDONED else last.keys
    return Change(
        item=name, state=state, title=last.title, mechanism=last.mechanism, why=why, who=FRAMEWORK, round=0, keys=keys,
        what_changed=str(fact) if keys != last.keys and fact is not None else last.what_changed,
    )  # fmt: skip


def _named(item: Item, fact: ChangedFact) -> ChangedFact | None:
    """The fact where the item's words name it."""
    said = words_of(f"{item.title} {item.last.mechanism} {item.last.why}")
    return fact if any(term and term <= said for term in terms_of(fact)) else None


def terms_of(fact: ChangedFact) -> Iterator[frozenset[str]]:
    """Sets of words, each of which names the fact where all of it is said: its key, how one speaks of it, and the words
    in which its values differ. Numbers name nothing."""
    last = [part for part in fact.name.split(".") if not part.isdigit()][-1]
    key = [part for part in last.split("_") if part not in UNITS]
    if last not in VAGUE and key:
        yield words_of(" ".join(key))
    for beginning, spoken in SPOKEN.items():
        if fact.name == beginning or fact.name.startswith((f"{beginning}.", f"{beginning}_")):
            yield from (words_of(word) for word in spoken)
    for value in sorted(_texts(fact.before) ^ _texts(fact.after)):
        yield words_of(value.replace("_", " "))


def _texts(value: Any) -> set[str]:
    """Texts in a value that say something: letters among them."""
    if isinstance(value, str):
        return {value} if re.search(r"[A-Za-z]{2}", value) else set()
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return {text for item in inner for text in _texts(item)}
    return set()
