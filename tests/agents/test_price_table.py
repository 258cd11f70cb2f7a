"""The shipped price table: well formed, dated, found by the names that APIs use, under what a target declares."""

from __future__ import annotations

import datetime
import json

import pytest

from vibeserve import spec
from vibeserve.agents.prices import TABLE, load_prices
from vibeserve.agents.requests import AgentUsage

DOCUMENT = json.loads(TABLE.read_text(encoding="utf-8"))
FIELDS = {"input_usd_per_m", "cached_input_usd_per_m", "output_usd_per_m"}


def test_the_table_is_well_formed() -> None:
    assert set(DOCUMENT) == {"schema_version", "date", "sources", "notes", "models"}
    assert DOCUMENT["schema_version"] == 1
    assert datetime.date.fromisoformat(DOCUMENT["date"]) > datetime.date(2026, 1, 1)
    assert load_prices(spec.Price()).date == DOCUMENT["date"]
    assert all(url.startswith("https://") for url in DOCUMENT["sources"].values())
    assert {name.split("-")[0] for name in DOCUMENT["models"]} == {"gpt", "claude", "gemini"}
    assert len(DOCUMENT["models"]) >= 25


@pytest.mark.parametrize("name", DOCUMENT["models"])
def test_every_price_is_of_the_kind_that_prices_are(name: str) -> None:
    row = DOCUMENT["models"][name]
    assert set(row) == FIELDS and all(isinstance(value, int | float) for value in row.values())
    assert 0 < row["cached_input_usd_per_m"] < row["input_usd_per_m"] < row["output_usd_per_m"] < 1000
    price = load_prices(spec.Price()).price_of(name)
    assert price is not None and price.output_usd_per_m == row["output_usd_per_m"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-codex", "gpt-5-codex"),
        ("openai/gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("claude-sonnet-4-5-latest", "claude-sonnet-4-5"),
    ],
)
def test_a_dated_name_has_the_price_of_its_model(asked: str, found: str) -> None:
    prices = load_prices(spec.Price())
    assert prices.price_of(asked) == prices.models[found]


@pytest.mark.parametrize(
    "asked", ["gpt-5-turbo", "gpt-5-20", "gpt-55", "claude-opus-4-5-fast", "qwen3-coder", "", "gpt"]
)
def test_nothing_is_guessed_of_another_name(asked: str) -> None:
    assert load_prices(spec.Price()).price_of(asked) is None


def test_a_declared_price_holds_for_every_model() -> None:
    own = load_prices(spec.Price(input_usd_per_m=2.0, output_usd_per_m=8.0))
    usage = AgentUsage(input_tokens=3_000_000, cached_input_tokens=1_000_000, output_tokens=1_000_000)
    for model in ("gpt-5", "nobody-knows"):
        price = own.price_of(model)
        assert price is not None and price.usd(usage) == pytest.approx(2 * 2 + 1 * 2 + 8)
    cheaper = load_prices(spec.Price(input_usd_per_m=2.0, cached_input_usd_per_m=0.5, output_usd_per_m=8.0))
    price = cheaper.price_of("gpt-5")
    assert price is not None and price.usd(usage) == pytest.approx(2 * 2 + 1 * 0.5 + 8)


def test_cached_tokens_have_their_own_price() -> None:
    price = load_prices(spec.Price()).price_of("gpt-5")
    assert price is not None
    usage = AgentUsage(input_tokens=1000, cached_input_tokens=400, output_tokens=100, reasoning_tokens=50)
    assert price.usd(usage) == pytest.approx((600 * 1.25 + 400 * 0.125 + 100 * 10) / 1e6)
