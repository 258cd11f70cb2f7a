"""Cache of a hybrid model with shared prefixes: states by slot, keys and values by extent (`prefix_pool`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import placement
from .hybrid import HybridConfig
from .interfaces import Batch, Segment
from .parameters import Parameters
from .prefix_pool import Extent, Match, PrefixPool, Snapshot
from .views import Views

F32_BYTES = 4
MIB = 1 << 20


class KVCache:
    """`states` and `windows` of running sequences: see `hybrid.HybridCacheLike`. `views` says where the keys and values
    of a step's segments lie."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.config = config
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        heads = (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
        window = (config.conv_kernel - 1, config.conv_dim)
        self.states = {layer: torch.zeros(self.num_slots, *heads) for layer in config.linear_layers}
        self.windows = {layer: torch.zeros(self.num_slots, *window) for layer in config.linear_layers}
        self.pool = _pool_of(self, parameters)
        self.views = Views(())
        self._extents: list[Extent | None] = [None] * self.num_slots
        self._marks: list[set[int]] = [set() for _ in range(self.num_slots)]
        self._free = list(reversed(range(self.num_slots)))

    @property
    def usage(self) -> float:
        return 1.0 - len(self._free) / self.num_slots

    @property
    def has_free_slot(self) -> bool:
        return bool(self._free)

    def allocate(self, num_tokens: int) -> int | None:
        """See `interfaces.KVCacheLike`: a slot without a prefix. Raises ValueError for more tokens than may be."""
        return self._start(num_tokens, match=Match(extent=None, num_tokens=0, num_known=0))

    def resume(self, token_ids: Sequence[int], *, max_num_tokens: int) -> int | None:
        """A slot for a sequence with prompt `token_ids`, which goes on behind the longest prefix that is known
        (`num_seen`); None while there is no slot or no memory."""
        match = self.pool.match(token_ids)
        slot = self._start(max_num_tokens, match=match)
        if slot is None and match.num_tokens:
            # its own prefix may be all that stands in the way of the memory it needs
            slot = self._start(max_num_tokens, match=Match(extent=None, num_tokens=0, num_known=0))
        return slot

    def free(self, slot: int) -> None:
        extent = self._extents[slot]
        if extent is None:
            raise ValueError(f"slot {slot} is already free")
        self.pool.release(extent)
        self._extents[slot] = None
        self._free.append(slot)

    def num_seen(self, slot: int) -> int:
        """Tokens of the slot's sequence that the states have seen."""
        return self.extent_of(slot).stop

    def extent_of(self, slot: int) -> Extent:
        extent = self._extents[slot]
        if extent is None:
            raise ValueError(f"slot {slot} is free")
        return extent

    def mark(self, slot: int, place: int) -> None:
        """Ask for a snapshot behind `place` tokens, if the sequence is not there yet."""
        if place > self.num_seen(slot):
            self._marks[slot].add(place)

    def marks(self, slot: int) -> list[int]:
        """Places still to come, ascending: the rows of a step have to end there."""
        return sorted(self._marks[slot])

    def begin(self, batch: Batch) -> None:
        """See `hybrid.HybridCacheLike`."""
        for segment in batch.segments:
            extent = self.extent_of(segment.slot)
            if segment.start_position == 0 and extent.start == 0:
                self.pool.clear(extent)
                for tensors in (self.states, self.windows):
                    for tensor in tensors.values():
                        tensor[segment.slot].zero_()
            if extent.stop != segment.start_position:
                where = f"slot {segment.slot} has seen {extent.stop} tokens"
                raise ValueError(f"{where}; it cannot go on at {segment.start_position}")
            if segment.stop_position > extent.start + extent.capacity:
                raise ValueError(f"slot {segment.slot} holds no {segment.stop_position} tokens")
        self.views = Views([(segment, self.extent_of(segment.slot)) for segment in batch.segments])

    def end(self, batch: Batch) -> None:
        """See `hybrid.HybridCacheLike`. Takes the snapshots that were asked for."""
        token_ids: list[int] = batch.token_ids.tolist()
        for segment in batch.segments:
            extent = self.extent_of(segment.slot)
            extent.token_ids += token_ids[segment.start_row : segment.stop_row]
            self._take_marked(segment, extent)

    def _take_marked(self, segment: Segment, extent: Extent) -> None:
        marks, place = self._marks[segment.slot], segment.stop_position
        is_marked = place in marks
        marks.difference_update([each for each in marks if each <= place])
        if is_marked and self.pool.make_room(self.pool.snapshot_bytes, spared=extent):
            self.pool.keep(extent, place, self._snapshot(segment.slot))

    def _snapshot(self, slot: int) -> Snapshot:
        """Copies: the slot's sequence goes on."""
        return Snapshot(
            states={layer: tensor[slot].clone() for layer, tensor in self.states.items()},
            windows={layer: tensor[slot].clone() for layer, tensor in self.windows.items()},
        )

    def _start(self, max_num_tokens: int, *, match: Match) -> int | None:
        if max_num_tokens > self.max_context_tokens:
            raise ValueError(f"{max_num_tokens} tokens do not fit a slot of {self.max_context_tokens}")
        capacity = max_num_tokens - match.num_tokens
        if not self._free or not self.pool.make_room(capacity * self.pool.token_bytes, spared=match.extent):
            return None
        slot = self._free.pop()
        extent = Extent(
            start=match.num_tokens, capacity=capacity, parent=match.extent, keys=self._tensors(capacity),
            values=self._tensors(capacity),
        )
        self.pool.add(extent)
        self._extents[slot] = extent
        self._marks[slot].clear()
        self._restore(slot, match)
        return slot

    def _restore(self, slot: int, match: Match) -> None:
        """States of the slot as they were behind the prefix: copied, for the sequence will change them."""
        snapshot = match.extent.snapshots[match.num_tokens] if match.extent is not None else None
        for layer, tensor in self.states.items():
            tensor[slot].copy_(snapshot.states[layer]) if snapshot is not None else tensor[slot].zero_()
        for layer, tensor in self.windows.items():
            tensor[slot].copy_(snapshot.windows[layer]) if snapshot is not None else tensor[slot].zero_()

    def _tensors(self, capacity: int) -> dict[int, Tensor]:
        shape = (self.config.num_kv_heads, capacity, self.config.head_dim)
        return {layer: placement.empty(shape, dtype=torch.float32) for layer in self.config.attention_layers}


def _pool_of(cache: KVCache, parameters: Parameters) -> PrefixPool:
    """Raises ValueError for a bound that does not hold one sequence with a snapshot."""
    config = cache.config
    token_bytes = len(config.attention_layers) * 2 * config.num_kv_heads * config.head_dim * F32_BYTES
    tensors = [*cache.states.values(), *cache.windows.values()]
    snapshot_bytes = sum(tensor[0].numel() * F32_BYTES for tensor in tensors)
    max_bytes = parameters.kv_cache_mib * MIB
    least = cache.max_context_tokens * token_bytes + snapshot_bytes
    if max_bytes < least:
        what = f"kv_cache_mib {parameters.kv_cache_mib} holds no sequence of {cache.max_context_tokens} tokens"
        raise ValueError(f"{what}; it takes {-(-least // MIB)}")
    return PrefixPool(max_bytes=max_bytes, token_bytes=token_bytes, snapshot_bytes=snapshot_bytes)
