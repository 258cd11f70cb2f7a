"""One decode step of fixed shape: so many rows, contexts up to so long. On CUDA it is captured once and replayed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .attention import attend_rows
from .device_model import DeviceModel
from .kv_cache import KVCache

NUM_WARMUPS = 2
"""runs before the capture: libraries choose kernels and allocate workspaces at the first ones"""


class DecodeGraph:
    """Rows beyond those that are asked for write to the padding slot, and nobody reads what they make."""

    def __init__(self, model: DeviceModel, kv_cache: KVCache, *, size: int, context: int, pool: Any = None) -> None:
        self._model, self._kv_cache, self._context = model, kv_cache, context
        options = {"dtype": torch.int64, "device": model.device}
        self._token_ids = torch.zeros(size, **options)
        self._positions = torch.zeros(size, **options)
        self._slots = torch.full((size,), kv_cache.padding_slot, **options)
        self._graph = None
        if model.device.type == "cuda":
            self._capture(pool)

    def __call__(self, token_ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """Logits f32 [num_rows, vocab_size] on the device, of int64 [num_rows] each."""
        num_rows = len(token_ids)
        for kept, given, padding in (
            (self._token_ids, token_ids, 0),
            (self._positions, positions, 0),
            (self._slots, slots, self._kv_cache.padding_slot),
        ):
            kept[:num_rows].copy_(given)
            kept[num_rows:].fill_(padding)
        if self._graph is None:
            return self._step()[:num_rows]
        self._graph.replay()
        return self._logits[:num_rows]

    def _capture(self, pool: Any) -> None:
        # as PyTorch asks for: warmed up on a stream of its own, before anything is captured
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(NUM_WARMUPS):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            self._logits = self._step()
        self._graph = graph

    def _step(self) -> Tensor:
        model = self._model
        x = model.embedding[self._token_ids]
        for layer in model.layers:
            query, key, value = layer.projections(x)
            query = model.attention.rotated(query, self._positions)
            key = model.attention.rotated(key, self._positions)
            where = {"slots": self._slots, "positions": self._positions}
            self._kv_cache.write(layer.index, key, value, **where)
            attended = attend_rows(query, layer=layer.index, context=self._context, kv_cache=self._kv_cache, **where)
            x = layer.finish(x, attended.flatten(1))
        return model.logits(x)
