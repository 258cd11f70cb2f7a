"""Show-o2's second reading of the latents: SigLIP's layers over patches of their own, in plain torch.

They run over all patches of an image at once, and see neither text nor time; their output stands beside the plain
projection of the patches before both are fused. A model without such layers fuses the projection alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional


def semantic_rows(tensors: Mapping[str, Tensor], config: Mapping[str, Any], latents: Tensor) -> Tensor:
    """Latents [channels, height, width] of the model's own size -> [num_patches, clip_latent_dim]."""
    weight, bias = tensors["image_embedder_und.proj.weight"], tensors["image_embedder_und.proj.bias"]
    patches = functional.conv2d(latents[None].to(weight.dtype), weight, bias, stride=config["patch_size"])
    x = patches[0].flatten(1).T + tensors["position_embedding.weight"]
    for number in range(config["num_semantic_layers"]):
        x = _through(tensors, f"und_trans.layers.{number}.", config["semantic_config"], x)
    return x


def _through(tensors: Mapping[str, Tensor], name: str, sizes: Mapping[str, Any], x: Tensor) -> Tensor:
    """One layer: every patch sees all patches."""

    def affine(part: str, given: Tensor) -> Tensor:
        return functional.linear(given, tensors[f"{name}{part}.weight"], tensors[f"{name}{part}.bias"])

    def normed(part: str) -> Tensor:
        weight, bias = tensors[f"{name}{part}.weight"], tensors[f"{name}{part}.bias"]
        return functional.layer_norm(x, (x.shape[-1],), weight, bias, sizes["layer_norm_eps"])

    rows, num_heads = normed("layer_norm1"), sizes["num_attention_heads"]
    q, k, v = (affine(f"self_attn.{part}_proj", rows).view(len(x), num_heads, -1).transpose(0, 1) for part in "qkv")
    attended = functional.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1)
    x = x + affine("self_attn.out_proj", attended.reshape(len(x), -1))
    return x + affine("mlp.fc2", functional.gelu(affine("mlp.fc1", normed("layer_norm2")), approximate="tanh"))
