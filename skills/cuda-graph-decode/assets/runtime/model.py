"""The decoder with its decode steps captured: one launch a step instead of hundreds."""

from __future__ import annotations

import torch
from torch import Tensor

from .decode_graph import DecodeGraph
from .device import context_bucket, rows_on
from .device_model import DeviceModel
from .interfaces import Batch, ModelConfig
from .kv_cache import KVCache
from .parameters import Parameters


class Model(DeviceModel):
    """See `interfaces.ModelLike`. Steps that hold a prompt run eagerly; a shape is captured when it first comes."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        super().__init__(config, weights, parameters=parameters)
        self._graphs: dict[tuple[int, int], DecodeGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        if any(segment.num_rows > 1 for segment in batch.segments):
            return super().forward(batch, kv_cache)
        rows = rows_on(self.device, batch, max_context_tokens=self.max_context_tokens)
        longest = max(segment.stop_position for segment in batch.segments)
        context = context_bucket(longest, max_context_tokens=self.max_context_tokens)
        graph = self._graph(size_bucket(batch.num_rows), context, kv_cache=kv_cache)
        return graph(rows.token_ids, rows.positions, rows.slots)[list(batch.logits_rows)].cpu()

    def _graph(self, size: int, context: int, *, kv_cache: KVCache) -> DecodeGraph:
        key = (size, context)
        if key not in self._graphs:
            self._graphs[key] = DecodeGraph(self, kv_cache, size=size, context=context, pool=self._pool)
        return self._graphs[key]


def size_bucket(num_rows: int) -> int:
    """The next power of two."""
    return 1 << (num_rows - 1).bit_length()
