"""The nouns that cross module borders, and the contracts of the modules that may be replaced (seams).

weights     load_config(model_dir), load_weights(model_dir), load_decoder_weights(model_dir)
linear      Linear(weight, bias, parameters=)
attention   attend(q, k, v, mask)
model       Model(weights, config=, parameters=): the logits of the code that follows
sampler     Sampler(model, config=): from text to codes, one by one
decoder     PixelDecoder(weights, config=): codes -> pixels
tokenizer   Tokenizer(model_dir)
http        create_app(service)
placement   configure_threads(num_threads)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockConfig:
    """Sizes of the body's blocks."""

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
class DecoderConfig:
    num_levels: int
    num_blocks: int
    """of one level"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    body: BlockConfig
    decoder: DecoderConfig
    num_codes: int
    """that one token may be"""
    side: int
    """an image is side x side of them"""
    num_embedding_layers: int
    """of what makes a code's embedding a row of the body"""
    max_positions: int
    begin_token_id: int
    begin_image_token_id: int
    pad_token_id: int
    prompt_template: str
    """`{prompt}` stands for the prompt"""

    @property
    def num_tokens(self) -> int:
        """Of one image."""
        return self.side**2

    @property
    def side_px(self) -> int:
        return self.side << (self.decoder.num_levels - 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One image to draw."""

    request_id: str
    token_ids: tuple[int, ...]
    """of the prompt, in its template"""
    guidance: float
    temperature: float
    seed: int
    returns_token_ids: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One image: a PNG, and the codes that it was decoded from, [num_tokens], row by row."""

    png: bytes
    source: Tensor
    seed: int


class ModelLike(Protocol):
    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[Any, Tensor]:
        """State of one image behind the text of each branch of guidance, all of one length, and the logits of the first
        code, [num_branches, num_codes], f32. Nobody else looks into the state."""
        ...

    def step(self, state: Any, code: int, /) -> Tensor:
        """Append a code to every branch; the logits of the one that follows, [num_branches, num_codes], f32."""
        ...


class SamplerLike(Protocol):
    def draw(self, request: Request, /, *, is_dropped: Callable[[], bool]) -> Tensor:
        """Codes [num_tokens]. Raises Dropped between two of them once nobody waits for the image."""
        ...


class Dropped(Exception):
    """Nobody waits for the image any more."""


class DecoderLike(Protocol):
    def decode(self, codes: Tensor, /) -> Tensor:
        """Pixels [height, width, 3], bytes."""
        ...


class TokenizerLike(Protocol):
    def encode(self, text: str, /) -> list[int]: ...
