"""What a budget is said to pay for before anything is spent."""

from __future__ import annotations

import json

import pytest

from vibeserve.agents.preflight import ASSUMED, preflight, preflight_lines
from vibeserve.cli.main import main
from vibeserve.config import compose_spec

PRICED = ("agents.price.input_usd_per_m=1", "agents.price.output_usd_per_m=10")


def lines_of(*overrides: str) -> list[str]:
    spec = compose_spec(["+target=tiny_cpu", *overrides])
    found = preflight(spec)
    return [] if found is None else list(preflight_lines(found, rounds=spec.budget.rounds))


def test_agents_that_ask_no_model_of_ours_cost_nothing() -> None:
    assert lines_of() == lines_of("agents=external") == []


def test_the_tightest_cap_says_for_how_many_rounds_it_pays() -> None:
    tokens = sum(each.tokens for each in ASSUMED.values())
    (who, takes, paid) = lines_of("agents=openai", "agents.model=m", *PRICED, f"budget.tokens={20 * tokens}")
    roles = ("planner", "implementer", "judge", "evaluator")
    assert who.split(maxsplit=1) == ["agents", ", ".join(f"{role} openai/m" for role in roles)]
    assert takes.endswith("1.47 USD at prices of declared")
    assert paid.strip() == "budget.tokens pays for about 20 rounds; budget.rounds is 2"
    money = lines_of("agents=openai", *PRICED, "budget.usd=3")[2].strip()
    assert money.startswith("budget.usd pays for about 2 rounds")
    capped = lines_of("agents=openai", *PRICED, "agents.judge.max_tokens=168000")[2].strip()
    assert capped.startswith("agents.judge.max_tokens pays for about 2 rounds")


def test_a_model_without_a_price_is_capped_by_tokens_alone() -> None:
    told = lines_of("agents=openai", "agents.model=no-such-model", "budget.usd=3", "budget.tokens=0")
    assert told[1].endswith("no price for no-such-model: only tokens are capped")
    assert told[2].strip() == "no cap on tokens or money: budget.rounds 2 and the wall time end it"


def test_the_plan_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "tiny_cpu", "agents=openai", "agents.model=m", *PRICED]) == 0
    told = capsys.readouterr().out
    assert "agents without a cap in USD" in told and "a round takes about" in told
    assert main(["plan", "tiny_cpu", "agents=openai", "agents.model=m", *PRICED, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["agents"]["bound_by"] == "budget.tokens"
    assert document["agents"]["usd_per_round"] == pytest.approx(1.47, abs=0.01)
