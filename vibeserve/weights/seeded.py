"""A seeded random causal LM whose greedy text depends on every layer and survives bf16 rounding. Child process only.

Plain random weights make poor test models: with V candidates the gap between the two best logits shrinks like
1 / (2 ln V) of the best one, so rounding flips 2-3% of greedy tokens. Here few tokens have readout rows of full norm,
orthogonal to each other, and all weights lie on the bf16 grid: rounding flips below 1%, while a perturbed layer, a
4-bit format or another RoPE base changes 20-40% of the tokens (`tests/accuracy/test_faults.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from vibeserve.errors import WeightsError

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
DEFAULT_VOCAB_SIZE = 2048
QK_GAIN = 1.25
"""sharpens attention, so that text depends on position and context"""
READOUT_NORM = 3.0
"""standard deviation of the readable logits, in nats"""
BACKGROUND = 0.05
"""norm of the other readout rows, as a share"""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build_seeded(*, architecture: str, seed: int, config: dict[str, float]) -> tuple[Any, Any]:
    """Model (f32, values on the bf16 grid) and tokenizer; a pure function of its arguments and the library versions."""
    vocab_size = int(config.get("vocab_size", DEFAULT_VOCAB_SIZE))
    tokenizer = train_tokenizer(vocab_size)
    sizes = {
        name: int(value) if float(value).is_integer() and name != "rope_theta" else value
        for name, value in config.items()
    }
    end = tokenizer.token_to_id("<|im_end|>")
    known = AutoConfig.for_model(architecture).to_dict()
    unknown = sorted(name for name in sizes if name not in known and name != "rope_theta")
    if unknown:
        raise WeightsError(
            f"model.source.config: {', '.join(unknown)} unknown to '{architecture}'; valid: {', '.join(sorted(known))}"
        )
    options = {"tie_word_embeddings": False, **sizes, "vocab_size": vocab_size}
    options["tie_word_embeddings"] = bool(options["tie_word_embeddings"])
    model_config = AutoConfig.for_model(architecture, **options, bos_token_id=1, eos_token_id=end, pad_token_id=end)
    model = AutoModelForCausalLM.from_config(model_config, dtype=torch.float32).eval()
    _initialise(model, readable=_readable_ids(tokenizer), seed=seed)
    return model, _wrap(tokenizer, max_tokens=int(getattr(model_config, "max_position_embeddings", 2048)))


def train_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level BPE on the stdlib's help topics, the only real text that every Python ships."""
    from pydoc_data.topics import topics

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([topics[name] for name in sorted(topics)], trainer=trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        reached = tokenizer.get_vocab_size()
        raise WeightsError(
            f"model.source.config.vocab_size {vocab_size}: the text gives {reached} tokens; use 512 to 8192"
        )
    return tokenizer


def _wrap(tokenizer: Tokenizer, *, max_tokens: int) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
    )


def _readable_ids(tokenizer: Tokenizer) -> list[int]:
    """Tokens of at least two printable ASCII characters: greedy text is then valid UTF-8 at every step."""
    first = len(SPECIAL_TOKENS) + 256
    decoded = ((token, tokenizer.decode([token])) for token in range(first, tokenizer.get_vocab_size()))
    return [token for token, text in decoded if text.isascii() and text.isprintable() and text.strip().isalpha()]


@torch.no_grad()
def _initialise(model: Any, *, readable: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            # norms stay at their neutral value
            continue
        gain = math.sqrt(QK_GAIN) if ("q_proj" in name or "k_proj" in name) else 2.0 if "down_proj" in name else 1.0
        scale = 1.0 if "embed" in name else gain / math.sqrt(parameter.shape[-1])
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    _set_readout(model.get_output_embeddings().weight, readable=readable, generator=generator)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def _set_readout(weight: torch.Tensor, *, readable: list[int], generator: torch.Generator) -> None:
    """Full rows for hidden_size / 2 readable tokens, a faint background for the rest."""
    hidden_size = weight.shape[1]
    weight.copy_(torch.randn(weight.shape, generator=generator) * (BACKGROUND * READOUT_NORM / math.sqrt(hidden_size)))
    order = torch.randperm(len(readable), generator=generator)[: hidden_size // 2]
    chosen = torch.tensor(readable)[order]
    basis, _ = torch.linalg.qr(torch.randn(hidden_size, len(chosen), generator=generator))
    weight[chosen] = basis.T * READOUT_NORM
