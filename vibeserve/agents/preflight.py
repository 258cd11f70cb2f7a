"""What a budget pays for, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.agents.prices import load_prices
from vibeserve.agents.requests import AgentUsage
from vibeserve.spec import ROLES, UNMETERED, RoleAgent, Spec, resolve_role

ASSUMED: dict[str, AgentUsage] = {
    "planner": AgentUsage(input_tokens=60_000, cached_input_tokens=30_000, output_tokens=4_000, num_requests=5),
    "implementer": AgentUsage(input_tokens=900_000, cached_input_tokens=720_000, output_tokens=30_000, num_requests=40),
    "judge": AgentUsage(input_tokens=80_000, cached_input_tokens=40_000, output_tokens=4_000, num_requests=6),
    "evaluator": AgentUsage(input_tokens=30_000, cached_input_tokens=10_000, output_tokens=2_000, num_requests=3),
}
"""tokens of one round by role, one attempt: an assumption of a session of 40 turns over a growing context of 5 to 40
thousand tokens, most of it cached. `vibeserve status` shows what a run really takes"""


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """What one round is assumed to take, and how many of them the budget has."""

    agents: tuple[RoleAgent, ...]
    """roles that ask a model whose requests are counted"""
    price_date: str
    tokens_per_round: int
    usd_per_round: float | None
    """None where a model has no price"""
    num_rounds: float | None
    """that caps on tokens and money pay for; None without such a cap"""
    bound_by: str
    """budget.tokens, budget.usd, or the role's cap"""
    unpriced: tuple[str, ...]
    """models without a price: their tokens alone are capped"""


def preflight(spec: Spec) -> Preflight | None:
    """None where no role's requests are counted."""
    agents = tuple(agent for role in ROLES if (agent := resolve_role(spec.agents, role)).backend not in UNMETERED)
    if not agents:
        return None
    prices = load_prices(spec.agents.price)
    tokens = sum(ASSUMED[agent.role].tokens for agent in agents)
    priced = [(agent, prices.price_of(agent.model)) for agent in agents]
    unpriced = tuple(sorted({agent.model for agent, price in priced if price is None}))
    usd = sum(price.usd(ASSUMED[agent.role]) for agent, price in priced if price is not None)
    bounds = sorted(_bounds(spec, agents, tokens=tokens, usd=0.0 if unpriced else usd))
    return Preflight(
        agents=agents, price_date="declared" if prices.own else prices.date, tokens_per_round=tokens,
        usd_per_round=None if unpriced else usd, num_rounds=bounds[0][0] if bounds else None,
        bound_by=bounds[0][1] if bounds else "", unpriced=unpriced,
    )  # fmt: skip


def _bounds(spec: Spec, agents: tuple[RoleAgent, ...], *, tokens: int, usd: float) -> Iterator[tuple[float, str]]:
    """(rounds, the cap that pays for no more)"""
    if spec.budget.tokens:
        yield spec.budget.tokens / tokens, "budget.tokens"
    if spec.budget.usd and usd:
        yield spec.budget.usd / usd, "budget.usd"
    for agent in agents:
        if agent.max_tokens:
            yield agent.max_tokens / ASSUMED[agent.role].tokens, f"agents.{agent.role}.max_tokens"


def preflight_lines(found: Preflight, *, rounds: int) -> Iterator[str]:
    """For `vibeserve plan`."""
    who = ", ".join(f"{agent.role} {agent.origin.removeprefix('agent:')}" for agent in found.agents)
    yield f"  agents      {who}"
    money = (
        f"no price for {', '.join(found.unpriced)}: only tokens are capped"
        if found.usd_per_round is None
        else f"{found.usd_per_round:.2f} USD at prices of {found.price_date or 'no date'}"
    )
    yield f"              a round takes about {found.tokens_per_round / 1e6:.2g} M tokens (assumed), {money}"
    if found.num_rounds is None:
        yield f"              no cap on tokens or money: budget.rounds {rounds} and the wall time end it"
    else:
        paid = f"{found.bound_by} pays for about {found.num_rounds:.0f} rounds"
        yield f"              {paid}; budget.rounds is {rounds}"
