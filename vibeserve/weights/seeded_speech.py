"""A seeded random Moonshine Streaming. Child process only.

As for text (`seeded.py`), few tokens have readout rows of full norm and all weights lie on the bf16 grid, so that
rounding turns few tokens while another encoder state turns many. Transcripts of random weights mean nothing; they
depend on every layer, on all the audio so far, and mostly keep their beginning when audio is added, as those of trained
models do.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import MoonshineStreamingConfig, MoonshineStreamingForConditionalGeneration

from vibeserve.errors import WeightsError
from vibeserve.weights.seeded import readable_ids, set_readout, train_tokenizer, wrap_tokenizer

TOKENIZER_TOKENS = 4096
"""the model's further ids have no text and are never written"""
END_TOKEN_ID = 2
START_TOKEN_ID = 1
WINDOW_FRAMES, LOOKAHEAD_FRAMES = 16, 4
"""of a layer that looks ahead, its own frame included: three more"""
GAINS = {
    "self_attn.q_proj": 2.0,
    "self_attn.k_proj": 2.0,
    "self_attn.o_proj": 1.4,
    "encoder_attn.q_proj": 1.2,
    "encoder_attn.k_proj": 1.2,
    "encoder_attn.o_proj": 2.0,
}
"""part of a parameter's name -> factor of its standard deviation. Smaller ones repeat one word whatever is heard,
larger ones change every word with every chunk and with rounding. With these, on the twin's sizes and 6 s of audio: 28%
of two recordings' words are the same at the same place, 66% stay when half a second is added, bf16 turns 1%"""
BRANCH_ENDS = ("o_proj", "fc2")
EXTRA_KEYS = ("num_key_value_heads",)
"""keys that the class reads and does not declare (transformers 5.24)"""


def build_seeded_speech(
    *, architecture: str, seed: int, config: dict[str, Any], encoder: dict[str, Any]
) -> tuple[Any, Any]:
    """Model (f32, values on the bf16 grid) and tokenizer. `encoder`: the spec's `model.speech_encoder`."""
    if architecture != "moonshine_streaming":
        raise WeightsError(
            f"model.architecture: no seeded weights of '{architecture}' for speech; valid: moonshine_streaming"
        )
    known = MoonshineStreamingConfig(num_key_value_heads=8).to_dict()
    unknown = sorted(name for name in config if name not in known and name not in EXTRA_KEYS)
    if unknown:
        raise WeightsError(
            f"model.source.config: {', '.join(unknown)} unknown to '{architecture}'; valid: {', '.join(sorted(known))}"
        )
    options = {name: int(value) if isinstance(value, float) else value for name, value in config.items()}
    model_config = MoonshineStreamingConfig(
        **{"num_key_value_heads": options.get("num_attention_heads", 8), **options},
        encoder_config=encoder_options(encoder), bos_token_id=START_TOKEN_ID, eos_token_id=END_TOKEN_ID,
        decoder_start_token_id=START_TOKEN_ID, pad_token_id=0, tie_word_embeddings=False,
    )  # fmt: skip
    tokenizer = train_tokenizer(min(TOKENIZER_TOKENS, int(model_config.vocab_size)))
    torch.manual_seed(seed)
    model = MoonshineStreamingForConditionalGeneration(model_config).eval()
    _initialise(model, readable=readable_ids(tokenizer), seed=seed)
    return model, wrap_tokenizer(tokenizer, max_tokens=int(model_config.max_position_embeddings))


def encoder_options(encoder: dict[str, Any]) -> dict[str, Any]:
    """Sizes of the encoder as its configuration names them; what the spec leaves at 0 keeps the class's default."""
    names = {
        "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
        "num_heads": "num_attention_heads", "head_dim": "head_dim", "sample_rate_hz": "sample_rate",
    }  # fmt: skip
    options = {to: int(encoder[name]) for name, to in names.items() if encoder.get(name)}
    if "num_attention_heads" in options:
        options["num_key_value_heads"] = options["num_attention_heads"]
    num_layers = options.get("num_hidden_layers", 0)
    if num_layers and encoder.get("left_frames"):
        options["sliding_windows"] = windows_of(
            num_layers, left_frames=int(encoder["left_frames"]), lookahead_frames=int(encoder["lookahead_frames"])
        )
    return options


def windows_of(num_layers: int, *, left_frames: int, lookahead_frames: int) -> Any:
    """(frames back, own included; frames ahead, own included) by layer: the first and the last layers look ahead."""
    num_ahead = -(-lookahead_frames // (LOOKAHEAD_FRAMES - 1))
    first, last = -(-num_ahead // 2), num_ahead // 2
    return [
        [left_frames, LOOKAHEAD_FRAMES if number < first or number >= num_layers - last else 0]
        for number in range(num_layers)
    ]


@torch.no_grad()
def _initialise(model: Any, *, readable: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_layers = int(model.config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and name.endswith("weight"):
            is_embedding = "embed_tokens" in name
            fan_in = math.prod(parameter.shape[1:])
            scale = 1.0 if is_embedding else _gain(name, num_layers=num_layers) / math.sqrt(fan_in)
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    set_readout(model.get_output_embeddings().weight, readable=readable, generator=generator)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def _gain(name: str, *, num_layers: int) -> float:
    gain = math.prod(factor for part, factor in GAINS.items() if part in name)
    is_branch_end = any(part in name for part in BRANCH_ENDS)
    return gain * min(1.0, math.sqrt(2 / num_layers)) if is_branch_end else gain
