"""Attention of all rows of a step in one native call per layer (`native/attention.h`)."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache

import torch
from torch import Tensor

from .build import load_library
from .interfaces import Batch, ModelConfig
from .kv_cache import KVCache, round_up
from .parameters import Parameters


class Attention:
    """See `interfaces.AttentionLike`; keys and values are read as bf16, everything else is f32."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        if config.head_dim % 2:
            raise ValueError("native attention: head_dim has to be even")
        capacity = round_up(parameters.max_context_tokens)
        cos, sin = rotary_table(config, num_positions=capacity)
        self.handle = native().attention_create(
            config.num_heads, config.num_kv_heads, config.head_dim, parameters.max_num_seqs, capacity,
            torch.get_num_threads(), cos.data_ptr(), sin.data_ptr(),
        )
        self._finalizer = weakref.finalize(self, native().attention_destroy, self.handle)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, batch: Batch, kv_cache: KVCache
    ) -> Tensor:
        segments = segment_table(batch)
        # rotated in place: the caller's tensors stay as they are
        query, key = (x.clone(memory_format=torch.contiguous_format) for x in (query, key))
        value = value.contiguous()
        attended = torch.empty(len(query), query.shape[1] * query.shape[2])
        native().attention_run(
            self.handle, layer, segments.data_ptr(), len(segments), query.data_ptr(), key.data_ptr(), value.data_ptr(),
            kv_cache.keys.data_ptr(), kv_cache.values.data_ptr(), attended.data_ptr(),
        )
        return attended


def segment_table(batch: Batch) -> Tensor:
    """int64 [num_segments, 4]: `Segment` of `native/attention.h`."""
    return torch.tensor([(item.slot, item.start_row, item.num_rows, item.start_position) for item in batch.segments])


def rotary_table(config: ModelConfig, *, num_positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each f32 [num_positions, head_dim / 2] (Su et al. 2021, RoFormer)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), 1.0 / config.rope_theta**exponents)
    return angles.cos(), angles.sin()


@cache
def native() -> ctypes.CDLL:
    """`native/attention.cpp` with its signatures; its calls release the interpreter lock."""
    library = load_library("attention")
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.attention_create.restype = pointer
    library.attention_create.argtypes = [*[number] * 6, pointer, pointer]
    library.attention_destroy.argtypes = [pointer]
    library.attention_run.argtypes = [pointer, number, pointer, number, *[pointer] * 6]
    return library
