"""The Llama decoder (Touvron et al. 2023): weights as panels, and one native call per step (`native/llama.cpp`)."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from . import build, spans
from .attention import rotary_table
from .interfaces import Batch, ModelConfig
from .kv_cache import KVCache
from .linear import PANEL_COLUMNS, alternate, fixed_point_units, pack
from .parameters import Parameters

POINTER = ctypes.c_void_p


def fields(kind: Any, *names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names]


class Shape(ctypes.Structure):
    """As in `native/llama.cpp`, like the structures below."""

    _fields_ = [
        *fields(ctypes.c_int32, "vocab", "hidden", "intermediate", "num_layers", "num_heads", "num_kv_heads"),
        *fields(ctypes.c_int32, "head_dim", "num_positions"),
        *fields(ctypes.c_float, "eps"),
    ]


class LayerPointers(ctypes.Structure):
    _fields_ = [
        *fields(POINTER, "input_norm", "mlp_norm", "qkv", "output", "gate_up", "down"),
        *fields(POINTER, "qkv_units", "output_units", "gate_up_units", "down_units", "keys", "values"),
    ]


class StepPointers(ctypes.Structure):
    _fields_ = [
        *fields(POINTER, "token_ids", "logits_rows", "segments", "logits"),
        *fields(ctypes.c_int32, "num_rows", "num_logits", "num_segments", "logits_stride"),
    ]


class ModelPointers(ctypes.Structure):
    _fields_ = [("shape", Shape), *fields(POINTER, "embedding", "head", "norm", "cos", "sin", "layers")]


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        if config.hidden_size % PANEL_COLUMNS or config.head_dim % PANEL_COLUMNS:
            raise ValueError(f"hidden_size and head_dim must be multiples of {PANEL_COLUMNS}")
        self.config = config
        self.embedding = weights["model.embed_tokens.weight"].contiguous()
        self.head = pack(self.embedding if config.tie_word_embeddings else weights["lm_head.weight"])
        self.norm = weights["model.norm.weight"].float()
        self.layers = [pack_layer(f"model.layers.{index}.", weights) for index in range(config.num_layers)]
        self.rotary = rotary_table(config, num_positions=parameters.max_context_tokens)
        self._forward = build.load_library("llama").llama_forward
        self._pointers = (LayerPointers * config.num_layers)(
            *[LayerPointers(**{name: tensor.data_ptr() for name, tensor in layer.items()}) for layer in self.layers]
        )
        self._native = ModelPointers(
            embedding=self.embedding.data_ptr(),
            head=self.head.data_ptr(),
            norm=self.norm.data_ptr(),
            cos=self.rotary[0].data_ptr(),
            sin=self.rotary[1].data_ptr(),
            layers=ctypes.cast(self._pointers, POINTER),
        )
        self._bound: KVCache | None = None

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        if kv_cache is not self._bound:
            self._bind(kv_cache)
        logits = torch.empty(len(batch.logits_rows), len(self.head) * PANEL_COLUMNS)
        token_ids = batch.token_ids.contiguous()
        logits_rows = torch.tensor(batch.logits_rows, dtype=torch.int32)
        segments = torch.tensor(
            [(one.slot, one.start_row, one.num_rows, one.start_position) for one in batch.segments], dtype=torch.int32
        )
        step = StepPointers(
            token_ids=token_ids.data_ptr(),
            logits_rows=logits_rows.data_ptr(),
            segments=segments.data_ptr(),
            logits=logits.data_ptr(),
            num_rows=batch.num_rows,
            num_logits=len(batch.logits_rows),
            num_segments=len(batch.segments),
            logits_stride=logits.shape[1],
        )
        seconds = (ctypes.c_double * 2)()
        self._forward(ctypes.byref(self._native), ctypes.byref(step), seconds)
        spans.forward.linear.seconds += seconds[0]
        spans.forward.attention.seconds += seconds[1]
        return logits[:, : self.config.vocab_size]

    def _bind(self, kv_cache: KVCache) -> None:
        """Point the native side at the cache's tensors."""
        config = self.config
        self._bound = kv_cache
        for pointers, keys, values in zip(self._pointers, kv_cache.keys, kv_cache.values, strict=True):
            pointers.keys, pointers.values = keys.data_ptr(), values.data_ptr()
        self._native.shape = Shape(
            vocab=config.vocab_size,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            num_positions=kv_cache.num_positions,
            eps=config.rms_norm_eps,
        )


def pack_layer(prefix: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one block by their names in `LayerPointers`; query, key and value are one product."""

    def weight(name: str) -> Tensor:
        return weights[f"{prefix}{name}.weight"]

    qkv, output = torch.cat([weight(f"self_attn.{name}_proj") for name in "qkv"]), weight("self_attn.o_proj")
    gate, up, down = weight("mlp.gate_proj"), weight("mlp.up_proj"), weight("mlp.down_proj")
    return {
        "input_norm": weight("input_layernorm").float(),
        "mlp_norm": weight("post_attention_layernorm").float(),
        "qkv": pack(qkv),
        "output": pack(output),
        "gate_up": alternate(pack(gate), pack(up)),
        "down": pack(down),
        "qkv_units": fixed_point_units(qkv),
        "output_units": fixed_point_units(output),
        "gate_up_units": alternate(fixed_point_units(gate), fixed_point_units(up)),
        "down_units": fixed_point_units(down),
    }
