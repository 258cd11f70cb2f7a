"""Latents -> pixels: Wan2.1's VAE decoder in plain torch, for the one frame that an image is.

Its kernels are causal in time, [.., .., 3, 3, 3]. Before an image's only frame lies nothing, so that only the last
slice in time of a kernel meets anything, and the convolution is one of two dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class PixelDecoder:
    """`tensors` by their names in the checkpoint, `config` the `vae_config` of config.json."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._tensors = {name: tensor[:, :, -1] if tensor.dim() == 5 else tensor for name, tensor in tensors.items()}
        self._num_levels = len(config["dim_mult"])
        self._num_blocks = config["num_res_blocks"] + 1
        self._mean, self._std = (torch.tensor(config[name])[:, None, None] for name in ("latent_mean", "latent_std"))

    @torch.inference_mode()
    def __call__(self, latents: Tensor) -> Tensor:
        """`latents` [channels, height, width], f32 -> pixels [8 height, 8 width, 3], uint8."""
        x = (latents * self._std + self._mean)[None].to(self._tensors["conv2.weight"].dtype)
        x = self._conv("decoder.conv1", self._conv("conv2", x))
        x = self._attended(self._block("decoder.middle.0.", x))
        x = self._block("decoder.middle.2.", x)
        place = 0
        for level in range(self._num_levels):
            for _ in range(self._num_blocks):
                x = self._block(f"decoder.upsamples.{place}.", x)
                place += 1
            if level < self._num_levels - 1:
                doubled = functional.interpolate(x, scale_factor=2, mode="nearest-exact")
                x = self._conv(f"decoder.upsamples.{place}.resample.1", doubled)
                place += 1
        x = self._conv("decoder.head.2", functional.silu(self._norm("decoder.head.0", x)))
        return to_bytes(x[0].float())

    def _block(self, name: str, x: Tensor) -> Tensor:
        inner = self._conv(f"{name}residual.2", functional.silu(self._norm(f"{name}residual.0", x)))
        inner = self._conv(f"{name}residual.6", functional.silu(self._norm(f"{name}residual.3", inner)))
        is_wider = f"{name}shortcut.weight" in self._tensors
        return inner + (self._conv(f"{name}shortcut", x) if is_wider else x)

    def _attended(self, x: Tensor) -> Tensor:
        """Every place sees all places, one head."""
        _, channels, height, width = x.shape
        rows = self._conv("decoder.middle.1.to_qkv", self._norm("decoder.middle.1.norm", x)).flatten(2).transpose(1, 2)
        q, k, v = rows.chunk(3, -1)
        out = functional.scaled_dot_product_attention(q, k, v)
        return x + self._conv("decoder.middle.1.proj", out.transpose(1, 2).reshape(1, channels, height, width))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        gamma = self._tensors[f"{name}.gamma"].flatten()[:, None, None]
        normed: Tensor = functional.normalize(x, dim=1) * len(gamma) ** 0.5 * gamma
        return normed

    def _conv(self, name: str, x: Tensor) -> Tensor:
        weight = self._tensors[f"{name}.weight"]
        return functional.conv2d(x, weight, self._tensors[f"{name}.bias"], padding=weight.shape[-1] // 2)


def to_bytes(values: Tensor) -> Tensor:
    """Values in [-1, 1], [3, height, width] -> bytes [height, width, 3], rounded to the nearest."""
    return ((values.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0).contiguous()
