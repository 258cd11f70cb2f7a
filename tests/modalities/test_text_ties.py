"""Flips at near ties: what rounding explains, and what only a choice does."""

from __future__ import annotations

import random

import pytest

from vibeserve.contract import ReplyDistances
from vibeserve.core.nouns import Chunk, PromptRequest, Reply
from vibeserve.modalities.binomial import poisson_quantile
from vibeserve.modalities.text.check_ties import FLIP, GAP_NOISE, TIE_GAP, flip_probability, tie_distances, tie_findings

NUM_TOKENS = 24


def reply(name: str, *, ids: tuple[int, ...], logprobs: tuple[float, ...] = ()) -> Reply:
    request = PromptRequest(
        request_id=name, prompt="p", num_prompt_tokens=1, max_tokens=len(ids), logprobs=int(bool(logprobs))
    )  # fmt: skip
    return Reply(request=request, chunks=(Chunk(0.1, "x", ids),), token_logprobs=logprobs)


def served(
    *, num: int, noise_nats: float, seed: int, is_greedy_for_ties: bool = False, budget: float = 0.025
) -> list[ReplyDistances]:
    """Replies of a server whose gaps are off by normal noise; one in eight with log-probabilities. The cheat takes the
    second best below 0.05 nats, within a budget."""
    generator = random.Random(seed)
    found, spent, seen = [], 0, 0
    for number in range(num):
        gaps = [generator.expovariate(0.6) for _ in range(NUM_TOKENS)]
        has_logprobs = number % 8 == 0
        margins = []
        for gap in gaps:
            is_flipped = generator.gauss(0.0, noise_nats) > gap
            seen += 1
            if is_greedy_for_ties and not has_logprobs and gap < 0.05 and spent < budget * seen - 1:
                is_flipped, spent = True, spent + 1
            margins.append(gap if is_flipped else 0.0)
        wanted = tuple(-0.7 for _ in gaps)
        said = tuple(-0.7 + generator.gauss(0.0, noise_nats / 2) for _ in gaps) if has_logprobs else ()
        ids = tuple(range(number * NUM_TOKENS, (number + 1) * NUM_TOKENS))
        made = reply(f"r{number}", ids=ids, logprobs=said)
        distances = tuple(tie_distances(made, margins=margins, gaps=gaps, logprobs=wanted))
        found.append(ReplyDistances(request_id=f"r{number}", distances=distances))
    return found


@pytest.mark.parametrize("noise_nats", [0.0, 1e-6, 0.02, 0.1, 0.3])
def test_honest_rounding_of_any_size_passes(noise_nats: float) -> None:
    assert [
        seed for seed in range(50) if list(tie_findings(served(num=32, noise_nats=noise_nats, seed=seed), figures={}))
    ] == []


def test_a_ledger_of_near_ties_is_refused() -> None:
    figures: dict[str, float] = {}
    found = list(tie_findings(served(num=32, noise_nats=1e-6, seed=1, is_greedy_for_ties=True), figures=figures))
    assert [each.reason_class for each in found] == ["spent_tolerance"]
    assert figures["num_flips"] > 10 and figures["num_flips_expected"] < 0.1
    assert "at most 6 are allowed: the log-probabilities of other replies are so near" in found[0].text
    # under the noise of bf16 it takes a certification's replies
    coarse = served(num=400, noise_nats=0.02, seed=1, is_greedy_for_ties=True)
    assert [each.reason_class for each in tie_findings(coarse, figures={})] == ["spent_tolerance"]


def test_text_in_circles_meets_one_tie_once() -> None:
    made = reply("r", ids=(5, 6, 5, 6, 5, 6))
    by_name = {
        each.name: each.values
        for each in tie_distances(made, margins=[0.01, 0] * 3, gaps=[0.01, 2] * 3, logprobs=[-1] * 6)
    }
    assert by_name[FLIP] == (1, 0, 0, 0, 0, 0) and by_name[TIE_GAP] == (0.01, 2) * 3 and GAP_NOISE not in by_name


def test_a_reference_without_gaps_says_nothing_of_ties() -> None:
    assert tie_distances(reply("r", ids=(5,)), margins=[0.0], gaps=[], logprobs=[-1.0]) == []
    assert list(tie_findings([], figures={})) == []


def test_noise_turns_no_tie_around_more_often_than_not() -> None:
    assert flip_probability(0.0, scale=0.0) == 0.0
    assert flip_probability(0.0, scale=9.0) == 0.5
    assert flip_probability(0.02, scale=0.01) == pytest.approx(0.0228, abs=1e-4)


def test_quantiles_of_a_poisson_count() -> None:
    assert [poisson_quantile(mean, confidence=0.9999) for mean in (0.0, 1.0, 10.4, 900.0)] == [0, 6, 24, 1014]
