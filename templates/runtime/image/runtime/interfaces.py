"""The nouns that cross module borders, and the contracts of the modules that may be replaced (seams).

weights     load_config(model_dir), load_weights(model_dir), load_decoder_weights(model_dir)
linear      Linear(weight, bias, parameters=)
attention   attend(q, k, v, mask)
model       Model(weights, config=, parameters=): the velocity of latents under a prompt
sampler     Sampler(model, config=): from noise to latents, in steps
decoder     PixelDecoder(weights, config=): latents -> pixels
tokenizer   Tokenizer(model_dir)
http        create_app(service)
placement   configure_threads(num_threads)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

PIXELS_PER_LATENT = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """Sizes of the body's blocks, or of the head's."""

    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None = None
    """of type llama3"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticConfig:
    """Layers that read the latents a second time; 0 of them: the model has none."""

    num_layers: int = 0
    num_heads: int = 0
    norm_eps: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderConfig:
    num_levels: int
    num_blocks: int
    """of one level"""
    latent_mean: tuple[float, ...]
    latent_std: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    body: BlockConfig
    head: BlockConfig
    decoder: DecoderConfig
    semantic: SemanticConfig
    latent_channels: int
    latent_height: int
    latent_width: int
    """largest; an image may be smaller"""
    patch_size: int
    """latent pixels to a side of one row of the sequence"""
    time_shift: float
    max_positions: int
    begin_token_id: int
    begin_image_token_id: int

    @property
    def patch_px(self) -> int:
        """Sides of an image are multiples of it."""
        return PIXELS_PER_LATENT * self.patch_size


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One image to draw."""

    request_id: str
    token_ids: tuple[int, ...]
    """of the prompt"""
    height_px: int
    width_px: int
    steps: int
    guidance: float
    seed: int
    returns_latents: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One image: a PNG, and the latents that it was decoded from, [channels, height, width]."""

    png: bytes
    source: Tensor
    seed: int


class ModelLike(Protocol):
    def open(self, token_ids: Sequence[int], /) -> Any:
        """State of one branch of guidance: a prompt, or none. Nobody else looks into it."""
        ...

    def velocities(self, states: Sequence[Any], latents: Tensor, /, *, time: float) -> list[Tensor]:
        """dx/dt at `latents` [channels, height, width], f32, for each branch, of the same shape. `time` runs from 0
        (noise) to 1 (image)."""
        ...


class SamplerLike(Protocol):
    def draw(self, request: Request, /, *, is_dropped: Callable[[], bool]) -> Tensor:
        """Latents [channels, height, width], f32, after all steps. Raises Dropped between two steps once nobody waits
        for them."""
        ...


class Dropped(Exception):
    """Nobody waits for the image any more."""


class DecoderLike(Protocol):
    def decode(self, latents: Tensor, /) -> Tensor:
        """Pixels [height, width, 3], bytes."""
        ...


class TokenizerLike(Protocol):
    def encode(self, text: str, /) -> list[int]: ...
