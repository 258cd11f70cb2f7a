"""Prefixes that were computed before: a tree of extents under one bound of memory.

An *extent* holds keys and values of consecutive tokens, and *snapshots*: copies of the recurrent and convolution
states after some of them. A sequence writes into an extent of its own that starts where it left its parent; what lies
before is the parent's, read in place and never copied. A prefix can be taken up again only where a snapshot is: keys
and values can be cut anywhere, a state cannot.

Only tokens that were computed are ever matched, by their ids, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(kw_only=True, slots=True)
class Snapshot:
    """States of all linear layers after a prefix. Never written to once it is taken."""

    states: dict[int, Tensor]
    windows: dict[int, Tensor]


@dataclass(kw_only=True, eq=False, slots=True)
class Extent:
    """Tokens `start : start + len(token_ids)` of some sequence, behind `start` tokens of its parent's."""

    start: int
    capacity: int
    """tokens that its tensors hold"""
    parent: Extent | None
    keys: dict[int, Tensor]
    """attention layer -> [num_kv_heads, capacity, head_dim]"""
    values: dict[int, Tensor]
    token_ids: list[int] = field(default_factory=list)
    """those that were computed"""
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    """number of tokens since the sequence began -> states behind them"""
    children: list[Extent] = field(default_factory=list)
    is_running: bool = True
    last_used: int = 0

    @property
    def stop(self) -> int:
        return self.start + len(self.token_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """What the pool knows of a prompt."""

    extent: Extent | None
    num_tokens: int
    """where to go on: tokens in front of a snapshot; 0 = from the beginning"""
    num_known: int
    """tokens that the prompt has in common with some extent, snapshot or not"""


class PrefixPool:
    """The extents of all sequences, running and kept. Never more than `max_bytes`, which the caller asks for first."""

    def __init__(self, *, max_bytes: int, token_bytes: int, snapshot_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.token_bytes = token_bytes
        self.snapshot_bytes = snapshot_bytes
        self.num_bytes = 0
        self.num_evicted = 0
        self._roots: list[Extent] = []
        self._clock = 0

    def match(self, token_ids: Sequence[int]) -> Match:
        """The longest prefix of `token_ids` that ends at a snapshot and leaves one token or more to compute."""
        best, best_tokens, num_known = None, 0, 0
        pending = list(self._roots)
        while pending:
            extent = pending.pop()
            same = extent.start + num_equal(extent.token_ids, token_ids, offset=extent.start)
            num_known = max(num_known, same)
            usable = [place for place in extent.snapshots if place <= same and place < len(token_ids)]
            if usable and max(usable) > best_tokens:
                best, best_tokens = extent, max(usable)
            pending += [child for child in extent.children if child.start <= same]
        return Match(extent=best, num_tokens=best_tokens, num_known=min(num_known, len(token_ids)))

    def add(self, extent: Extent) -> None:
        """Take up the extent of a sequence that starts. Its bytes were made room for."""
        siblings = self._roots if extent.parent is None else extent.parent.children
        siblings.append(extent)
        self.num_bytes += extent.capacity * self.token_bytes
        self.mark_used(extent)

    def keep(self, extent: Extent, place: int, snapshot: Snapshot) -> None:
        """Add a snapshot. Its bytes were made room for."""
        if place not in extent.snapshots:
            self.num_bytes += self.snapshot_bytes
        extent.snapshots[place] = snapshot

    def mark_used(self, extent: Extent | None) -> None:
        """Mark the extent and all before it as just used."""
        self._clock += 1
        while extent is not None:
            extent.last_used = self._clock
            extent = extent.parent

    def release(self, extent: Extent) -> None:
        """Its sequence has ended. What nobody could take up again goes at once."""
        extent.is_running = False
        self._drop_useless(extent)

    def make_room(self, num_bytes: int, *, spared: Extent | None = None) -> bool:
        """Evict what was used longest ago until `num_bytes` more fit; whether they do. `spared` and all before it
        stay, and so does whatever a running sequence reads."""
        kept = set(ancestry(spared))
        while self.num_bytes + num_bytes > self.max_bytes:
            leaves = [item for item in self._extents() if not item.is_running and not item.children]
            candidates = [leaf for leaf in leaves if leaf not in kept]
            if not candidates:
                return False
            oldest = min(candidates, key=lambda item: item.last_used)
            self.num_evicted += 1
            self._remove(oldest)
        return True

    def clear(self, extent: Extent) -> None:
        """A running sequence starts again. Raises ValueError where others read what it would overwrite."""
        if extent.children:
            raise ValueError("tokens that other sequences share cannot be computed again")
        self.num_bytes -= len(extent.snapshots) * self.snapshot_bytes
        extent.snapshots.clear()
        extent.token_ids.clear()

    def _drop_useless(self, extent: Extent | None) -> None:
        while extent is not None and not (extent.is_running or extent.children or extent.snapshots):
            parent = extent.parent
            self._remove(extent)
            extent = parent

    def _remove(self, extent: Extent) -> None:
        siblings = self._roots if extent.parent is None else extent.parent.children
        siblings.remove(extent)
        self.num_bytes -= extent.capacity * self.token_bytes + len(extent.snapshots) * self.snapshot_bytes
        self._drop_useless(extent.parent)

    def _extents(self) -> Iterator[Extent]:
        pending = list(self._roots)
        while pending:
            extent = pending.pop()
            yield extent
            pending += extent.children


def ancestry(extent: Extent | None) -> Iterator[Extent]:
    """The extent and all that it continues, last first."""
    while extent is not None:
        yield extent
        extent = extent.parent


def num_equal(one: Sequence[int], other: Sequence[int], *, offset: int = 0) -> int:
    """How many items `one` has in common with what follows `offset` in `other`, from the first on."""
    low, high = 0, max(0, min(len(one), len(other) - offset))
    if one[:high] == other[offset : offset + high]:
        return high
    # slices compare at memory speed: halving reads less than twice what a loop over the items would
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[offset + low : offset + middle]:
            low = middle
        else:
            high = middle
    return low
