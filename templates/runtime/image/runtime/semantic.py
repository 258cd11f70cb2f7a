"""The second reading of the latents: SigLIP's layers over patches of their own, which see neither text nor time."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn import functional

from .attention import attend
from .interfaces import ModelConfig
from .linear import Linear
from .parameters import Parameters


class SemanticLayers:
    """Latents [channels, height, width] of the model's own size -> rows [num_patches, width]."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._patch_size, self._config = config.patch_size, config.semantic
        self._patches = [weights[f"image_embedder_und.proj.{part}"].float() for part in ("weight", "bias")]
        self._positions = weights["position_embedding.weight"].float()
        self._layers = [
            _Layer(weights, f"und_trans.layers.{number}.", parameters=parameters)
            for number in range(config.semantic.num_layers)
        ]

    def __call__(self, latents: Tensor) -> Tensor:
        patches = functional.conv2d(latents[None], *self._patches, stride=self._patch_size)
        x = patches[0].flatten(1).T + self._positions
        for layer in self._layers:
            x = layer(x, num_heads=self._config.num_heads, eps=self._config.norm_eps)
        return x


class _Layer:
    """Every patch sees all patches. x [num_patches, width]."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, *, parameters: Parameters) -> None:
        self._norms = [
            [weights[f"{name}layer_norm{number}.{part}"].float() for part in ("weight", "bias")] for number in (1, 2)
        ]
        names = (*(f"self_attn.{part}_proj" for part in "qkv"), "self_attn.out_proj", "mlp.fc1", "mlp.fc2")
        self._linears = [
            Linear(weights[f"{name}{part}.weight"], weights[f"{name}{part}.bias"], parameters=parameters)
            for part in names
        ]

    def __call__(self, x: Tensor, *, num_heads: int, eps: float) -> Tensor:
        *qkv, out, up, down = self._linears
        rows = functional.layer_norm(x, (x.shape[-1],), *self._norms[0], eps)
        q, k, v = (linear(rows).view(1, len(x), num_heads, -1).transpose(1, 2) for linear in qkv)
        x = x + out(attend(q, k, v)[0].transpose(0, 1).reshape(x.shape))
        rows = functional.layer_norm(x, (x.shape[-1],), *self._norms[1], eps)
        return x + down(functional.gelu(up(rows), approximate="tanh"))
