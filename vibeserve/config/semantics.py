"""What a schema cannot say: cross-field rules of a spec. All of them hold on any machine; the rest is `plan`'s."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from vibeserve.config.agent_rules import agent_problems
from vibeserve.config.bounds import bound_problems
from vibeserve.config.contract_rules import contract_problems
from vibeserve.config.host_rules import host_problems
from vibeserve.config.own_files import absent_files, goal_metrics, has_own_workload, workload_fault
from vibeserve.config.seed_rules import seed_problems
from vibeserve.config.unused import unused_values
from vibeserve.config.words import suggest
from vibeserve.config.workload_rules import PREDICTIONS, WORKLOADS, workload_problems
from vibeserve.spec import BACKENDS, ROLES, BaselineClass, Goal, Load, Model, SourceKind, Spec, Tier

LAUNCHED = (
    "transformers",
    "transformers_cb",
    "transformers_prefix",
    "vllm",
    "vllm_ngram",
    "llama_cpp",
    "openvino",
    "transformers_prompt_lookup",
    "transformers_llguidance",
    "scaffold",
    "moonshine_full",
    "moonshine_window",
    "reference",
    "reference_tuned",
)
DECLARED_ONLY = (
    "sglang",
    "mlx_lm",
    "vllm_draft",
    "moonshine_voice",
    "vllm_moonshine",
    "faster_whisper",
)
BASELINES = (*LAUNCHED, *DECLARED_ONLY)
"""peers that may be declared; `vibeserve.baselines` has a launcher for the first group in this version"""

IMAGE_HEADS = ("flow", "tokens")
HARDWARE_KINDS = ("cpu", "cuda", "mps")
DTYPES = ("float32", "bfloat16", "float16")
POLICIES = ("greedy", "beam", "random")
HOSTS = ("local", "ssh", "slurm", "docker")
SEEDS = ("scaffold", "artifact", "path", "git")
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
    absent = list(absent_files(spec))
    if absent:
        # kinds, metrics and lengths are theirs to say: every other line would be about the same
        return absent
    absurd = list(bound_problems(spec))
    keys = [line.partition(": ")[0] for line in absurd]
    # a number out of bounds breaks other rules too: one line about it is enough
    return absurd + [line for line in _rules(spec) if not any(it.startswith(line.partition(": ")[0]) for it in keys)]


def _rules(spec: Spec) -> list[str]:
    return [
        *_choices(spec),
        *_model(spec.model),
        *workload_problems(spec.workload, model=spec.model, is_own=has_own_workload(spec)),
        *_limits(spec),
        *contract_problems(spec),
        *agent_problems(spec),
        *_baselines(spec),
        *seed_problems(spec.seed),
        *host_problems(spec),
        *unused_values(spec),
        *workload_fault(spec),
        *([] if spec.goals else ["goals: none is declared; the first one is the headline that the search improves"]),
        *(problem for index, goal in enumerate(spec.goals) for problem in _goal(goal, index=index, spec=spec)),
    ]


def _choices(spec: Spec) -> Iterator[str]:
    """String fields with a closed set of values."""
    table: list[tuple[str, str, tuple[str, ...]]] = [
        ("model.dtype", spec.model.dtype, DTYPES),
        ("hardware.kind", spec.hardware.kind, HARDWARE_KINDS),
        ("workload.kind", spec.workload.kind, _kinds(spec)),
        ("workload.reuse", spec.workload.reuse, REUSES),
        ("workload.prediction", spec.workload.prediction, PREDICTIONS),
        ("model.image_head.kind", spec.model.image_head.kind or IMAGE_HEADS[0], IMAGE_HEADS),
        ("model.linear_state.dtype", spec.model.linear_state.dtype, DTYPES),
        ("search.policy", spec.search.policy, POLICIES),
        ("evaluation.loads", spec.evaluation.loads, LOADS),
        ("host.kind", spec.host.kind, HOSTS),
        ("seed.kind", spec.seed.kind, SEEDS),
    ]
    table.append(("agents.backend", spec.agents.backend, BACKENDS))
    for role in ROLES:
        table.append((f"agents.{role}.backend", getattr(spec.agents, role).backend or BACKENDS[0], BACKENDS))
    for key, value, options in table:
        if value not in options:
            guess = suggest(value, options)
            yield f"{key}: '{value}' is not valid{guess}{' ' if guess else '; '}valid: {', '.join(options)}"


def _kinds(spec: Spec) -> tuple[str, ...]:
    """The built-in kinds; a target with a workload.py of its own names it as it likes."""
    return (*WORKLOADS, spec.workload.kind) if has_own_workload(spec) else tuple(WORKLOADS)


def _model(model: Model) -> Iterator[str]:
    source = model.source
    for name in SOURCE_FIELDS[source.kind]:
        if not getattr(source, name):
            yield f"model.source.{name}: needed when model.source.kind is {source.kind.name}"
    # without any it may be planned for; a run asks for it (`workloads.not_yet`)
    if source.kind is SourceKind.hub and model.revision and not re.fullmatch(r"[0-9a-f]{40}", model.revision):
        yield "model.revision: a model from a hub needs the 40 hex digits of a commit, so that a run can be repeated"
    if source.kind is SourceKind.package and source.sha256 and not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        yield "model.source.sha256: expected 64 hex digits"
    if model.num_heads and model.num_kv_heads and model.num_heads % model.num_kv_heads:
        yield f"model.num_kv_heads: {model.num_kv_heads} does not divide model.num_heads {model.num_heads}"
    attention, linear = model.num_attention_layers, model.linear_state.num_layers
    if linear and model.num_layers and (attention or 0) + linear > model.num_layers:
        counted = f"{attention} attention and {linear} linear_state" if attention else f"{linear} linear_state"
        yield f"model.num_layers: {model.num_layers} is below its {counted} layers"
    if model.num_active_parameters > model.num_parameters > 0:
        active = model.num_active_parameters
        yield f"model.num_active_parameters: {active} is above num_parameters {model.num_parameters}"


def _limits(spec: Spec) -> Iterator[str]:
    budget, evaluation = spec.budget, spec.evaluation
    for key, value, least in (
        ("budget.rounds", budget.rounds, 0),
        ("budget.attempts", budget.attempts, 1),
        ("search.patience", spec.search.patience, 1),
        ("search.pivots", spec.search.pivots, 0),
        ("search.width", spec.search.width, 1),
        ("search.branching", spec.search.branching, 1),
        ("evaluation.num_rescored", evaluation.num_rescored, 1),
        ("evaluation.tolerances.logprob_share", evaluation.tolerances.logprob_share, 1),
        ("hardware.count", spec.hardware.count, 1),
        ("hardware.engine_threads", spec.hardware.engine_threads, 0),
        ("sandbox.max_processes", spec.sandbox.max_processes, 1),
    ):
        if value < least:
            yield f"{key}: {value} is below {least}"
    if spec.hardware.kind == "cpu" and spec.hardware.count > 1:
        yield f"hardware.count: {spec.hardware.count} is above 1; the sockets of a CPU are one device, count them as 1"
    if spec.sandbox.max_disk_gib <= 0:
        yield f"sandbox.max_disk_gib: {spec.sandbox.max_disk_gib:g} is not above 0"
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
    key, metrics = f"goals[{index}]", goal_metrics(spec)
    if not metrics:
        return
    if goal.metric not in metrics:
        guess = suggest(goal.metric, metrics)
        yield f"{key}.metric: '{goal.metric}' is not valid{guess}{' ' if guess else '; '}valid: {_names(metrics)}"
        return
    if goal.load and goal.load not in spec.workload.loads:
        yield f"{key}.load: '{goal.load}' is no declared load; valid: {_names(spec.workload.loads)}"
    bounds = [name for name in ("min_ratio", "max_ms", "max_gib", "min_per_s") if getattr(goal, name) is not None]
    if len(bounds) != 1:
        yield f"{key}: needs exactly one of min_ratio, max_ms, max_gib, min_per_s; given: {', '.join(bounds) or 'none'}"
        return
    if not 0 < getattr(goal, bounds[0]) < math.inf:
        yield f"{key}.{bounds[0]}: {getattr(goal, bounds[0]):g} is not above 0 and finite"
    fitting = _bound_of(metrics[goal.metric].unit)
    if bounds[0] not in ("min_ratio", fitting):
        yield f"{key}.{bounds[0]}: {goal.metric} is in {metrics[goal.metric].unit}; state {fitting} or min_ratio"
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
