"""What models cost: a dated table, and what a target declares for its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vibeserve import spec
from vibeserve.agents.requests import AgentUsage

TABLE = Path(__file__).with_name("prices.json")
PER_TOKEN = 1e-6


@dataclass(frozen=True, kw_only=True)
class ModelPrice:
    """USD per million tokens. Reasoning tokens are output tokens."""

    input_usd_per_m: float
    cached_input_usd_per_m: float
    output_usd_per_m: float

    def usd(self, usage: AgentUsage) -> float:
        """Cost of one usage."""
        fresh = max(0, usage.input_tokens - usage.cached_input_tokens)
        return PER_TOKEN * (
            fresh * self.input_usd_per_m
            + usage.cached_input_tokens * self.cached_input_usd_per_m
            + usage.output_tokens * self.output_usd_per_m
        )


@dataclass(frozen=True, kw_only=True)
class PriceTable:
    """Prices by model. A known name with a date behind it has that one's price; nothing else is guessed."""

    date: str
    models: Mapping[str, ModelPrice]
    own: ModelPrice | None = None
    """what the target declares: it holds for every model"""

    def price_of(self, model: str) -> ModelPrice | None:
        """None for a model without a price: its tokens are counted, its cost is not known."""
        if self.own is not None:
            return self.own
        bare = model.rpartition("/")[2]
        known = [name for name in self.models if bare == name or bare.startswith((f"{name}-", f"{name}@"))]
        dated = [name for name in known if bare == name or _is_date(bare[len(name) + 1 :])]
        return self.models[max(dated, key=len)] if dated else None


def load_prices(declared: spec.Price) -> PriceTable:
    """The shipped table, under the target's own price where it declares one."""
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    models = {name: ModelPrice(**row) for name, row in document["models"].items()}
    rates = (declared.input_usd_per_m, declared.cached_input_usd_per_m, declared.output_usd_per_m)
    own = None
    if any(rates):
        own = ModelPrice(
            input_usd_per_m=rates[0], cached_input_usd_per_m=rates[1] or rates[0], output_usd_per_m=rates[2]
        )
    return PriceTable(date=document["date"], models=models, own=own)


def _is_date(suffix: str) -> bool:
    digits = suffix.replace("-", "")
    return (digits.isdigit() and len(digits) >= 6) or suffix == "latest"
