"""Where the context of each segment of a step lies: pieces of extents, those that several decode rows read apart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from .interfaces import Segment
from .prefix_pool import Extent, ancestry


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens `start : stop` of a sequence, which lie in `extent`."""

    extent: Extent
    start: int
    stop: int

    def keys(self, layer: int) -> Tensor:
        """f32 [num_kv_heads, stop - start, head_dim], in place."""
        return self.extent.keys[layer][:, self.start - self.extent.start : self.stop - self.extent.start]

    def values(self, layer: int) -> Tensor:
        return self.extent.values[layer][:, self.start - self.extent.start : self.stop - self.extent.start]


class Views:
    """Of one step. Segments with one row are *decoding*; the others are prompts or pieces of one."""

    def __init__(self, segments: Iterable[tuple[Segment, Extent]]) -> None:
        self.segments = list(segments)
        self.prompts = [(segment, list(pieces_of(extent, segment.stop_position))) for segment, extent in self.segments
                        if segment.num_rows > 1]  # fmt: skip
        self.decoding = self._by_piece([each for each in self.segments if each[0].num_rows == 1])

    def own_rows(self, segment: Segment, extent: Extent) -> slice:
        """Where the segment's rows lie in its own extent."""
        return slice(segment.start_position - extent.start, segment.stop_position - extent.start)

    def _by_piece(self, decoding: list[tuple[Segment, Extent]]) -> dict[Piece, list[int]]:
        """Piece -> rows of the step that read it. A sequence whose extent others branched off reads it in parts, so
        that the part in front of the branch is one piece for all of them."""
        chains = [(segment, list(pieces_of(extent, segment.stop_position))) for segment, extent in decoding]
        cuts: dict[Extent, set[int]] = defaultdict(set)
        for _, pieces in chains:
            for piece in pieces:
                cuts[piece.extent].add(piece.stop)
        found: dict[Piece, list[int]] = defaultdict(list)
        for segment, pieces in chains:
            for piece in pieces:
                places = sorted(place for place in cuts[piece.extent] if piece.start < place < piece.stop)
                for start, stop in zip([piece.start, *places], [*places, piece.stop], strict=True):
                    found[Piece(piece.extent, start, stop)].append(segment.start_row)
        return dict(found)


def pieces_of(extent: Extent, stop: int) -> Iterable[Piece]:
    """The first `stop` tokens of the sequence that ends in `extent`, last piece first."""
    for here in ancestry(extent):
        if stop > here.start:
            yield Piece(here, here.start, stop)
        stop = here.start
