"""The planning state of a run, and the only one who writes it: every change is journalled before it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from vibeserve.core.nouns import Proposal, Round
from vibeserve.journal import Journal
from vibeserve.planning.backlog import (
    BACKLOG,
    FRAMEWORK,
    MAX_TITLE_CHARS,
    MAX_WHY_CHARS,
    PLANNER,
    Change,
    Item,
    ItemState,
    backlog_of,
)
from vibeserve.planning.likeness import alike
from vibeserve.planning.memory import MAX_NOTE_CHARS, NOTE, NoteChange, memory_of
from vibeserve.planning.settling import settled

Keys = Callable[[Proposal], tuple[str, ...]]
"""`likeness.keys_of` at the incumbent of the time"""
INTERRUPTED = "the round was interrupted"


class PlanningBook:
    """Backlog and memory of the run whose journal is open here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        events = journal.events()
        self.backlog = backlog_of(events)
        self.memory = memory_of(events)

    def start(
        self, proposal: Proposal, *, number: int, keys: tuple[str, ...], item: str = "", beside: Iterable[int] = ()
    ) -> str:
        """A round tries `proposal`: its item is in progress. Returns the item's id.

        The item is `item` where it has one, else the open or parked one that it is like, else a new one. Items that an
        interrupted round left in progress are open again; those of the rounds `beside` it are in progress with it.
        """
        found = self.backlog.items.get(item) or self._same_idea(proposal, keys)
        self.release(number=number, but=found, beside=beside)
        if found is not None and (found.state, found.last.round) == (ItemState.IN_PROGRESS, number):
            return found.id  # the same round again, after a kill
        change = Change(
            item=found.id if found else self.backlog.next_id(), state=ItemState.IN_PROGRESS,
            title=found.title if found else _one_line(proposal.title, MAX_TITLE_CHARS),
            mechanism=_one_line(proposal.mechanism, MAX_WHY_CHARS),
            why=_one_line(proposal.hypothesis, MAX_WHY_CHARS), who=PLANNER if not item else FRAMEWORK, round=number,
            keys=keys, what_changed=_one_line(proposal.what_changed, MAX_WHY_CHARS),
        )  # fmt: skip
        self.take(change)
        return change.item

    def release(self, *, number: int, but: Item | None = None, beside: Iterable[int] = ()) -> None:
        """What a round that left no record had in progress is open again."""
        others = set(beside)
        for item in self.backlog.of(ItemState.IN_PROGRESS):
            if (but is None or item.id != but.id) and item.last.round not in others:
                self.change(item, ItemState.OPEN, who=FRAMEWORK, round=number, why=INTERRUPTED)

    def _same_idea(self, proposal: Proposal, keys: Sequence[str]) -> Item | None:
        waiting = self.backlog.of(ItemState.IN_PROGRESS, ItemState.PARKED, ItemState.OPEN)
        same = alike(proposal, keys=keys, items=waiting)
        return same[0] if same else None

    def settle(self, record: Round, *, keys: Iterable[str] = ()) -> Item | None:
        """What the finished round makes of its item; None where it has none, or that is settled already.

        `keys`: of every assembly that the round offered.
        """
        under_way = self.backlog.of(ItemState.IN_PROGRESS)
        item = next((each for each in under_way if each.last.round == record.number), None)
        if item is None:
            return None
        state, why = settled(record)
        known = tuple(dict.fromkeys((*item.last.keys, *keys)))
        return self.change(item, state, who=FRAMEWORK, round=record.number, why=why, keys=known)

    def change(
        self, item: Item, state: ItemState, *, who: str, round: int, why: str = "", request: int = 0,
        keys: tuple[str, ...] | None = None,
    ) -> Item:  # fmt: skip
        """Move an item to another state."""
        last = item.last
        return self.take(
            Change(
                item=item.id, state=state, title=last.title, mechanism=last.mechanism,
                why=_one_line(why, MAX_WHY_CHARS), who=who, round=round, what_changed=last.what_changed,
                keys=last.keys if keys is None else keys, request=request,
            )
        )  # fmt: skip

    def add(
        self, title: str, *, who: str, round: int, mechanism: str = "", why: str = "", keys: tuple[str, ...] = (),
        what_changed: str = "", request: int = 0,
    ) -> Item:  # fmt: skip
        """A new open item."""
        return self.take(
            Change(
                item=self.backlog.next_id(), state=ItemState.OPEN, title=_one_line(title, MAX_TITLE_CHARS),
                mechanism=_one_line(mechanism, MAX_WHY_CHARS), why=_one_line(why, MAX_WHY_CHARS), who=who, round=round,
                keys=keys, what_changed=_one_line(what_changed, MAX_WHY_CHARS), request=request,
            )
        )  # fmt: skip

    def change_note(self, note: str, action: str, *, text: str, who: str, round: int, request: int = 0) -> None:
        """Add (under `memory.next_id()`), edit or remove a note."""
        change = NoteChange(
            note=note, action=action, text=_one_line(text, MAX_NOTE_CHARS), who=who, round=round, request=request
        )
        self._journal.append(NOTE, change)
        self.memory.take(change)

    def take(self, change: Change) -> Item:
        """Journal a change, then count it."""
        self._journal.append(BACKLOG, change)
        return self.backlog.take(change)


def _one_line(text: str, max_chars: int) -> str:
    """Text for a line of a list, a prompt or a terminal."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= max_chars else line[: max_chars - 3] + "..."
