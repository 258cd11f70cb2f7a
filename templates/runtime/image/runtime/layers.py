"""What stands around the blocks: text, time and latents into rows; rows into velocities."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .blocks import linear_of, rms_norm
from .interfaces import ModelConfig
from .parameters import Parameters
from .semantic import SemanticLayers

MAX_PERIOD, FREQUENCY_DIM = 10000.0, 256
"""of the time's sinusoids"""
NORM_EPS = 1e-6
"""of the norms that are no block's"""


def _pair(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"].float(), weights[f"{name}.bias"].float()


class Ends:
    """What stands around the blocks: text, time and latents into rows; rows into velocities."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config
        self._embeddings = weights["showo.model.embed_tokens.weight"]
        self._patches = _pair(weights, "image_embedder_gen.proj")
        self._norms = {
            name: weights[f"{name}.weight"].float()
            for name in ("fusion_proj.0", "showo.model.norm", "diffusion_head_b.norm_final")
        }
        has_meaning = config.semantic.num_layers > 0
        self._semantic = SemanticLayers(weights, config=config, parameters=parameters) if has_meaning else None
        names = ["fusion_proj.1", "fusion_proj.3", "diffusion_head_b.linear"]
        names += [name for name in ("diff_proj.0", "diff_proj.2", "time_embed_proj") if f"{name}.weight" in weights]
        self._linears = {name: linear_of(weights, name, parameters=parameters) for name in names}
        # the time and what it modulates are few rows, whose rounding would be in every row: they stay in f32
        modulations = [f"diffusion_head_a.{number}" for number in range(config.head.num_layers)]
        self._modulations = [
            _pair(weights, f"{name}.adaLN_modulation.1") for name in (*modulations, "diffusion_head_b")
        ]
        self._time = [_pair(weights, f"time_embed.mlp.{number}") for number in (0, 2)]

    def text_rows(self, token_ids: list[int]) -> Tensor:
        """[num_rows, hidden], the begin tokens around the prompt included."""
        ids = [self._config.begin_token_id, *token_ids, self._config.begin_image_token_id]
        return self._embeddings[torch.tensor(ids)].float()

    def image_rows(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """The time's row and the image's, [1 + num_patches, hidden]."""
        patches = functional.conv2d(latents[None], *self._patches, stride=self._config.patch_size)
        x = patches[0].flatten(1).T
        if self._semantic is not None:
            x = torch.cat((self._semantic(latents), x), dim=-1)
        x = rms_norm(x, self._norms["fusion_proj.0"], eps=NORM_EPS)
        x = self._linears["fusion_proj.3"](functional.gelu(self._linears["fusion_proj.1"](x)))
        projected = self._linears.get("time_embed_proj")
        return torch.cat((projected(conditions) if projected else conditions, x))

    def conditions(self, time: float) -> Tensor:
        """The time's embedding, [1, hidden of the head]."""
        first, second = self._time
        half = FREQUENCY_DIM // 2
        angles = time * torch.exp(-math.log(MAX_PERIOD) * torch.arange(half, dtype=torch.float32) / half)
        inner = functional.linear(torch.cat((angles.cos(), angles.sin()))[None], *first)
        return functional.linear(functional.silu(inner), *second)

    def modulations(self, conditions: Tensor) -> list[Tensor]:
        """Of every block of the head, [6, 1, hidden], and of the last layer, [2, 1, hidden]."""
        active = functional.silu(conditions)
        return [
            functional.linear(active, weight, bias).view(-1, 1, active.shape[-1]) for weight, bias in self._modulations
        ]

    def between(self, x: Tensor) -> Tensor:
        """From the body to the head."""
        x = rms_norm(x, self._norms["showo.model.norm"], eps=self._config.body.norm_eps)
        if "diff_proj.0" not in self._linears:
            return x
        return self._linears["diff_proj.2"](functional.gelu(self._linears["diff_proj.0"](x)))

    def velocity(self, rows: Tensor, modulation: Tensor, *, shape: torch.Size) -> Tensor:
        """Of the rows of time and image behind the head, [1 + num_patches, hidden] -> [channels, height, width]."""
        normed = rms_norm(rows[1:], self._norms["diffusion_head_b.norm_final"], eps=NORM_EPS)
        out = self._linears["diffusion_head_b.linear"](normed * (1 + modulation[1]) + modulation[0])
        patch, (channels, height, width) = self._config.patch_size, shape
        grid = out.view(height // patch, width // patch, patch, patch, channels)
        return grid.permute(4, 0, 2, 1, 3).reshape(channels, height, width)
