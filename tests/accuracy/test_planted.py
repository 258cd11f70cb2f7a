"""Planted faults do what their names say, and leave the model as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vibeserve.accuracy.distributions import (
    DistributionLimits,
    compare_distributions,
    distribution_problems,
    limits_from_noise,
)
from vibeserve.modalities.text.faults_planted import (
    LOWER_EXPONENT_BITS,
    MANTISSA_BITS,
    TOP_EXPONENT_BIT,
    Decoding,
    Kind,
    decode,
    flip_bits,
    planted,
    plants,
    quantise,
)

PROMPTS = [[5 + 7 * row + 3 * place for place in range(24)] for row in range(4)]


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model_dir / "f32", dtype=torch.float32).eval()


def served(model: Any, **how: Any) -> list[list[int]]:
    return decode(model, PROMPTS, num_tokens=10, how=Decoding(**how), seed=1)[0]


def test_decoding_as_it_should_be_is_what_the_model_generates(model: Any) -> None:
    ids, logprobs = decode(model, PROMPTS, num_tokens=10, how=Decoding(), seed=1)
    expected = model.generate(
        torch.tensor(PROMPTS), max_new_tokens=10, min_new_tokens=10, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert ids == expected[:, len(PROMPTS[0]) :].tolist()
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([PROMPTS[0] + ids[0][:-1]])).logits[0, len(PROMPTS[0]) - 1 :]
    teacher_forced = logits.log_softmax(-1).gather(1, torch.tensor(ids[0])[:, None])[:, 0].tolist()
    assert logprobs[0] == pytest.approx(teacher_forced, abs=1e-4)


def test_equal_shifts_of_prompt_and_reply_change_nothing_and_unequal_ones_do(model: Any) -> None:
    right = served(model)
    assert served(model, prompt_shift=7, position_shift=7) == right
    assert served(model, position_shift=3) != right


def test_a_window_beyond_everything_and_no_stale_position_change_nothing(model: Any) -> None:
    right = served(model)
    assert served(model, window=1.0) == served(model, window=1000) == right
    assert served(model, window=0.25) != right


def test_stale_caches_are_those_of_the_request_before(model: Any) -> None:
    right = served(model)
    stale = served(model, stale_positions=-1, stale_one_in=2)
    # the first token was computed with the right keys; only every second request is hit
    assert [ids[0] for ids in stale] == [ids[0] for ids in right]
    assert stale[1] == right[1] and stale[3] == right[3] and stale[0] != right[0]


def test_lenient_speculation_takes_the_second_best_where_it_is_near(model: Any) -> None:
    right = served(model)
    assert served(model, lenience_nats=1e-9) == right
    # within any distance the second best is always taken, if every step has a draft
    with torch.inference_mode():
        rows = model(input_ids=torch.tensor(PROMPTS)).logits[:, -1]
    assert [ids[0] for ids in served(model, lenience_nats=1e9)] == rows.topk(2).indices[:, 1].tolist()
    assert served(model, lenience_nats=1e9, lenient_share=0.0) == right


def test_every_plant_leaves_the_model_as_it_was(model: Any) -> None:
    ids = torch.tensor(PROMPTS)
    before = model(input_ids=ids).logits
    names = []
    for plant in plants(num_layers=2, has_packed_q4_1=True):
        with planted(model, plant, seed=3), torch.inference_mode():
            changed = model(input_ids=ids).logits
        is_same = bool(torch.equal(changed, before))
        # what is in the decoding alone, the exact one, and weights that are stored in bf16 already change no forward
        assert is_same == (not plant.is_in_forward or plant.name in ("f32", "bf16_weights")), plant.name
        assert torch.equal(model(input_ids=ids).logits, before), plant.name
        names.append(plant.name)
    assert len(set(names)) == len(names) and any(plant.kind is Kind.HONEST for plant in plants(
        num_layers=2, has_packed_q4_1=False))  # fmt: skip


@pytest.mark.parametrize(("bits", "largest"), [(MANTISSA_BITS, 2.0), (LOWER_EXPONENT_BITS, 2.0**64)])
def test_flipped_bits_are_as_many_and_as_large_as_they_should_be(bits: range, largest: float) -> None:
    weights = [torch.randn(64, 64, generator=torch.Generator().manual_seed(1)) * 0.02 for _ in range(2)]
    stored = [weight.bfloat16().float() for weight in weights]
    flip_bits(weights, num_flips=50, bits=bits, generator=torch.Generator().manual_seed(2))
    changed = torch.cat([(one != other).flatten() for one, other in zip(weights, stored, strict=True)])
    ratio = torch.cat([(one / other).flatten() for one, other in zip(weights, stored, strict=True)])[changed]
    assert 47 <= int(changed.sum()) <= 50  # two flips may meet in one weight
    assert float(ratio.abs().max()) <= largest and bool((ratio >= 0).all())


def test_the_top_bit_of_the_exponent_makes_a_weight_enormous() -> None:
    weights = [torch.full((4, 4), 0.02)]
    flip_bits(weights, num_flips=1, bits=TOP_EXPONENT_BIT, generator=torch.Generator().manual_seed(2))
    assert float(weights[0].max()) > 1e30


def test_rounding_to_few_bits_stays_within_half_a_step() -> None:
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    steps = weight.reshape(-1, 32).abs().amax(-1) / 7
    errors = (quantise(weight, bits=4, group=32) - weight).reshape(-1, 32).abs().amax(-1)
    assert bool((errors <= steps / 2 + 1e-6).all())
    assert quantise(weight, bits=4, group=0).unique().numel() <= 15


def test_distributions_are_compared_by_definition() -> None:
    reference = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])
    right, other = reference.log_softmax(-1), logits.log_softmax(-1)
    kl = float((right.exp() * (right - other)).sum(-1)[0])
    figures = compare_distributions(reference, logits, [2, 0])
    assert figures["kl_mean"] == pytest.approx(kl / 2) and figures["kl_p99"] == pytest.approx(kl)
    assert figures["top1_agreement"] == 0.5 and figures["num_positions"] == 2
    assert figures["nll_difference"] == pytest.approx(float(right[0, 2] - other[0, 2]) / 2)
    assert compare_distributions(reference, reference + 5.0, [2, 0])["kl_mean"] == pytest.approx(0.0, abs=1e-6)


def test_what_is_no_number_or_absent_keeps_no_bound() -> None:
    broken = compare_distributions(torch.zeros(2, 3), torch.full((2, 3), float("nan")), [0, 1])
    assert len(list(distribution_problems(broken, limits=DistributionLimits()))) >= 3
    assert len(list(distribution_problems({}, limits=DistributionLimits()))) == 4
    fine = {"kl_mean": 1e-3, "kl_p99": 1e-2, "top1_agreement": 0.98, "nll_difference": 0.01, "num_positions": 500}
    assert list(distribution_problems(fine, limits=DistributionLimits())) == []
    assert list(distribution_problems({**fine, "kl_mean": 6e-3}, limits=DistributionLimits())) == [
        "kl_mean is 0.006, at most 0.005 is allowed"
    ]


def test_agreement_on_a_short_text_is_coarse() -> None:
    fine = {"kl_mean": 1e-3, "kl_p99": 1e-2, "nll_difference": 0.01}
    short = {**fine, "top1_agreement": 0.9685, "num_positions": 254}
    assert list(distribution_problems(short, limits=DistributionLimits())) == []
    long = {**short, "top1_agreement": 0.968, "num_positions": 100_000}
    assert list(distribution_problems(long, limits=DistributionLimits())) == [
        "top1_agreement is 0.9680, at least 0.9683 is required of 100000 positions"
    ]
    assert list(distribution_problems({**short, "top1_agreement": 0.92}, limits=DistributionLimits())) == [
        "top1_agreement is 0.9200, at least 0.9331 is required of 254 positions"
    ]


def test_bounds_from_noise_hold_the_noise_and_not_the_narrower_format(model: Any) -> None:
    ids = torch.tensor(PROMPTS)
    next_ids = ids[:, 1:].flatten().tolist()
    figures = {}
    known = {plant.name: plant for plant in plants(num_layers=2, has_packed_q4_1=False)}
    with torch.inference_mode():
        right = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
        for name in ("bf16", "int8_group32", "q4_symmetric_group32", "middle_layer_skipped"):
            with planted(model, known[name], seed=1), torch.inference_mode():
                logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
            figures[name] = compare_distributions(right, logits, next_ids)
    limits = limits_from_noise(figures["bf16"])
    refused = {name: bool(list(distribution_problems(values, limits=limits))) for name, values in figures.items()}
    assert not refused["bf16"] and refused["q4_symmetric_group32"] and refused["middle_layer_skipped"]
