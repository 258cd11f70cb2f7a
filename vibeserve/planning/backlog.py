"""The backlog of ideas: a view of the journal's `backlog` events, each one change of one item.

An item is open, in progress (a round tries it), done (accepted), parked (buggy but believable) or abandoned
(unsuitable, with the mechanism that says why).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vibeserve.journal import Event, JournalError

BACKLOG = "backlog"
"""event of the journal: one change of one item"""
PLANNER, FRAMEWORK, PERSON = "planner", "framework", "person"
"""who changed something; a person may be named: `person ada`"""
MAX_TITLE_CHARS, MAX_WHY_CHARS = 200, 2000


class ItemState(Enum):
    OPEN = "open"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    PARKED = "parked"
    ABANDONED = "abandoned"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Document: an item as one event leaves it, with who did it and why."""

    schema_version: int = 1
    item: str
    state: ItemState
    title: str
    mechanism: str = ""
    """how the idea works; of an abandoned item, what turned out not to"""
    why: str = ""
    """of this change: the round's reason, or a person's words"""
    who: str
    """planner, framework, person, or person and a name"""
    round: int
    """in or before which it happened"""
    keys: tuple[str, ...] = ()
    """digests of the assemblies that it stands for (`likeness.assembly_key`); empty for an idea in words"""
    what_changed: str = ""
    """against the abandoned idea that it is like"""
    request: int = 0
    """number of the request in `control/` that brought it; 0 = none"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """What its changes add up to."""

    last: Change
    opened_by: str
    num_changes: int

    @property
    def id(self) -> str:
        return self.last.item

    @property
    def state(self) -> ItemState:
        return self.last.state

    @property
    def title(self) -> str:
        return self.last.title

    @property
    def is_persons(self) -> bool:
        return self.opened_by.startswith(PERSON)

    def __str__(self) -> str:
        return f"{self.id} {self.state.value}: {self.title}"


@dataclass(kw_only=True)
class Backlog:
    """Items by id, in the order in which they came."""

    items: dict[str, Item] = field(default_factory=dict)
    requests: dict[int, str] = field(default_factory=dict)
    """request of `control/` -> item that it changed"""

    def take(self, change: Change) -> Item:
        """Count one more change."""
        before = self.items.get(change.item)
        item = Item(
            last=change, opened_by=before.opened_by if before else change.who,
            num_changes=before.num_changes + 1 if before else 1,
        )  # fmt: skip
        self.items[change.item] = item
        if change.request:
            self.requests[change.request] = change.item
        return item

    def of(self, *states: ItemState) -> list[Item]:
        """Items in one of `states`; all of them without any."""
        return [item for item in self.items.values() if not states or item.state in states]

    @property
    def abandoned_keys(self) -> frozenset[str]:
        """Assemblies that were given up."""
        return frozenset(key for item in self.of(ItemState.ABANDONED) for key in item.last.keys)

    def next_id(self) -> str:
        return f"b{len(self.items) + 1}"


def backlog_of(events: Iterable[Event]) -> Backlog:
    """The backlog that a journal's events add up to. JournalError for a change of another version."""
    backlog = Backlog()
    for event in events:
        if event.kind == BACKLOG:
            backlog.take(_change_of(event.data))
    return backlog


def _change_of(data: Mapping[str, Any]) -> Change:
    """Read by hand: a long history is folded at every start."""
    refuse_version(data, what="a change of the backlog")
    return Change(**{**data, "state": ItemState(data["state"]), "keys": tuple(data["keys"])})


def refuse_version(data: Mapping[str, Any], *, what: str) -> None:
    """JournalError where `data` is a document of a version that is not known here."""
    version = data.get("schema_version")
    if version != 1:
        raise JournalError(
            f"the journal holds {what} of schema_version {version}; this version of VibeServe reads 1\n"
            "next: go on with the version that wrote it, or start the run anew"
        )
