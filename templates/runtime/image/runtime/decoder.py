"""Latents -> pixels: the decoder of Wan2.1's VAE, for the one frame that an image is."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import ModelConfig


class PixelDecoder:
    """See `interfaces.DecoderLike`. Kernels are causal in time: one frame meets their last slice alone."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig) -> None:
        self._weights = {
            name: (tensor[:, :, -1] if tensor.dim() == 5 else tensor).float() for name, tensor in weights.items()
        }
        self._config = config.decoder
        self._mean = torch.tensor(config.decoder.latent_mean)[:, None, None]
        self._std = torch.tensor(config.decoder.latent_std)[:, None, None]

    def decode(self, latents: Tensor, /) -> Tensor:
        x = self._convolved("conv2", (latents * self._std + self._mean)[None])
        x = self._block("decoder.middle.0.", self._convolved("decoder.conv1", x))
        x = self._block("decoder.middle.2.", self._attended("decoder.middle.1.", x))
        number = 0
        for level in range(self._config.num_levels):
            for _ in range(self._config.num_blocks):
                x = self._block(f"decoder.upsamples.{number}.", x)
                number += 1
            if level < self._config.num_levels - 1:
                x = functional.interpolate(x, scale_factor=2, mode="nearest-exact")
                x = self._convolved(f"decoder.upsamples.{number}.resample.1", x)
                number += 1
        x = self._convolved("decoder.head.2", functional.silu(self._normed("decoder.head.0", x)))[0]
        return ((x.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).contiguous()

    def _block(self, name: str, x: Tensor) -> Tensor:
        inner = x
        for norm, convolution in ((0, 2), (3, 6)):
            active = functional.silu(self._normed(f"{name}residual.{norm}", inner))
            inner = self._convolved(f"{name}residual.{convolution}", active)
        return inner + (self._convolved(f"{name}shortcut", x) if f"{name}shortcut.weight" in self._weights else x)

    def _attended(self, name: str, x: Tensor) -> Tensor:
        """Every place sees all places."""
        q, k, v = (
            part.flatten(2).transpose(1, 2)
            for part in self._convolved(f"{name}to_qkv", self._normed(f"{name}norm", x)).chunk(3, dim=1)
        )
        out = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return x + self._convolved(f"{name}proj", out)

    def _normed(self, name: str, x: Tensor) -> Tensor:
        gamma = self._weights[f"{name}.gamma"].view(-1, 1, 1)
        return functional.normalize(x, dim=1) * (len(gamma) ** 0.5 * gamma)

    def _convolved(self, name: str, x: Tensor) -> Tensor:
        weight = self._weights[f"{name}.weight"]
        return functional.conv2d(x, weight, self._weights[f"{name}.bias"], padding=weight.shape[-1] // 2)
