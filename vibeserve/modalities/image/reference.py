"""The f32 reference of images: Euler steps of flow matching with classifier-free guidance, then the VAE's decoder.

What a request means, to the bit of its noise:

- noise: `torch.randn((channels, height, width), generator=torch.Generator().manual_seed(seed))`, f32, on the CPU. Seeds
  are below 2**32, of which that generator makes different noise. A smaller size draws noise of its own.
- time grid: `num_steps + 1` points t = u / (u + s - s u), u from 0 (noise) to 1 (image) at equal distances, s the
  model's `time_shifting_factor`. (Upstream calls the number of points `num_inference_steps`: one pass fewer than that.)
- a step: x += (t[n + 1] - t[n]) * v(x, t[n]), x in f32; v = v0 + g (v1 - v0), v1 of the prompt, v0 of the empty prompt.
  With guidance 1 the empty prompt takes no part.
- pixels: round(127.5 (clamp(decoded, -1, 1) + 1)).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Request
from vibeserve.modalities.image.wire import PIXELS_PER_LATENT, output_of

if TYPE_CHECKING:
    import torch


def load(path: str, device: str, dtype: str) -> ImageReference:
    return ImageReference(Path(path), device=device, dtype=dtype)


class ImageReference:
    """See `contract.Reference`. Nothing is kept from one request to the next."""

    def __init__(self, model_dir: Path, *, device: str, dtype: str) -> None:
        import torch
        from safetensors.torch import load_file

        from vibeserve.modalities.image.network import FlowNetwork
        from vibeserve.modalities.image.pixels import PixelDecoder
        from vibeserve.weights import load_tokenizer

        folder = model_dir / "f32"
        self._config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kind = getattr(torch, dtype)
        tensors, decoder = (
            {name: tensor.to(device, kind) for name, tensor in load_file(folder / f"{name}.safetensors").items()}
            for name in ("model", "vae")
        )
        self._tokenizer = load_tokenizer(model_dir)
        self._network = FlowNetwork(tensors, self._config)
        self._decode = PixelDecoder(decoder, self._config["vae_config"])

    def run(self, request: Request) -> dict[str, Any]:
        """PNG and latents, as `wire.output_of` writes them."""
        latents = self.latents(request.payload)
        return output_of(self._decode(latents).numpy(), latents.numpy())

    def pixels(self, latents: torch.Tensor) -> torch.Tensor:
        """[height, width, 3], bytes"""
        return self._decode(latents)

    def latents(self, payload: dict[str, Any]) -> torch.Tensor:
        """[channels, height, width], f32, at the end of all steps."""
        steps, guidance = payload["steps"], payload["guidance"]
        x = noise_of(payload, channels=self._config["image_latent_dim"])
        given = self._network.prefix(self._tokenizer.encode(payload["prompt"], add_special_tokens=False).ids)
        empty = self._network.prefix([]) if guidance != 1 else None
        grid = time_grid(steps, shift=self._config["time_shifting_factor"])
        for number in range(steps):
            velocity = self._network.velocity(given, x, time=grid[number])
            if empty is not None:
                without = self._network.velocity(empty, x, time=grid[number])
                velocity = without + guidance * (velocity - without)
            x = x + (grid[number + 1] - grid[number]) * velocity
        return x


def noise_of(payload: dict[str, Any], *, channels: int) -> torch.Tensor:
    """What an image of this size and seed begins as, f32 [channels, height, width]."""
    import torch

    width, height = (int(side) // PIXELS_PER_LATENT for side in payload["size"].split("x"))
    generator = torch.Generator().manual_seed(payload["seed"])
    return torch.randn((channels, height, width), generator=generator)


def time_grid(steps: int, *, shift: float) -> list[float]:
    """Times of the steps and of the end, from 0 to 1."""
    even = [number / steps for number in range(steps + 1)]
    return [u / (u + shift - shift * u) for u in even]
