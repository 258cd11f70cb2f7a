"""Nouns of hybrid models, whose layers are gated DeltaNet or full attention, and the contracts of their seams.

A seam of these models alone, beside those of `interfaces`:

    recurrence   class Recurrence(config, *, parameters)                          see RecurrenceLike

The KV cache of a hybrid model holds keys and values of the attention layers, and two states of fixed size per slot and
DeltaNet layer, whatever the context: see HybridCacheLike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from .interfaces import Batch, KVCacheLike, ModelConfig

LINEAR_ATTENTION = "linear_attention"
FULL_ATTENTION = "full_attention"


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridConfig(ModelConfig):
    """Sizes and constants of a hybrid decoder. `rope_theta` is 0 where attention has no positions."""

    architecture: str
    layer_types: tuple[str, ...]
    """one per layer: linear_attention, full_attention"""
    rotary_dim: int
    """leading values of a head that are rotated; 0 = none"""
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    conv_kernel: int
    """positions that the short convolution of queries, keys and values sees"""
    max_beta: float
    """upper bound of the step size beta: 2 admits negative eigenvalues of the transition, 1 does not"""
    linear_norm_eps: float
    """of the norm behind the recurrence"""
    num_experts_per_token: int = 0
    """0 = no layer is a mixture of experts"""
    normalise_experts: bool = True
    """whether the chosen experts' weights are scaled to sum to 1"""

    @property
    def linear_layers(self) -> tuple[int, ...]:
        return tuple(index for index, kind in enumerate(self.layer_types) if kind == LINEAR_ATTENTION)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        return tuple(index for index, kind in enumerate(self.layer_types) if kind == FULL_ATTENTION)

    @property
    def linear_key_dim(self) -> int:
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def linear_value_dim(self) -> int:
        return self.linear_num_value_heads * self.linear_value_head_dim

    @property
    def conv_dim(self) -> int:
        """Channels of the short convolution: queries, keys and values side by side."""
        return 2 * self.linear_key_dim + self.linear_value_dim


class HybridCacheLike(KVCacheLike, Protocol):
    """What a hybrid model keeps of the running sequences."""

    @property
    def states(self) -> dict[int, Tensor]:
        """Linear layer -> f32 [num_slots, linear_num_value_heads, linear_key_head_dim, linear_value_head_dim]."""
        ...

    @property
    def windows(self) -> dict[int, Tensor]:
        """Linear layer -> f32 [num_slots, conv_kernel - 1, conv_dim]: the convolution's last inputs, oldest first."""
        ...

    def begin(self, batch: Batch) -> None:
        """Before a step: states of sequences that start are zeroed. Raises ValueError where a slot has seen another
        number of tokens than its segment starts at: a state cannot be taken back."""
        ...

    def end(self, batch: Batch) -> None:
        """After a step: the slots have seen its rows."""
        ...


class RecurrenceLike(Protocol):
    """Short convolution and gated delta rule of one layer over a batch."""

    def __call__(
        self, mixed: Tensor, decay: Tensor, beta: Tensor, *, kernel: Tensor, layer: int, batch: Batch, kv_cache: Any
    ) -> Tensor:
        """Carry every segment's state over its rows.

        `mixed` f32 [num_rows, conv_dim], queries, keys and values before the convolution; `decay` (the logarithm, <= 0)
        and `beta` f32 [num_rows, linear_num_value_heads]; `kernel` f32 [conv_kernel, conv_dim], oldest position first.
        Reads and writes `kv_cache.states[layer]` and `kv_cache.windows[layer]` of each segment's slot; returns f32
        [num_rows, linear_num_value_heads, linear_value_head_dim]. A row sees the rows before it in its own sequence.
        """
        ...
