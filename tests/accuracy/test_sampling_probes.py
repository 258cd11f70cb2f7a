"""Sampling probes: exact tests of draws, and servers that ignore what was asked for, without a model."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from vibeserve.modalities.probe_http import ProbeFailure
from vibeserve.modalities.text.probe_draws import PENALTY, SAMPLING_CHECKS
from vibeserve.modalities.text.probe_sampling import (
    NUM_DRAWS,
    SamplingTest,
    entropy,
    is_refused,
    robust_top_p,
    wanted,
)
from vibeserve.modalities.text.probe_session import Place, ProbeSession, Served
from vibeserve.spec import Tolerances

VOCABULARY = 200
PROMPT = (1, 2, 3)


def logprobs_after(ids: tuple[int, ...]) -> list[float]:
    """A made-up model: a peaked distribution that depends on the ids, the same at every call."""
    logits = 2.0 * np.random.default_rng([7, *ids]).standard_normal(VOCABULARY)
    return (logits - np.log(np.exp(logits).sum())).tolist()


HERE = logprobs_after(PROMPT)


def draws(num: int, *, seed: int, **served: float) -> list[int]:
    probs = wanted(HERE, **served).probs
    return np.random.default_rng(seed).choice(VOCABULARY, size=num, p=probs).tolist()


def smallest(drawn: list[int], **asked: float) -> float:
    return min(SamplingTest(wanted(HERE, **asked), num_draws=len(drawn), seed=1).p_values(drawn).values())


@pytest.mark.parametrize("asked", [{}, {"temperature": 0.5}, {"top_p": 0.6}, {"temperature": 1.7, "top_p": 0.9}])
def test_p_values_of_right_draws_are_spread_over_the_whole_range(asked: dict[str, float]) -> None:
    """Each of three tests is below a tenth in about a tenth of the trials: valid, and no weaker than it says."""
    test = SamplingTest(wanted(HERE, **asked), num_draws=NUM_DRAWS, seed=1)
    found = [test.p_values(draws(NUM_DRAWS, seed=seed, **asked)) for seed in range(100)]
    for name in ("sharpness", "frequencies", "repeats"):
        share = sum(values[name] <= 0.1 for values in found) / len(found)
        assert 0.01 <= share <= 0.21, name
    assert not any(is_refused(min(values.values())) for values in found)


@pytest.mark.parametrize(
    ("served", "asked", "by"),
    [
        ({"temperature": 1e-3}, {}, "sharpness"),
        ({"temperature": 0.5}, {}, "sharpness"),
        ({}, {"temperature": 0.5}, "sharpness"),
        ({}, {"top_p": 0.5}, "support"),
    ],
    ids=["greedy", "colder", "warmer", "no nucleus"],
)
def test_wrong_draws_are_told_apart(served: dict[str, float], asked: dict[str, float], by: str) -> None:
    test = SamplingTest(wanted(HERE, **asked), num_draws=NUM_DRAWS, seed=1)
    for seed in range(5):
        values = test.p_values(draws(NUM_DRAWS, seed=seed, **served))
        assert is_refused(values[by])


def test_rates_that_keep_the_mean_log_probability_are_seen_by_their_frequencies() -> None:
    probs = np.array([0.25, 0.25, 0.25, 0.25])
    drawn = [0, 1] * (NUM_DRAWS // 2)
    values = SamplingTest(wanted(np.log(probs)), num_draws=NUM_DRAWS, seed=1).p_values(drawn)
    assert values["sharpness"] == 1.0 and is_refused(values["frequencies"])


def test_a_few_seeds_for_all_requests_repeat_themselves() -> None:
    few = draws(4, seed=3)
    assert is_refused(smallest([few[place % 4] for place in range(NUM_DRAWS)]))


def test_what_is_no_token_must_not_be_drawn() -> None:
    assert smallest([*draws(NUM_DRAWS - 1, seed=1), VOCABULARY]) == 0.0
    assert smallest([*draws(NUM_DRAWS - 1, seed=1), -1]) == 0.0
    with pytest.raises(ValueError, match="47 draws for a test of 48"):
        SamplingTest(wanted(HERE), num_draws=48, seed=1).p_values([0] * 47)


def test_a_nucleus_has_its_border_inside_a_likely_token() -> None:
    probs = np.array([0.4, 0.3, 0.2, 0.1])
    top_p = robust_top_p(np.log(probs))
    assert top_p == pytest.approx(0.55)
    assert (wanted(np.log(probs), top_p=top_p).probs > 0).tolist() == [True, True, False, False]
    assert wanted(np.log(probs), top_p=top_p).allowed.tolist() == [True, True, False, False]
    assert wanted(np.log(np.array([0.3, 0.29, 0.28, 0.13])), top_p=0.5).allowed.tolist() == [True, True, True, False]


def test_entropy_is_in_nats_and_an_impossible_token_adds_nothing() -> None:
    assert entropy([math.log(0.5), math.log(0.5), -math.inf]) == pytest.approx(math.log(2))


@dataclass
class FakeServer:
    """Serves the made-up model as it is asked; variants override one method."""

    seed: int = 5
    model: str = "fake"
    is_over: bool = False
    tolerances: Tolerances = field(default_factory=Tolerances)
    unseeded: Any = field(default_factory=lambda: itertools.count(10_000))

    def __post_init__(self) -> None:
        self.client = SimpleNamespace(completions=SimpleNamespace(create=self.create))
        self.first = SimpleNamespace(prompt="one two three")
        self.tokenizer = SimpleNamespace(encode=lambda text: SimpleNamespace(ids=list(PROMPT)))
        self.reference: Any = SimpleNamespace(next_logprobs=lambda ids: logprobs_after(tuple(ids)))
        self.sampled_place: Place | None = Place(PROMPT, tuple(HERE))
        self.greedy = Served("", tuple(self.generate(temperature=0.0, max_tokens=8)), "length", 3, 8)

    def create(self, *, prompt: list[int], extra_body: dict[str, Any], **fields: Any) -> Any:
        (token,) = self.generate(**{"max_tokens": 1, **fields})
        logprobs = SimpleNamespace(token_logprobs=[self.logprob(token)]) if fields.get("logprobs") else None
        choice = SimpleNamespace(model_extra={"token_ids": [token]}, logprobs=logprobs)
        return SimpleNamespace(choices=[choice])

    def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        refused = {"n", "top_k", "min_p", "logit_bias", "presence_penalty", "frequency_penalty"} & set(fields)
        if refused:
            return 400, {"error": {"message": f"{refused} not supported", "type": "invalid_request_error"}}
        return 200, self.answer([self.generate(**fields)])

    def answer(self, replies: list[list[int]]) -> dict[str, Any]:
        choices = [{"index": n, "text": str(ids), "token_ids": ids} for n, ids in enumerate(replies)]
        return {"choices": choices, "usage": {"completion_tokens": sum(map(len, replies))}}

    def generate(self, *, max_tokens: int, **fields: Any) -> list[int]:
        ids: list[int] = []
        generator = np.random.default_rng(self.seed_of(fields))
        for _ in range(max_tokens):
            values = np.asarray(logprobs_after((*PROMPT, *ids)))
            values = self.adjusted(values, ids, fields)
            temperature = self.temperature(fields)
            if not temperature:
                ids.append(int(values.argmax()))
                continue
            probs = wanted(values.tolist(), temperature=temperature, top_p=self.top_p(fields)).probs
            ids.append(int(generator.choice(VOCABULARY, p=probs)))
        return ids

    def adjusted(self, values: Any, ids: list[int], fields: dict[str, Any]) -> Any:
        return values

    def seed_of(self, fields: dict[str, Any]) -> int:
        return int(fields["seed"]) if "seed" in fields else next(self.unseeded)

    def temperature(self, fields: dict[str, Any]) -> float:
        return float(fields.get("temperature", 1.0))

    def top_p(self, fields: dict[str, Any]) -> float:
        return float(fields.get("top_p", 1.0))

    def logprob(self, token: int) -> float:
        return HERE[token]


def failures(server: FakeServer) -> dict[str, str]:
    found = {}
    for name, check in SAMPLING_CHECKS.items():
        try:
            check(cast(ProbeSession, server))
        except ProbeFailure as error:
            found[name] = str(error)
    return found


def test_a_right_server_passes_every_check() -> None:
    for seed in range(5):
        assert failures(FakeServer(seed=seed)) == {}


class Greedy(FakeServer):
    def temperature(self, fields: dict[str, Any]) -> float:
        return 0.0


class TemperatureOne(FakeServer):
    def temperature(self, fields: dict[str, Any]) -> float:
        return 1.0 if super().temperature(fields) else 0.0


class NoNucleus(FakeServer):
    def top_p(self, fields: dict[str, Any]) -> float:
        return 1.0


class OneSeed(FakeServer):
    def seed_of(self, fields: dict[str, Any]) -> int:
        return 4


class HiddenSeed(FakeServer):
    """Seeds are taken as they come; without one it is always the same."""

    def seed_of(self, fields: dict[str, Any]) -> int:
        return int(fields.get("seed", 0))


class InventedLogprobs(FakeServer):
    def logprob(self, token: int) -> float:
        return -0.5


class LogprobsAfterTemperature(FakeServer):
    def logprob(self, token: int) -> float:
        return float(np.log(wanted(HERE, temperature=0.5).probs)[token])


class NoLogprobs(FakeServer):
    def logprob(self, token: int) -> float:
        return cast(float, None)


WRONG: dict[str, tuple[type[FakeServer], set[str]]] = {
    "greedy": (Greedy, {"sampling", "sampling_unseeded", "sampling_temperature", "sampling_top_p"}),
    "temperature ignored": (TemperatureOne, {"sampling_temperature"}),
    "top_p ignored": (NoNucleus, {"sampling_top_p"}),
    "one seed": (OneSeed, {"sampling", "sampling_unseeded", "sampling_temperature", "sampling_top_p"}),
    "hidden seed": (HiddenSeed, {"sampling_unseeded"}),
    "invented log-probabilities": (InventedLogprobs, {"sampling_logprobs"}),
    "log-probabilities after the temperature": (LogprobsAfterTemperature, {"sampling_logprobs"}),
    "no log-probabilities": (NoLogprobs, {"sampling_logprobs"}),
}


@pytest.mark.parametrize(("kind", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_ignores_the_request_is_found_out(kind: type[FakeServer], expected: set[str]) -> None:
    assert set(failures(kind())) == expected


def test_the_text_says_what_was_seen() -> None:
    assert failures(Greedy())["sampling"] == (
        "tokens are drawn at other rates than they should be: p = 2e-06 by frequencies of 48 draws, 1 different ones "
        "(temperature 1, top_p 1)"
    )


def test_time_that_is_over_ends_the_draws() -> None:
    assert failures(FakeServer(is_over=True))["sampling"] == "the probes' time was over"


def test_without_distributions_of_the_reference_nothing_is_drawn() -> None:
    server = Greedy()
    server.reference, server.sampled_place = None, None
    assert failures(server) == {}


class Ignoring(FakeServer):
    """Takes every parameter and does nothing about it."""

    def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        ids = self.generate(**{**fields, "seed": 1})
        return 200, self.answer([ids] * fields.get("n", 1))


class Obliging(FakeServer):
    """Implements all that it takes."""

    def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        seeds = {"seed": fields["seed"]} if "seed" in fields else {}
        rest = {name: value for name, value in fields.items() if name != "seed"}
        return 200, self.answer([self.generate(**rest, **seeds) for _ in range(fields.get("n", 1))])

    def temperature(self, fields: dict[str, Any]) -> float:
        return 0.0 if fields.get("top_k") == 1 or fields.get("min_p") == 1.0 else super().temperature(fields)

    def adjusted(self, values: Any, ids: list[int], fields: dict[str, Any]) -> Any:
        for token, bias in fields.get("logit_bias", {}).items():
            values[int(token)] += bias
        for token in set(ids):
            values[token] -= fields.get("presence_penalty", 0) + ids.count(token) * fields.get("frequency_penalty", 0)
        return values


def test_parameters_may_be_refused_or_obeyed_and_not_ignored() -> None:
    assert failures(Obliging()) == {}
    found = failures(Ignoring())
    assert found["declared_parameters"] == "top_k = 1 at temperature 1 does not give the greedy text"
    assert found["num_choices"] == "both choices of n = 2 at temperature 1 are the same text"


class Looping(FakeServer):
    """Its text repeats itself, so that a penalty must change it; it takes penalties and ignores them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        favourite = logprobs_after(PROMPT)
        self.reference = SimpleNamespace(next_logprobs=lambda ids: list(favourite))

    def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        if "presence_penalty" not in fields:
            return super().raw_completion(**fields)
        return 200, self.answer([[int(np.argmax(HERE))] * fields["max_tokens"]])


def test_a_penalty_that_changes_nothing_is_found_out() -> None:
    gap = sorted(HERE)[-1] - sorted(HERE)[-2]
    assert gap < PENALTY
    found = failures(Looping())["declared_parameters"]
    assert found == "with presence_penalty = 2 token 2 is not the best one after the penalty"


def test_a_failure_is_no_refusal() -> None:
    class Failing(FakeServer):
        def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
            return 500, {"error": {"message": "no", "type": "server_error"}}

    assert failures(Failing())["num_choices"] == "n answers 500"
