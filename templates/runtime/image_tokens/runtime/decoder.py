"""Codes -> pixels: the decoder of Janus' VQ model."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import ModelConfig

VQ = "model.vqmodel."
NUM_GROUPS, EPS = 32, 1e-6
"""of every norm"""


class PixelDecoder:
    """See `interfaces.DecoderLike`. A code is used by its direction alone."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig) -> None:
        self._weights = {name.removeprefix(VQ): tensor.float() for name, tensor in weights.items()}
        self._codebook = functional.normalize(self._weights.pop("quantize.embedding.weight"), dim=-1)
        self._config = config

    def decode(self, codes: Tensor, /) -> Tensor:
        side, sizes = self._config.side, self._config.decoder
        x = self._convolved("post_quant_conv", self._codebook[codes].T.reshape(1, -1, side, side))
        x = self._block("decoder.mid.block_1.", self._convolved("decoder.conv_in", x))
        x = self._block("decoder.mid.block_2.", self._attended("decoder.mid.attn_1.", x))
        for level in range(sizes.num_levels):
            name = f"decoder.up.{level}."
            for number in range(sizes.num_blocks):
                x = self._block(f"{name}block.{number}.", x)
                # only the coarsest level has attention
                x = x if level else self._attended(f"{name}attn.{number}.", x)
            if level < sizes.num_levels - 1:
                x = functional.interpolate(x, scale_factor=2.0, mode="nearest")
                x = self._convolved(f"{name}upsample.conv", x)
        x = self._convolved("decoder.conv_out", functional.silu(self._normed("decoder.norm_out", x)))[0]
        return ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).contiguous()

    def _block(self, name: str, x: Tensor) -> Tensor:
        inner = x
        for number in (1, 2):
            active = functional.silu(self._normed(f"{name}norm{number}", inner))
            inner = self._convolved(f"{name}conv{number}", active)
        is_wider = f"{name}nin_shortcut.weight" in self._weights
        return inner + (self._convolved(f"{name}nin_shortcut", x) if is_wider else x)

    def _attended(self, name: str, x: Tensor) -> Tensor:
        """Every place sees all places."""
        normed = self._normed(f"{name}norm", x)
        q, k, v = (self._convolved(f"{name}{part}", normed).flatten(2).transpose(1, 2) for part in "qkv")
        out = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + self._convolved(f"{name}proj_out", out)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.group_norm(x, NUM_GROUPS, weight, bias, eps=EPS)

    def _convolved(self, name: str, x: Tensor) -> Tensor:
        weight = self._weights[f"{name}.weight"]
        return functional.conv2d(x, weight, self._weights[f"{name}.bias"], padding=weight.shape[-1] // 2)
