"""Gated delta rule: all decode rows in one step, prompts in chunks (`chunk_scan`)."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunk_scan import scan
from .delta_rule import convolve, split_heads, step
from .hybrid import HybridCacheLike, HybridConfig
from .interfaces import Batch, Segment
from .parameters import Parameters


class Recurrence:
    """See `hybrid.RecurrenceLike`."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.config = config
        self.chunk_tokens = parameters.scan_chunk_tokens

    def __call__(
        self, mixed: Tensor, decay: Tensor, beta: Tensor, *, kernel: Tensor, layer: int, batch: Batch,
        kv_cache: HybridCacheLike,
    ) -> Tensor:
        config = self.config
        states, windows = kv_cache.states[layer], kv_cache.windows[layer]
        output = torch.empty(len(mixed), config.linear_num_value_heads, config.linear_value_head_dim)
        decoding = [segment for segment in batch.segments if segment.num_rows == 1]
        if decoding:
            rows = torch.tensor([segment.start_row for segment in decoding])
            slots = torch.tensor([segment.slot for segment in decoding])
            output[rows] = self._decode(mixed[rows], decay[rows], beta[rows], kernel, states, windows, slots)
        for segment in batch.segments:
            if segment.num_rows > 1:
                self._prefill(segment, mixed, decay, beta, kernel, states, windows, output)
        return output

    def _decode(
        self, mixed: Tensor, decay: Tensor, beta: Tensor, kernel: Tensor, states: Tensor, windows: Tensor, slots: Tensor
    ) -> Tensor:
        """One row of each slot. The states are gathered and put back: they are small, and slots are in no order."""
        inputs = torch.cat((windows[slots], mixed.unsqueeze(1)), dim=1)
        windows[slots] = inputs[:, 1:]
        query, key, value = (x.squeeze(1) for x in split_heads(convolve(inputs, kernel), self.config))
        state = states[slots]
        output = step(state, query, key, value, decay=decay, beta=beta)
        states[slots] = state
        return output

    def _prefill(
        self, segment: Segment, mixed: Tensor, decay: Tensor, beta: Tensor, kernel: Tensor, states: Tensor,
        windows: Tensor, output: Tensor,
    ) -> None:
        rows, window = slice(segment.start_row, segment.stop_row), windows[segment.slot]
        inputs = torch.cat((window, mixed[rows]))
        window.copy_(inputs[-len(window) :])
        query, key, value = split_heads(convolve(inputs, kernel), self.config)
        output[rows] = scan(
            states[segment.slot], query, key, value, decay=decay[rows], beta=beta[rows], chunk_tokens=self.chunk_tokens
        )
