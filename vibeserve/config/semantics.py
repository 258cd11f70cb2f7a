"""What a schema cannot say: cross-field rules of a spec. All of them hold on any machine; the rest is `plan`'s."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from vibeserve.config.words import suggest
from vibeserve.core.nouns import METRICS
from vibeserve.spec import BaselineClass, Goal, Load, Modality, Model, SourceKind, Spec, Tier, Workload

WORKLOADS: dict[str, Modality] = {"chat": Modality.text}
"""kinds of workload and the modality that serves them"""

BASELINES = ("transformers", "transformers_cb", "vllm", "llama_cpp", "scaffold")
HARDWARE_KINDS = ("cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float16")
BACKENDS = ("playbook",)
POLICIES = ("greedy",)
HOSTS = ("local",)
SEEDS = ("scaffold",)
REUSES = ("none", "prefix")
LOADS = ("headline", "all")
SOURCE_FIELDS: dict[SourceKind, tuple[str, ...]] = {
    SourceKind.package: ("package", "version", "file", "sha256"),
    SourceKind.folder: ("path",),
    SourceKind.hub: (),
    SourceKind.seeded: ("config",),
}
"""fields of `model.source` that each kind needs"""


def semantic_problems(spec: Spec) -> list[str]:
    """One line for every rule that `spec` breaks, each starting with the key."""
    return [
        *_choices(spec),
        *_model(spec.model),
        *_workload(spec.workload, model=spec.model),
        *_limits(spec),
        *_baselines(spec),
        *([] if spec.goals else ["goals: none is declared; the first one is the headline that the search improves"]),
        *(problem for index, goal in enumerate(spec.goals) for problem in _goal(goal, index=index, spec=spec)),
    ]


def _choices(spec: Spec) -> Iterator[str]:
    """String fields with a closed set of values."""
    table: list[tuple[str, str, tuple[str, ...]]] = [
        ("model.dtype", spec.model.dtype, DTYPES),
        ("hardware.kind", spec.hardware.kind, HARDWARE_KINDS),
        ("workload.kind", spec.workload.kind, tuple(WORKLOADS)),
        ("workload.reuse", spec.workload.reuse, REUSES),
        ("search.policy", spec.search.policy, POLICIES),
        ("evaluation.loads", spec.evaluation.loads, LOADS),
        ("host.kind", spec.host.kind, HOSTS),
        ("seed.kind", spec.seed.kind, SEEDS),
    ]
    for role in ("planner", "implementer", "judge", "evaluator"):
        table.append((f"agents.{role}.backend", getattr(spec.agents, role).backend, BACKENDS))
    for key, value, options in table:
        if value not in options:
            guess = suggest(value, options)
            yield f"{key}: '{value}' is not valid{guess}{' ' if guess else '; '}valid: {', '.join(options)}"


def _model(model: Model) -> Iterator[str]:
    source = model.source
    for name in SOURCE_FIELDS[source.kind]:
        if not getattr(source, name):
            yield f"model.source.{name}: needed when model.source.kind is {source.kind.name}"
    if source.kind is SourceKind.hub and not re.fullmatch(r"[0-9a-f]{40}", model.revision):
        yield "model.revision: a model from a hub needs the 40 hex digits of a commit, so that a run can be repeated"
    if source.kind is SourceKind.package and source.sha256 and not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        yield "model.source.sha256: expected 64 hex digits"
    if model.num_heads and model.num_kv_heads and model.num_heads % model.num_kv_heads:
        yield f"model.num_kv_heads: {model.num_kv_heads} does not divide model.num_heads {model.num_heads}"


def _workload(workload: Workload, *, model: Model) -> Iterator[str]:
    for what in ("prompt_tokens", "output_tokens"):
        low, high = getattr(workload, f"{what}_min"), getattr(workload, f"{what}_max")
        if low < 1:
            yield f"workload.{what}_min: {low} is below 1"
        if low > high:
            yield f"workload.{what}_min: {low} is above workload.{what}_max {high}"
    longest = workload.prompt_tokens_max + workload.output_tokens_max
    if longest > model.max_context_tokens:
        yield (
            f"workload: prompt_tokens_max + output_tokens_max = {longest} is above "
            f"model.max_context_tokens {model.max_context_tokens}"
        )
    wanted = WORKLOADS.get(workload.kind)
    if wanted is not None and wanted is not model.modality:
        yield f"workload.kind: '{workload.kind}' needs a {wanted.name} model, model.modality is {model.modality.name}"
    if workload.headline_load not in workload.loads:
        yield f"workload.headline_load: '{workload.headline_load}' is no declared load; valid: {_names(workload.loads)}"
    for name, load in workload.loads.items():
        yield from _load(name, load)


def _load(name: str, load: Load) -> Iterator[str]:
    key = f"workload.loads.{name}"
    if load.concurrency < 0 or load.rate_per_s < 0:
        yield f"{key}: negative"
    elif (load.concurrency > 0) == (load.rate_per_s > 0):
        yield f"{key}: needs exactly one of concurrency and rate_per_s"
    elif load.concurrency and re.fullmatch(r"c\d+", name) and name != f"c{load.concurrency}":
        yield f"{key}: the name says {name[1:]}, concurrency is {load.concurrency}"
    elif load.rate_per_s and re.fullmatch(r"r[\d.]+", name) and name != f"r{load.rate_per_s:g}":
        yield f"{key}: the name says {name[1:]}, rate_per_s is {load.rate_per_s:g}"


def _limits(spec: Spec) -> Iterator[str]:
    budget, evaluation = spec.budget, spec.evaluation
    for key, value, least in (
        ("budget.rounds", budget.rounds, 0),
        ("budget.attempts", budget.attempts, 1),
        ("search.patience", spec.search.patience, 1),
        ("evaluation.num_rescored", evaluation.num_rescored, 1),
        ("evaluation.tolerances.logprob_share", evaluation.tolerances.logprob_share, 1),
        ("hardware.count", spec.hardware.count, 1),
        ("hardware.engine_threads", spec.hardware.engine_threads, 0),
    ):
        if value < least:
            yield f"{key}: {value} is below {least}"
    if budget.wall_s <= 0:
        yield f"budget.wall_s: {budget.wall_s:g} is not above 0"
    if not 0 < evaluation.window_scale <= 1:
        yield f"evaluation.window_scale: {evaluation.window_scale:g} is not in (0, 1]"
    if not 0 <= evaluation.min_effect < 1:
        yield f"evaluation.min_effect: {evaluation.min_effect:g} is not a share in [0, 1)"
    if spec.sandbox.tier is Tier.C and not spec.sandbox.allow_none:
        yield "sandbox.tier: C is no wall at all; it needs sandbox.allow_none=true (or sandbox=none)"


def _baselines(spec: Spec) -> Iterator[str]:
    if not spec.baseline:
        yield f"baseline: none is declared, a ratio needs one; valid: {', '.join(BASELINES)}"
    for name in spec.baseline:
        if name not in BASELINES:
            yield f"baseline.{name}: no such peer{suggest(name, BASELINES)} valid: {', '.join(BASELINES)}"


def _goal(goal: Goal, *, index: int, spec: Spec) -> Iterator[str]:
    key = f"goals[{index}]"
    if goal.metric not in METRICS:
        guess = suggest(goal.metric, METRICS)
        yield f"{key}.metric: '{goal.metric}' is not valid{guess}{' ' if guess else '; '}valid: {_names(METRICS)}"
        return
    if goal.load and goal.load not in spec.workload.loads:
        yield f"{key}.load: '{goal.load}' is no declared load; valid: {_names(spec.workload.loads)}"
    bounds = [name for name in ("min_ratio", "max_ms", "max_gib", "min_per_s") if getattr(goal, name) is not None]
    if len(bounds) != 1:
        yield f"{key}: needs exactly one of min_ratio, max_ms, max_gib, min_per_s; given: {', '.join(bounds) or 'none'}"
        return
    if not 0 < getattr(goal, bounds[0]) < math.inf:
        yield f"{key}.{bounds[0]}: {getattr(goal, bounds[0]):g} is not above 0 and finite"
    fitting = _bound_of(METRICS[goal.metric].unit)
    if bounds[0] not in ("min_ratio", fitting):
        yield f"{key}.{bounds[0]}: {goal.metric} is in {METRICS[goal.metric].unit}; state {fitting} or min_ratio"
    yield from _against(goal, key=key, spec=spec, is_relative=bounds[0] == "min_ratio")


def _bound_of(unit: str) -> str:
    return {"s": "max_ms", "GiB": "max_gib"}.get(unit, "min_per_s")


def _against(goal: Goal, *, key: str, spec: Spec, is_relative: bool) -> Iterator[str]:
    if not is_relative:
        if goal.against:
            yield f"{key}.against: only a relative goal (min_ratio) has one"
        return
    declared_classes = {baseline.baseline_class.name for baseline in spec.baseline.values()}
    valid = [*spec.baseline, *sorted(declared_classes)]
    if goal.against not in valid:
        known = goal.against in BASELINES or goal.against in BaselineClass.__members__
        why = "is not declared under baseline" if known else "is no class and no baseline"
        yield f"{key}.against: '{goal.against}' {why}; valid: {', '.join(valid)}"


def _names(mapping: dict[str, object] | dict[str, Load] | object) -> str:
    return ", ".join(mapping) if isinstance(mapping, dict) and mapping else "(none)"
