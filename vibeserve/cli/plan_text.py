"""A plan as text, to be read on one screen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.agents.preflight import preflight, preflight_lines
from vibeserve.core.nouns import METRICS, Direction

if TYPE_CHECKING:
    from vibeserve.plan import Ceiling, Plan
    from vibeserve.spec import Baseline, Search

MILLION = 1e6


def plan_lines(plan: Plan) -> Iterator[str]:
    """What runs where, what it needs, what is possible at best, and what it costs."""
    spec, budget = plan.spec, plan.spec.budget
    yield f"plan {plan.plan_id}: {plan.target}"
    size = f"{spec.model.num_parameters / MILLION:.1f} M parameters, " if spec.model.num_parameters else ""
    yield f"  model       {spec.model.id}, {size}{spec.model.dtype}"
    yield f"  hardware    {_hardware(plan)}"
    layout = spec.parallelism
    yield f"  parallelism tensor {layout.tensor}, pipeline {layout.pipeline}, replicas {layout.replicas}"
    loads = " ".join(spec.workload.loads)
    yield f"  workload    {spec.workload.kind}, loads {loads}, headline {spec.workload.headline_load}"
    yield f"  baselines   {', '.join(_baseline(name, item) for name, item in spec.baseline.items())}"
    yield f"  memory      {_memory(plan)}"
    yield from _floors(plan)
    yield from _ratios(plan)
    yield from _cost(plan)
    yield from _agents(plan)
    yield f"  search      {search_text(spec.search, num_rounds=budget.rounds)}"
    yield f"  budget      level {budget.level.name}, {budget.rounds} rounds, {budget.wall_s / 60:.0f} min at most"
    steps = ", ".join(f"{step.name} {step.minutes:.1f}" for step in plan.steps)
    yield f"  minutes     about {plan.minutes:.0f}: {steps}"
    yield from (f"  note        {note}" for note in plan.notes)


def search_text(search: Search, *, num_rounds: int) -> str:
    """The policy, what ends it early, and what beam costs more."""
    if search.policy == "beam":
        num_moves = math.ceil(num_rounds / (search.width * search.branching))
        moves = "1 move" if num_moves == 1 else f"{num_moves} moves"
        branches = "1 branch" if search.width == 1 else f"{search.width} branches"
        proposals = "1 proposal" if search.branching == 1 else f"{search.branching} proposals"
        return (
            f"beam, {branches} x {proposals}, {moves} or more in {num_rounds} rounds, "
            f"ends after {search.patience} moves without a gain"
        )
    pivots = f", {search.pivots} pivots first" if search.policy == "greedy" and search.pivots else ""
    return f"{search.policy}, ends after {search.patience} rounds in a row without a gain{pivots}"


def placement_lines(plan: Plan) -> Iterator[str]:
    """Why it does not run from here, and what would change that; nothing where it does."""
    yield from (obstacle.text for obstacle in plan.obstacles)
    yield from plan.next_steps


def ceiling_rows(plan: Plan) -> list[tuple[str, ...]]:
    """A table with a row per metric and a column per load; the first row is the heading."""
    loads = list(plan.spec.workload.loads)
    by_metric: dict[str, list[Ceiling]] = {}
    for ceiling in plan.ceilings:
        by_metric.setdefault(ceiling.metric, []).append(ceiling)
    rows: list[tuple[str, ...]] = [("ceiling", "unit", *loads, "bound by")]
    for metric, ceilings in by_metric.items():
        at = {ceiling.load: number(ceiling.value) for ceiling in ceilings}
        bounds = ", ".join(dict.fromkeys(ceiling.bound_by for ceiling in ceilings))
        rows.append((metric, METRICS[metric].unit, *(at.get(load, at.get("", "")) for load in loads), bounds))
    return rows


def _hardware(plan: Plan) -> str:
    hardware = plan.spec.hardware
    if not plan.engine_cpus:
        return f"{hardware.count} x {hardware.name} as declared; it is not here (see below)"
    cpus = f"engine on CPU {hardware.engine_cpus} with {plan.threads} threads, load generator on CPU"
    return f"{hardware.count} x {hardware.name}: {cpus} {hardware.client_cpus}"


def _memory(plan: Plan) -> str:
    memory = plan.memory
    capacity = "unknown" if memory.capacity_gib is None else f"{memory.capacity_gib:.1f}"
    prefix = f" ({memory.prefix_kv_gib:.2f} of shared prefixes)" if memory.prefix_kv_gib else ""
    parts = (
        f"weights {memory.weights_gib:.2f}, KV cache {memory.kv_cache_gib:.2f}{prefix}, state {memory.state_gib:.2f}, "
        f"workspace {memory.workspace_gib:.2f}"
    )
    return f"{memory.total_gib:.2f} of {capacity} GiB a rank: {parts}; {memory.num_sequences} in flight ({memory.load})"


def _floors(plan: Plan) -> Iterator[str]:
    headline = plan.spec.workload.headline_load
    for floor in plan.decode:
        if floor.load == headline:
            how_long = "unknown" if floor.step_s is None else f"{_ms(floor.step_s)}/step"
            is_alone = plan.spec.parallelism.tensor == 1 or plan.spec.hardware.kind == "cpu"
            between = "" if is_alone else f", all-reduces {_ms(floor.all_reduce_s)}"
            rate = f"{plan.roof.memory_bound} {plan.roof.bandwidth_gb_s:.4g} GB/s" if plan.roof.bandwidth_gb_s else ""
            yield (
                f"  decode      floor {how_long} at {headline}: a rank moves weights {floor.weights_gib:.2f}, KV "
                f"{floor.kv_gib:.2f}, state {floor.state_gib:.2f} GiB{between} ({rate or 'bandwidth unknown'})"
            )
    if plan.prefill is not None:
        floor_s = [item for item in (plan.prefill.compute_s, plan.prefill.bandwidth_s) if item is not None]
        kept = f" behind {plan.prefill.num_cached_tokens} kept" if plan.prefill.num_cached_tokens else ""
        yield (
            f"  prefill     floor {_ms(max(floor_s, default=None))} for {plan.prefill.num_tokens} tokens{kept}: "
            f"arithmetic {_ms(plan.prefill.compute_s)}, reading once {_ms(plan.prefill.bandwidth_s)}"
        )


def _ratios(plan: Plan) -> Iterator[str]:
    for item in plan.ratios:
        metric = METRICS[item.metric]
        edge = "ceiling" if metric.direction is Direction.MAX else "floor"
        if item.ceiling is None:
            text = "unknown: nothing bounds it"
        elif item.max_ratio is not None:
            declared = f"{item.baseline} {quantity(item.declared or 0.0, metric.unit)} as declared: {item.source}"
            text = f"x{item.max_ratio:.3g} ({edge} {quantity(item.ceiling, metric.unit)}, {declared})"
        else:
            side = "at or below" if metric.direction is Direction.MAX else "at or above"
            worst = quantity(item.ceiling / metric.ratio(item.min_ratio, against=1.0), metric.unit)
            text = f"unknown before it is measured; x{item.min_ratio:g} needs it {side} {worst}"
        yield f"  best ratio  {item.metric} at {item.load} against {item.against}: {text}"


def _cost(plan: Plan) -> Iterator[str]:
    cost = plan.cost
    if cost is None:
        return
    price = plan.spec.hardware.usd_per_hour
    usd = "not priced" if cost.usd is None else f"{cost.usd:.2f} USD at {price:g} USD a device-hour"
    asks = preflight(plan.spec) is not None
    none = "agents without a cap in USD" if asks else "agents 0 USD"
    agents = f"agents at most {cost.agents_usd:.2f} USD" if cost.agents_usd else none
    yield f"  cost        {cost.device_hours:.2f} device-hours, {usd}; {agents}"
    if cost.break_even_requests is not None:
        number = f"{cost.break_even_requests / MILLION:.3g} million requests at this price"
        yield f"  break-even  pays back after {number}; {cost.break_even}"
    elif cost.usd is not None:
        yield f"  break-even  {cost.break_even}"


def _agents(plan: Plan) -> Iterator[str]:
    found = preflight(plan.spec)
    if found is not None:
        yield from preflight_lines(found, rounds=plan.spec.budget.rounds)


def number(value: float) -> str:
    """Four digits, and no exponent for what is large."""
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def quantity(value: float, unit: str) -> str:
    """A value with its unit; seconds as milliseconds."""
    return _ms(value) if unit == "s" else f"{number(value)} {unit}"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{number(seconds * 1000)} ms"


def _baseline(name: str, baseline: Baseline) -> str:
    need = "required" if baseline.required else "optional"
    version = f" {baseline.version}" if baseline.version else ""
    return f"{name}{version} ({baseline.baseline_class.name}, {need})"
