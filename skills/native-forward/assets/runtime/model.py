"""The Llama decoder as one native call per step (`native/forward.cpp`), with the interpreter lock released."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache

import torch
from torch import Tensor

from . import spans
from .attention import rotary_table, segment_table
from .build import load_library
from .interfaces import Batch, ModelConfig
from .kv_cache import PANEL_COLUMNS, KVCache, round_up
from .parameters import Parameters


class Sizes(ctypes.Structure):
    """`Sizes` of `native/forward.cpp`."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in (
            "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
            "num_slots", "capacity", "num_threads", "min_fixed_rows",
        )),
        ("rms_norm_eps", ctypes.c_double),
    ]


class Model:
    """See `interfaces.ModelLike`.

    Weights stay bf16 in memory and are widened to f32 in registers; keys and values are bf16; everything else is f32.
    Prompt chunks of `parameters.fixed_point_min_rows` rows or more are multiplied in 16-bit fixed point where the
    processor has AVX-512 VNNI.
    """

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        if config.hidden_size % 16 or config.head_dim % 2:
            raise ValueError("native forward: hidden_size has to be a multiple of 16 and head_dim even")
        self.config = config
        self.library = native()
        capacity = round_up(parameters.max_context_tokens)
        sizes = Sizes(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=round_up(config.intermediate_size),
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_slots=parameters.max_num_seqs,
            capacity=capacity,
            num_threads=torch.get_num_threads(),
            min_fixed_rows=parameters.fixed_point_min_rows,
            rms_norm_eps=config.rms_norm_eps,
        )
        self.handle = self.library.forward_create(ctypes.byref(sizes))
        self._finalizer = weakref.finalize(self, self.library.forward_destroy, self.handle)
        for index in range(config.num_layers):
            self._set_layer(index, weights)
        self._set_ends(weights, capacity)

    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        segments = segment_table(batch)
        logits_rows = torch.tensor(batch.logits_rows, dtype=torch.int64)
        logits = torch.empty(len(batch.logits_rows), self.config.vocab_size)
        seconds = (ctypes.c_double * 2)()
        self.library.forward_run(
            self.handle, batch.token_ids.data_ptr(), batch.num_rows,
            segments.data_ptr(), len(batch.segments), logits_rows.data_ptr(), len(batch.logits_rows),
            kv_cache.keys.data_ptr(), kv_cache.values.data_ptr(), logits.data_ptr(), seconds,
        )
        spans.forward.linear.seconds += seconds[0]
        spans.forward.attention.seconds += seconds[1]
        return logits

    def _set_layer(self, index: int, weights: dict[str, Tensor]) -> None:
        prefix = f"model.layers.{index}."

        def stored(name: str) -> Tensor:
            return bf16(weights[f"{prefix}{name}.weight"])

        arrays = [
            torch.cat([stored(f"self_attn.{name}_proj") for name in "qkv"]),
            stored("self_attn.o_proj"),
            interleave(stored("mlp.gate_proj"), stored("mlp.up_proj")),
            pad_columns(stored("mlp.down_proj")),
            weights[f"{prefix}input_layernorm.weight"].float(),
            weights[f"{prefix}post_attention_layernorm.weight"].float(),
        ]
        check_memory(self.library.forward_set_layer(self.handle, index, *(array.data_ptr() for array in arrays)))

    def _set_ends(self, weights: dict[str, Tensor], capacity: int) -> None:
        # the native side keeps a pointer to the embedding: the tensor has to live as long as the model
        self.embedding = bf16(weights["model.embed_tokens.weight"])
        head = self.embedding if self.config.tie_word_embeddings else bf16(weights["lm_head.weight"])
        cos, sin = rotary_table(self.config, num_positions=capacity)
        arrays = [self.embedding, head, weights["model.norm.weight"].float(), cos, sin]
        check_memory(self.library.forward_set_ends(self.handle, *(array.data_ptr() for array in arrays)))


def check_memory(is_set: int) -> None:
    if not is_set:
        raise MemoryError("no memory for the packed weights")


def bf16(weight: Tensor) -> Tensor:
    return weight.to(torch.bfloat16).contiguous()


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """Rows of gate and up in turns of 32, so that one tile of the product holds both halves of its activations."""
    padding = (0, 0, 0, round_up(len(gate)) - len(gate))
    gate, up = (torch.nn.functional.pad(weight, padding) for weight in (gate, up))
    halves = [weight.view(-1, 1, PANEL_COLUMNS, weight.shape[1]) for weight in (gate, up)]
    return torch.cat(halves, dim=1).flatten(0, 2).contiguous()


def pad_columns(down: Tensor) -> Tensor:
    """`down` for the padded activations of `interleave`."""
    return torch.nn.functional.pad(down, (0, round_up(down.shape[1]) - down.shape[1])).contiguous()


@cache
def native() -> ctypes.CDLL:
    """`native/forward.cpp` with its signatures; its calls release the interpreter lock."""
    library = load_library("forward")
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.forward_create.restype = pointer
    library.forward_create.argtypes = [pointer]
    library.forward_destroy.argtypes = [pointer]
    library.forward_set_layer.argtypes = [pointer, number, *[pointer] * 6]
    library.forward_set_ends.argtypes = [pointer] * 6
    library.forward_run.argtypes = [
        pointer, pointer, number, pointer, number, pointer, number, *[pointer] * 4,
    ]
    return library
