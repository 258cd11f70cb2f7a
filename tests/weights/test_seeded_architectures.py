"""Seeded random models of several architectures: every layer counts, bf16 rounding does not."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from vibeserve.errors import WeightsError
from vibeserve.weights import seeded as seeding

build_seeded = seeding.build_seeded

SIZES: dict[str, Any] = {"hidden_size": 64, "vocab_size": 1024}
ATTENTION: dict[str, Any] = {
    **SIZES, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 512,
}  # fmt: skip
LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "mamba2": {
        **SIZES, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 2,
        "chunk_size": 32,
    },
    "olmo_hybrid": {**ATTENTION, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
    "qwen3_next": {
        **ATTENTION, **LINEAR, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
    },
}  # fmt: skip
NUM_PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS = 32, 32, 20
MAX_FLIPS, MAX_MARGIN_NATS = 0.02, 0.35
"""measured over three seeds: 0.5% to 1.6%, and 0.28 nats"""
MIN_CHANGED = 0.1
"""tokens that a perturbed layer changes; measured: 30% and more"""


@pytest.fixture(scope="module", autouse=True)
def one_tokenizer() -> Iterator[None]:
    """Training it is most of a tiny model's time, and it does not depend on the model."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are faster on one
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(seeding, "train_tokenizer", cache(seeding.train_tokenizer))
        yield
    torch.set_num_threads(num_threads)


@cache
def seeded(architecture: str) -> Any:
    return build_seeded(architecture=architecture, seed=0, config=CONFIGS[architecture])[0]


@cache
def exact_text(architecture: str) -> Tensor:
    return greedy(seeded(architecture))


@cache
def prompts() -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(259, 1024, (NUM_PROMPTS, PROMPT_TOKENS), generator=generator)


@torch.inference_mode()
def greedy(model: Any) -> Tensor:
    """Ids [NUM_PROMPTS, OUTPUT_TOKENS], token by token with the model's cache."""
    step, cache_, served = prompts(), None, []
    for _ in range(OUTPUT_TOKENS):
        output = model(input_ids=step, cache=cache_, use_cache=True, logits_to_keep=1)
        cache_, step = output.cache, output.logits[:, -1].float().argmax(-1)[:, None]
        served.append(step)
    return torch.cat(served, 1)


@torch.inference_mode()
def disagreement(reference: Any, served: Tensor) -> tuple[float, float]:
    """(share of served ids that the reference would not have chosen, largest margin in nats), teacher-forced."""
    ids = torch.cat([prompts(), served], 1)
    logits = reference(input_ids=ids[:, :-1], use_cache=False).logits[:, PROMPT_TOKENS - 1 :].float()
    best = logits.max(-1)
    margins = best.values - logits.gather(-1, served[..., None])[..., 0]
    return float((best.indices != served).float().mean()), float(margins.max())


def layers_of(model: Any) -> Any:
    return next(module for name, module in model.named_modules() if name.endswith("layers"))


@pytest.mark.parametrize("architecture", CONFIGS)
def test_bf16_rounding_changes_next_to_nothing(architecture: str) -> None:
    model = seeded(architecture)
    assert disagreement(model, exact_text(architecture))[0] == 0
    share, margin = disagreement(model, greedy(copy.deepcopy(model).to(torch.bfloat16)))
    assert share < MAX_FLIPS
    assert margin < MAX_MARGIN_NATS


@pytest.mark.parametrize("architecture", CONFIGS)
def test_every_layer_changes_the_text(architecture: str) -> None:
    model = seeded(architecture)
    for index in range(len(layers_of(model))):
        wrong = copy.deepcopy(model)
        generator = torch.Generator().manual_seed(5)
        for parameter in layers_of(wrong)[index].parameters():
            if parameter.dim() >= 2:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.data += 0.5 * parameter.data.std() * noise
        assert disagreement(model, greedy(wrong))[0] > MIN_CHANGED, index


@pytest.mark.parametrize("architecture", CONFIGS)
def test_texts_differ_and_do_not_repeat(architecture: str) -> None:
    served = exact_text(architecture)
    assert len({tuple(row) for row in served.tolist()}) == NUM_PROMPTS
    assert float((served[:, 1:] == served[:, :-1]).float().mean()) < 0.2


@pytest.mark.parametrize("architecture", CONFIGS)
def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before(architecture: str) -> None:
    torch.randn(7)
    again = build_seeded(architecture=architecture, seed=0, config=CONFIGS[architecture])[0]
    ours, theirs = dict(seeded(architecture).named_parameters()), dict(again.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert all(torch.equal(value, value.to(torch.bfloat16).float()) for value in ours.values())
    other = dict(build_seeded(architecture=architecture, seed=1, config=CONFIGS[architecture])[0].named_parameters())
    assert any(not torch.equal(ours[name], other[name]) for name in ours)


def test_lists_flags_and_words_of_a_configuration_are_taken() -> None:
    config = seeded("olmo_hybrid").config
    assert config.layer_types == ["linear_attention", "full_attention"]
    flags = {**CONFIGS["olmo_hybrid"], "linear_allow_neg_eigval": False, "hidden_act": "gelu"}
    other = build_seeded(architecture="olmo_hybrid", seed=0, config=flags)[0].config
    assert (other.linear_allow_neg_eigval, other.hidden_act) == (False, "gelu")


def test_an_encoder_is_made_with_its_own_class_and_a_tokenizer() -> None:
    config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model, tokenizer = build_seeded(architecture="bert", seed=0, config={**config, "vocab_size": 512}, is_causal=False)
    assert type(model).__name__ == "BertModel"
    ids = tokenizer("seeded words", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert torch.isfinite(model(input_ids=ids).last_hidden_state).all()


@pytest.mark.parametrize(
    ("architecture", "config", "expected"),
    [
        ("mamba9", {}, "model.architecture: transformers .* has no 'mamba9'"),
        ("mamba2", {"num_haeds": 2}, "num_haeds unknown to 'mamba2'; valid: .*num_heads"),
        ("clip", {"vocab_size": 512}, "vocab_size unknown to 'clip'"),
        ("vit", {"hidden_size": 32}, "transformers makes no causal language model of 'vit'"),
    ],
)
def test_refused_declarations(architecture: str, config: dict[str, Any], expected: str) -> None:
    with pytest.raises(WeightsError, match=expected):
        build_seeded(architecture=architecture, seed=0, config=config)
