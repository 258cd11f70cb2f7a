"""Codes -> pixels: the decoder of Janus' VQ model in plain torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vibeserve.modalities.image.pixels import to_bytes

VQ = "model.vqmodel."
NUM_GROUPS, EPS = 32, 1e-6
"""of every norm"""


class CodeDecoder:
    """`tensors` by their names in the checkpoint, `config` the `vq_config` of config.json."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._num_levels = len(config["channel_multiplier"])
        self._num_blocks = config["num_res_blocks"] + 1
        self._side = config["num_patches"]

    @torch.inference_mode()
    def __call__(self, codes: Sequence[int]) -> Tensor:
        """Row by row, side x side of them -> pixels [height, width, 3], uint8. A code is used by its direction."""
        found = functional.normalize(self._tensors[f"{VQ}quantize.embedding.weight"][torch.tensor(codes)], dim=-1)
        x = self._conv("post_quant_conv", found.T.reshape(1, -1, self._side, self._side))
        x = self._block("decoder.mid.block_1.", self._conv("decoder.conv_in", x))
        x = self._block("decoder.mid.block_2.", self._attended("decoder.mid.attn_1.", x))
        for level in range(self._num_levels):
            for number in range(self._num_blocks):
                x = self._block(f"decoder.up.{level}.block.{number}.", x)
                if level == 0:
                    x = self._attended(f"decoder.up.{level}.attn.{number}.", x)
            if level < self._num_levels - 1:
                doubled = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                x = self._conv(f"decoder.up.{level}.upsample.conv", doubled)
        x = self._conv("decoder.conv_out", functional.silu(self._norm("decoder.norm_out", x)))
        return to_bytes(x[0].float())

    def _block(self, name: str, x: Tensor) -> Tensor:
        inner = self._conv(f"{name}conv1", functional.silu(self._norm(f"{name}norm1", x)))
        inner = self._conv(f"{name}conv2", functional.silu(self._norm(f"{name}norm2", inner)))
        is_wider = f"{VQ}{name}nin_shortcut.weight" in self._tensors
        return inner + (self._conv(f"{name}nin_shortcut", x) if is_wider else x)

    def _attended(self, name: str, x: Tensor) -> Tensor:
        """Every place sees all places, one head."""
        normed = self._norm(f"{name}norm", x)
        q, k, v = (self._conv(f"{name}{part}", normed).flatten(2).transpose(1, 2) for part in "qkv")
        out = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + self._conv(f"{name}proj_out", out)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return functional.group_norm(x, NUM_GROUPS, *self._pair(name), eps=EPS)

    def _conv(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._pair(name)
        return functional.conv2d(x, weight, bias, padding=weight.shape[-1] // 2)

    def _pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self._tensors[f"{VQ}{name}.weight"], self._tensors[f"{VQ}{name}.bias"]
