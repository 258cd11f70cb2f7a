"""Attention over pieces of context that lie in several places; a piece that many rows read is read once for all of them
(Juravsky et al. 2024, Hydragen: the parts are joined by their softmax sums)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .hybrid import HybridConfig
from .interfaces import Batch, Segment
from .kv_cache import KVCache
from .parameters import Parameters
from .rotary import Rotary
from .views import Piece

BLOCK_ROWS = 256
"""rows of a prompt whose scores are held at a time"""


class Attention:
    """See `interfaces.AttentionLike`. A row's result depends on other rows by rounding alone."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.num_kv_heads = config.num_kv_heads
        self.num_groups = config.num_heads // config.num_kv_heads
        self.scale = config.head_dim**-0.5
        self.rotary = Rotary(config, num_positions=parameters.max_context_tokens)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, batch: Batch, kv_cache: KVCache
    ) -> Tensor:
        query, key = self.rotary(query, batch.positions), self.rotary(key, batch.positions)
        views = kv_cache.views
        for segment, extent in views.segments:
            rows, own = slice(segment.start_row, segment.stop_row), views.own_rows(segment, extent)
            extent.keys[layer][:, own] = key[rows].transpose(0, 1)
            extent.values[layer][:, own] = value[rows].transpose(0, 1)
        output = torch.empty_like(query)
        for segment, pieces in views.prompts:
            self._prompt(query, output, segment, pieces, layer=layer)
        if views.decoding:
            self._decode(query, output, views.decoding, layer=layer)
        return output.flatten(1)

    def _prompt(self, query: Tensor, output: Tensor, segment: Segment, pieces: list[Piece], *, layer: int) -> None:
        rows = slice(segment.start_row, segment.stop_row)
        if segment.start_position == 0:
            keys, values = (self._spread(x) for x in (pieces[0].keys(layer), pieces[0].values(layer)))
            attended = functional.scaled_dot_product_attention(
                query[rows].transpose(0, 1).unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True
            )
            output[rows] = attended.squeeze(0).transpose(0, 1)
            return
        for start in range(segment.start_row, segment.stop_row, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, segment.stop_row)
            first = segment.start_position + start - segment.start_row
            output[start:stop] = self._block(query[start:stop], pieces, first_position=first, layer=layer)

    def _block(self, query: Tensor, pieces: list[Piece], *, first_position: int, layer: int) -> Tensor:
        """Rows at positions from `first_position` on, [num_rows, num_heads, head_dim], over everything up to them."""
        grouped = self._grouped(query)
        seen = torch.arange(first_position, first_position + len(query)).repeat(self.num_groups).unsqueeze(-1)
        scores = []
        for piece in pieces:
            part = grouped @ piece.keys(layer).mT
            if piece.stop > first_position + 1:
                part.masked_fill_(torch.arange(piece.start, piece.stop) > seen, float("-inf"))
            scores.append(part)
        sizes = [piece.stop - piece.start for piece in pieces]
        weights = torch.cat(scores, dim=-1).softmax(-1).split_with_sizes(sizes, dim=-1)
        attended = sum(weight @ piece.values(layer) for weight, piece in zip(weights, pieces, strict=True))
        assert isinstance(attended, Tensor)
        return self._ungrouped(attended, num_rows=len(query))

    def _decode(self, query: Tensor, output: Tensor, pieces: dict[Piece, list[int]], *, layer: int) -> None:
        """Rows of many sequences: each piece once for all rows that read it, then joined row by row."""
        num_rows, num_heads, _ = query.shape
        total = torch.zeros_like(query)
        largest = torch.full((num_rows, num_heads, 1), float("-inf"))
        weight = torch.zeros(num_rows, num_heads, 1)
        for piece, own in pieces.items():
            rows = torch.tensor(own)
            scores = self._grouped(query[rows]) @ piece.keys(layer).mT
            peak = scores.amax(-1, keepdim=True)
            scores = (scores - peak).exp_()
            parts = (scores @ piece.values(layer), peak, scores.sum(-1, keepdim=True))
            part, peak, sums = (self._ungrouped(each, num_rows=len(own)) for each in parts)
            higher = torch.maximum(largest[rows], peak)
            before, now = (largest[rows] - higher).exp(), (peak - higher).exp()
            total[rows] = total[rows] * before + part * now
            weight[rows] = weight[rows] * before + sums * now
            largest[rows] = higher
        read = torch.tensor(sorted({row for own in pieces.values() for row in own}))
        output[read] = total[read] / weight[read]

    def _grouped(self, query: Tensor) -> Tensor:
        """[num_rows, num_heads, head_dim] -> [num_kv_heads, num_groups * num_rows, head_dim], scaled."""
        grouped = torch.unflatten(query, 1, (self.num_kv_heads, self.num_groups)).permute(1, 2, 0, 3)
        scaled: Tensor = grouped.flatten(1, 2) * self.scale
        return scaled

    def _ungrouped(self, x: Tensor, *, num_rows: int) -> Tensor:
        """[num_kv_heads, num_groups * num_rows, size] -> [num_rows, num_heads, size]."""
        return torch.unflatten(x, 1, (self.num_groups, num_rows)).permute(2, 0, 1, 3).flatten(1, 2)

    def _spread(self, x: Tensor) -> Tensor:
        """Keys or values [num_kv_heads, ..] for every head."""
        return x if self.num_groups == 1 else x.repeat_interleave(self.num_groups, dim=0)
