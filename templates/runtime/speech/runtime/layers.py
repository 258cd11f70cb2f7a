"""The model's arithmetic, by layers that keep nothing between calls. Rows of many recordings may stand together."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import EncoderConfig, ModelConfig
from .linear import Linear
from .parameters import Parameters

CMVN_EPS = 1e-6
NORM_EPS = 1e-5
CONV_KERNEL, CONV_STRIDE = 5, 2
MIN_UTTERANCE_SAMPLES = 895
"""that convolutions of 127, 7 and 3 by strides of 64, 3 and 2 make one frame of"""
FRAMES_PER_STEP = CONV_STRIDE**2
"""finest frames to a frame of the encoder"""


def norm_weight(weights: dict[str, Tensor], name: str) -> Tensor:
    """Of a layer norm; streaming encoders store it less one."""
    offset = weights.get(f"{name}.gamma")
    return weights[f"{name}.weight"].float() if offset is None else offset.float() + 1.0


def layer_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), weight, None, NORM_EPS)


class Frontend:
    """Samples -> frames of 20 ms, causal: a normalised, compressed linear of every 5 ms, two strided convolutions."""

    def __init__(self, weights: dict[str, Tensor], *, config: EncoderConfig, parameters: Parameters) -> None:
        name = "encoder.embedder."
        self._frame_samples = config.frame_samples
        self._scale = weights[f"{name}comp.log_k"].float().exp()
        self._linear = Linear(weights[f"{name}linear.weight"], parameters=parameters)
        self._convolutions = [
            (weights[f"{name}{conv}.weight"].float(), weights[f"{name}{conv}.bias"].float())
            for conv in ("conv1", "conv2")
        ]

    def __call__(self, samples: Tensor) -> Tensor:
        """`samples` [num_samples], a multiple of `frame_samples` and not empty -> [num_frames, hidden_size]."""
        frames = samples.view(-1, self._frame_samples)
        centred = frames - frames.mean(-1, keepdim=True)
        frames = centred / (centred.pow(2).mean(-1, keepdim=True) + CMVN_EPS).sqrt()
        x = functional.silu(self._linear(torch.asinh(self._scale * frames))).T[None]
        for number, (weight, bias) in enumerate(self._convolutions):
            x = functional.conv1d(functional.pad(x, (CONV_KERNEL - 1, 0)), weight, bias, stride=CONV_STRIDE)
            x = functional.silu(x) if number == 0 else x
        return x[0].T


class UtteranceFrontend:
    """Samples -> frames of 384 samples, each of which the norm between the convolutions ties to all others."""

    def __init__(self, weights: dict[str, Tensor], *, config: EncoderConfig, parameters: Parameters) -> None:
        name = "encoder."
        self._first = weights[f"{name}conv1.weight"].float()
        self._norm = [weights[f"{name}groupnorm.{part}"].float() for part in ("weight", "bias")]
        self._others = [
            (weights[f"{name}{conv}.weight"].float(), weights[f"{name}{conv}.bias"].float(), stride)
            for conv, stride in (("conv2", 3), ("conv3", 2))
        ]

    def __call__(self, samples: Tensor) -> Tensor:
        """`samples` [num_samples] -> [num_frames, hidden_size]; too few for a frame are filled with zeros."""
        samples = functional.pad(samples, (0, max(0, MIN_UTTERANCE_SAMPLES - len(samples))))
        x = functional.conv1d(samples[None, None], self._first, stride=64).tanh()
        x = functional.group_norm(x, 1, *self._norm, eps=NORM_EPS)
        for weight, bias, stride in self._others:
            x = functional.gelu(functional.conv1d(x, weight, bias, stride=stride))
        return x[0].T


class EncoderLayer:
    """One layer but for its attention's reach, which is the caller's."""

    def __init__(
        self, weights: dict[str, Tensor], number: int, *, config: EncoderConfig, parameters: Parameters
    ) -> None:
        name = f"encoder.layers.{number}."
        self._shape = (config.num_heads, config.head_dim)
        norms = ("input_layernorm", "post_attention_layernorm")
        self._norms = [norm_weight(weights, f"{name}{norm}") for norm in norms]
        qkv = [weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"]
        self._qkv = Linear(torch.cat(qkv), parameters=parameters)
        self._out = Linear(weights[f"{name}self_attn.o_proj.weight"], parameters=parameters)
        self._up, self._down = (
            Linear(weights[f"{name}mlp.{part}.weight"], weights[f"{name}mlp.{part}.bias"], parameters=parameters)
            for part in ("fc1", "fc2")
        )

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of rows x [num_rows, hidden_size], each [num_rows, num_heads, head_dim]."""
        qkv = self._qkv(layer_norm(x, self._norms[0])).view(len(x), 3, *self._shape)
        return qkv[:, 0], qkv[:, 1], qkv[:, 2]

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output. `attended` [num_rows, num_heads, head_dim]."""
        x = x + self._out(attended.reshape(len(x), -1))
        return x + self._down(functional.gelu(self._up(layer_norm(x, self._norms[1]))))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of rows [num_rows, num_heads, head_dim] to k, v [num_keys, num_heads, head_dim]; `mask` [num_rows,
    num_keys], true where a row sees a key."""
    out = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], attn_mask=mask
    )
    return out[0].transpose(0, 1)


def window_mask(first_row: int, num_rows: int, first_key: int, num_keys: int, *, window: tuple[int, int]) -> Tensor:
    """Which frames see which: `window` frames back and ahead, the own one included in both."""
    distance = torch.arange(first_row, first_row + num_rows)[:, None] - torch.arange(first_key, first_key + num_keys)
    back, ahead = window
    return ((distance >= 0) & (distance < back)) | ((distance < 0) & (-distance < ahead))


class DecoderLayer:
    """One layer but for what its two attentions see, which is the caller's."""

    def __init__(self, weights: dict[str, Tensor], number: int, *, config: ModelConfig, parameters: Parameters) -> None:
        name = f"decoder.layers.{number}."
        self._shape = (config.num_heads, config.head_dim)
        norms = ("input_layernorm", "post_attention_layernorm", "final_layernorm")
        self._norms = [weights[f"{name}{norm}.weight"].float() for norm in norms]
        own = [weights[f"{name}self_attn.{part}_proj.weight"] for part in "qkv"]
        heard = [weights[f"{name}encoder_attn.{part}_proj.weight"] for part in "kv"]
        self._qkv = Linear(torch.cat(own), parameters=parameters)
        self._heard = Linear(torch.cat(heard), parameters=parameters)
        self._query, self._own_out, self._heard_out = (
            Linear(weights[f"{name}{part}.weight"], parameters=parameters)
            for part in ("encoder_attn.q_proj", "self_attn.o_proj", "encoder_attn.o_proj")
        )
        self._up, self._down = (
            Linear(weights[f"{name}mlp.{part}.weight"], weights[f"{name}mlp.{part}.bias"], parameters=parameters)
            for part in ("fc1", "fc2")
        )

    def heard(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of encoder frames [num_frames, hidden_size], each [num_frames, num_heads, head_dim]."""
        kv = self._heard(frames).view(len(frames), 2, *self._shape)
        return kv[:, 0], kv[:, 1]

    def project(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, of rows x, each [num_rows, num_heads, head_dim]."""
        qkv = self._qkv(layer_norm(x, self._norms[0])).view(len(x), 3, *self._shape)
        return rotated(qkv[:, 0], rotation), rotated(qkv[:, 1], rotation), qkv[:, 2]

    def add_own(self, x: Tensor, attended: Tensor) -> Tensor:
        return x + self._own_out(attended.reshape(len(x), -1))

    def query(self, x: Tensor) -> Tensor:
        return self._query(layer_norm(x, self._norms[1])).view(len(x), *self._shape)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self._heard_out(attended.reshape(len(x), -1))
        up, gate = self._up(layer_norm(x, self._norms[2])).chunk(2, dim=-1)
        return x + self._down(functional.silu(gate) * up)


class Rotation:
    """Rotary positions of tokens, or of frames: neighbouring pairs, of the first `rotary_dim` of every head."""

    def __init__(self, config: ModelConfig | EncoderConfig) -> None:
        exponents = torch.arange(0, config.rotary_dim, 2, dtype=torch.float32) / config.rotary_dim
        self._frequencies = 1.0 / (config.rope_theta**exponents)

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, each [num_rows, 1, rotary_dim / 2]."""
        angles = positions[:, None].float() * self._frequencies
        return angles.cos()[:, None], angles.sin()[:, None]


def rotated(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotation
    turned, kept = x[..., : 2 * cos.shape[-1]], x[..., 2 * cos.shape[-1] :]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return torch.cat((pairs.flatten(-2), kept), dim=-1)


class Vocabulary:
    """Token ids -> rows, and rows -> logits."""

    def __init__(self, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        self._embedding = weights["decoder.embed_tokens.weight"].float()
        self._norm = weights["decoder.norm.weight"].float()
        readout = weights.get("proj_out.weight")
        readout = weights["decoder.embed_tokens.weight"] if readout is None else readout
        self._readout = Linear(readout, parameters=parameters)

    def rows(self, token_ids: Tensor) -> Tensor:
        return self._embedding[token_ids]

    def logits(self, x: Tensor) -> Tensor:
        return self._readout(layer_norm(x, self._norm))


class Memory:
    """Encoder frames -> what the decoder listens to: positions added where the model has them, projected where the
    sizes differ."""

    def __init__(self, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        positions = weights.get("decoder.pos_emb.weight")
        self._positions = None if positions is None else positions.float()
        proj = weights.get("decoder.proj.weight")
        self._proj = None if proj is None else Linear(proj, parameters=parameters)

    def __call__(self, frames: Tensor, *, first: int) -> Tensor:
        placed = frames if self._positions is None else frames + self._positions[first : first + len(frames)]
        return placed if self._proj is None else self._proj(placed)
