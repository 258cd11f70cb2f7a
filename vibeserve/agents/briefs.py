"""What prompts say of target, candidate, history and skills: short, in the field's terms, without anything hidden."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vibeserve.agents.port import Assembled, PlanningState
from vibeserve.core.engines import ENGINES
from vibeserve.core.nouns import METRICS, ActivationState, Decision, Outcome, Proposal, Refusal, Round
from vibeserve.hardware import HardwareFacts
from vibeserve.plan import Plan
from vibeserve.planning import backlog_lines, calibration_of, calibration_text, note_lines
from vibeserve.profiles import Profile, profile_lines
from vibeserve.prompts import beginning, quoted
from vibeserve.skills import Bottleneck, Skill, TargetFacts, applicable, route
from vibeserve.spec import Goal

TOLD_FLAGS = (
    "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "amx_bf16",
    "amx_int8", "neon", "asimd", "sve", "bf16", "i8mm",
)  # fmt: skip
"""of /proc/cpuinfo: what matters to kernels"""
MAX_ROUNDS_TOLD = 8
MAX_REASON_CHARS, MAX_NEW_REASON_CHARS, NUM_NEW_ROUNDS = 120, 420, 2
"""of a round's reason: the newest are told at length"""
MAX_REFUSAL_CHARS = 700
MAX_ANALYSIS_CHARS = 1300
MAX_AVOIDED, MAX_AVOIDED_CHARS = 4, 60
MAX_PROFILE_CHARS, MAX_ACTIVATION_CHARS = 760, 160
NUM_PROFILE_ROWS, NUM_PROFILE_ROWS_SHORT = 5, 3
"""for who plans, and for who writes the code"""
NUM_SKILLS_TOLD = 6
NUM_SPANS_ASKED = 2
MAX_SKILL_CHARS = 90
IMPORTABLE = (
    "the standard library", "torch", "numpy", "safetensors", "tokenizers", "gguf", "jinja2", "uvicorn", "starlette",
    "uvloop", "httptools", "llguidance", "xgrammar",
)  # fmt: skip


def target_brief(plan: Plan, *, machine: str, calibrated: str = "") -> dict[str, Any]:
    """The target in lines: model, machine, traffic, goals, floors. `machine` says what the probe found."""
    spec = plan.spec
    model, work, tolerances = spec.model, spec.workload, spec.evaluation.tolerances
    sizes = (
        f"{model.num_layers} layers, hidden {model.hidden_size}, {model.num_heads} heads, "
        f"{model.num_kv_heads} KV heads of {model.head_dim}, MLP {model.intermediate_size}, "
        f"vocabulary {model.vocab_size}"
    )
    lengths = (
        f"prompts of {work.prompt_tokens_min}-{work.prompt_tokens_max} tokens, replies of "
        f"{work.output_tokens_min}-{work.output_tokens_max}"
    )
    return {
        "name": plan.target,
        "model": f"{model.id} ({model.architecture}, {model.modality.value}, served in {model.dtype}): {sizes}",
        "hardware": f"{machine}; the server computes on {_cores(plan.engine_cpus)} with {plan.threads} "
        f"thread{'s' if plan.threads != 1 else ''}, the load generator on others",
        "workload": f"{work.kind}, {lengths}; loads {', '.join(work.loads)}; headline load {work.headline_load}; "
        f"declared reuse between requests: {work.reuse}",
        "reuse": work.reuse,
        "goals": [goal_text(goal, headline=work.headline_load) for goal in spec.goals],
        "baselines": "; ".join(
            f"{name} ({item.baseline_class.name}{', required' if item.required else ''})"
            for name, item in spec.baseline.items()
        )
        + (f". A short run here gave {calibrated}" if calibrated else ""),
        "tolerances": f"at least {tolerances.top1_agreement_min:.0%} of the tokens are the reference's own choice, and "
        f"others are within {tolerances.disagreement_margin_max_nats:g} nats of it; log-probabilities within "
        f"{tolerances.logprob_mean_max:g} nats in the mean",
        "headline": spec.goals[0].metric if spec.goals else "request_throughput",
        "windows": f"{plan.schedule.search_pairs} pairs of windows of {plan.schedule.search_window_s:g} s",
        "floors": _floors(plan),
        "engines": ", ".join(ENGINES),
        "known_engines": ", ".join(ENGINES[:5]),
        "allowed": ", ".join((*IMPORTABLE, *spec.allow_engines)),
        "max_memory_gib": plan.memory.capacity_gib,
    }


def _cores(cpus: Sequence[int]) -> str:
    return f"core{'s' if len(cpus) != 1 else ''} {', '.join(map(str, cpus)) or '(none here)'}"


def machine_brief(facts: HardwareFacts) -> str:
    """`AMD EPYC, avx2 fma f16c`: what code may be compiled for."""
    flags = [flag for flag in TOLD_FLAGS if flag in facts.cpu_flags]
    gpus = ", ".join(f"{gpu.name} (sm {gpu.sm})" for gpu in facts.gpus)
    return f"{facts.cpu_model or 'CPU'} with {' '.join(flags) or 'no vector extension that is known'}" + (
        f"; {gpus}" if gpus else ""
    )


def goal_text(goal: Goal, *, headline: str) -> str:
    """`output_throughput at c8: at least 1.5 times competent`"""
    where = f"{goal.metric} at {goal.load or headline}"
    if goal.min_ratio is not None:
        return f"{where}: at least {goal.min_ratio:g} times {goal.against}"
    if goal.max_ms is not None:
        return f"{where}: at most {goal.max_ms:g} ms"
    if goal.max_gib is not None:
        return f"{where}: at most {goal.max_gib:g} GiB"
    return f"{where}: at least {goal.min_per_s:g} per second"


def _floors(plan: Plan) -> list[str]:
    told = [
        f"{ceiling.metric} at {ceiling.load or 'any load'}: at best {ceiling.value:.4g} {ceiling.unit}, "
        f"by {ceiling.bound_by}"
        for ceiling in plan.ceilings[:6]
    ]
    steps = [
        f"decode step at {floor.load}: at least {floor.step_s * 1000:.3g} ms ({floor.bound_by})"
        for floor in plan.decode[:4]
        if floor.step_s is not None
    ]
    return [*told, *steps]


def incumbent_brief(assembled: Assembled, *, spans: Mapping[str, float], records: Sequence[Round]) -> dict[str, Any]:
    """What the incumbent is made of, where its requests spend their time, and how far it has come."""
    accepted = [each for each in records if each.outcome in (Outcome.ACCEPTED, Outcome.BASELINE)]
    figures = accepted[-1].metrics.get("candidate", {}) if accepted else {}
    floor = next((each.decision.noise_floor for each in records if each.decision is not None), None)
    return {
        "components": ", ".join(assembled.components) or "none: the plain scaffold",
        "is_edited": assembled.is_edited,
        "parameters": json.dumps(assembled.parameters, sort_keys=True),
        "spans": spans_text(spans),
        "figures": ", ".join(figure_rows(figures)) or "not measured",
        "noise_floor": "not measured" if floor is None else f"{floor:.1%}",
    }


def figure_rows(figures: Mapping[str, float]) -> list[str]:
    """`ttft_p50 0.35 s` for every metric that has a name and a value."""
    known = [(METRICS[name], value) for name, value in sorted(figures.items()) if name in METRICS]
    return [f"{metric.name} {value:.4g} {metric.unit}" for metric, value in known]


def compared_rows(metrics: Mapping[str, Mapping[str, float]]) -> list[str]:
    """`ttft_p50: candidate 0.2 s, incumbent 0.3 s` for every metric of the candidate."""
    theirs = metrics.get("incumbent", {})
    return [
        f"{name}: candidate {value:.4g} {METRICS[name].unit}, incumbent {theirs[name]:.4g}"
        for name, value in sorted(metrics.get("candidate", {}).items())
        if name in METRICS and name in theirs
    ]


def profile_brief(profile: Profile | None, *, max_rows: int) -> list[str]:
    """The ranked list as data: names in it are the candidate's to choose. Empty where no profiler looked: the spans
    are told anyway."""
    if profile is None or profile.is_own_word:
        return []
    lines = profile_lines(profile, max_rows=max_rows)
    while sum(map(len, lines)) > MAX_PROFILE_CHARS:
        lines.pop()  # the largest come first
    return quoted("\n".join(lines), max_chars=2 * MAX_PROFILE_CHARS).splitlines()


def spans_text(spans: Mapping[str, float]) -> str:
    """`queue 40%, prefill 30%`, the largest first."""
    largest = sorted(spans.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.005) or "not measured"


def patch_excerpt(patch: str, *, max_chars: int) -> dict[str, Any]:
    """Which files a patch changes, and as much of it as has room: sources of the runtime first, then tests."""
    parts = [f"diff --git{part}" for part in patch.split("diff --git")[1:]]
    parts.sort(key=lambda part: _rank(_path_of(part)))
    stat = [f"{_path_of(part)} +{_count(part, '+')} -{_count(part, '-')}" for part in parts]
    shown = "\n".join(_hunks(part) for part in parts)
    cut = len(shown) > max_chars
    return {"stat": ", ".join(stat) or "nothing", "text": quoted(shown[:max_chars], max_chars=max_chars), "is_cut": cut}


def _path_of(part: str) -> str:
    return part.splitlines()[0].rpartition(" b/")[2]


def _rank(path: str) -> tuple[int, str]:
    is_source = path.startswith("runtime/") and path.endswith((".py", ".cpp", ".h"))
    return (0 if is_source else 1 if path == "service.yaml" else 2 if path.startswith("tests/") else 3, path)


def _count(part: str, sign: str) -> int:
    return sum(line.startswith(sign) and not line.startswith(sign * 3) for line in part.splitlines())


def _hunks(part: str) -> str:
    """Without git's own lines between the name and the first hunk."""
    first, _, rest = part.partition("\n@@")
    return f"{_path_of(part)}\n@@{rest}" if rest else first


def history_brief(records: Sequence[Round]) -> list[str]:
    """One line a round, the newest last; older ones are left out."""
    lines = []
    for record in records[-MAX_ROUNDS_TOLD:]:
        title = record.proposal.title if record.proposal else "no proposal" if record.number else "the seed"
        forecast = f", forecast x{record.proposal.forecast_ratio:g}" if record.proposal else ""
        is_new = record.number > records[-1].number - NUM_NEW_ROUNDS
        reason = beginning(record.reason, max_chars=MAX_NEW_REASON_CHARS if is_new else MAX_REASON_CHARS)
        lines.append(f"round {record.number}: {title}{forecast}: {record.outcome.value}: {reason}{_added(record)}")
    left_out = len(records) - len(lines)
    return [f"({left_out} older rounds are left out)", *lines] if left_out else lines


def _doubt(record: Round) -> str:
    """Beside a rejection that says nothing of the idea."""
    decision = record.decision
    headline = decision.headline if decision is not None else None
    if record.outcome is not Outcome.REJECTED or record.is_refused or decision is None or headline is None:
        return ""
    is_wide = headline.ci_low <= 1 < headline.ratio and math.log(headline.ratio) > decision.noise_floor
    told = " (undecided: the median is beyond the bar, the interval too wide; the machine may have been busy)"
    return told if is_wide else ""


def _added(record: Round) -> str:
    return f"{_doubt(record)}{_activated(record)}"


def _activated(record: Round) -> str:
    """Whether the new path was seen to run; silent where it was, and where the round's reason says it."""
    found = record.activation
    if found is None or found.state is ActivationState.SEEN:
        return ""
    told = beginning(found.text, max_chars=MAX_ACTIVATION_CHARS)
    if record.is_unactivated:
        return f" (its mechanism is not shown: {told})" if record.outcome is Outcome.ACCEPTED else ""
    return f" (activation {found.state.value}: {told})"


def planning_brief(state: PlanningState) -> dict[str, Any]:
    """Ideas that the history does not tell, notes, what is ruled out, and how good forecasts were."""
    told = {record.number for record in state.records[-MAX_ROUNDS_TOLD:]}
    return {
        "backlog": backlog_lines(state.backlog, told=told), "notes": note_lines(state.memory),
        "constraints": "; ".join([*state.constraints.lines(), *_pivot_lines(state)]),
        "calibration": calibration_text(calibration_of(state.records)),
    }  # fmt: skip


def _pivot_lines(state: PlanningState) -> list[str]:
    if not state.avoided:
        return []
    cards = {skill.name for skill in state.skills if skill.card is not None}
    if cards & set(state.avoided):
        return [f"the last rounds stood still: nothing that relieves what {', '.join(state.avoided)} relieve"]
    titles = "; ".join(beginning(title, max_chars=MAX_AVOIDED_CHARS) for title in state.avoided[:MAX_AVOIDED])
    return [f"the last rounds stood still: an idea of another kind than these: {titles}"]


def tried_brief(folder: Path | None) -> str:
    """Where patches of rounds that passed every gate and were not faster lie; empty where there is none."""
    names = sorted(path.name for path in folder.glob("*.diff")) if folder else []
    return f"{folder}: {', '.join(names)}" if names else ""


def pairs_text(decision: Decision | None) -> str:
    """Every pair's ratio, in measured order."""
    values = decision.headline.values if decision is not None and decision.headline is not None else ()
    return ", ".join(f"{value:.3g}" for value in values) or "not measured"


def analysis_brief(records: Sequence[Round]) -> str:
    """The newest analysis of an evaluator, as data."""
    newest = next((record.analysis for record in reversed(records) if record.analysis), "")
    return quoted(beginning(newest, max_chars=MAX_ANALYSIS_CHARS, is_lines=True), max_chars=2 * MAX_ANALYSIS_CHARS)


def proposal_brief(proposal: Proposal) -> dict[str, str]:
    """Every part of a proposal as text."""
    return {
        "title": proposal.title, "hypothesis": proposal.hypothesis, "mechanism": proposal.mechanism,
        "activation_evidence": proposal.activation_evidence, "falsification": proposal.falsification,
        "forecast_ratio": f"{proposal.forecast_ratio:g}",
        "invariants": "; ".join(proposal.invariants) or "those of the contract",
        "components": ", ".join(proposal.components) or "none",
        "parameters": json.dumps(proposal.parameters, sort_keys=True),
        "skills": ", ".join(proposal.skills) or "none named",
    }  # fmt: skip


def refusals_brief(refusals: Sequence[Refusal]) -> list[str]:
    """What the gates said, as data: logs in it are the candidate's own words."""
    return [
        f"{refusal.gate}/{refusal.reason_class}{f' in {refusal.file}' if refusal.file else ''}:\n"
        f"{quoted(refusal.text, max_chars=MAX_REFUSAL_CHARS)}"
        for refusal in refusals[:4]
    ]


def planning_bottleneck(state: PlanningState, *, plan: Plan) -> Bottleneck:
    """What the next round is about, as far as the measurements tell."""
    spec = plan.spec
    metric = spec.goals[0].metric if spec.goals else ""
    largest = sorted(state.spans, key=lambda span: -state.spans[span])[:NUM_SPANS_ASKED]
    return Bottleneck(text=" ".join([metric, spec.workload.kind, *largest]), spans=state.spans)


def proposed_bottleneck(proposal: Proposal) -> Bottleneck:
    """What an implementer has to know about."""
    return Bottleneck(text=" ".join([proposal.title, proposal.hypothesis, proposal.mechanism]))


def skills_brief(
    skills: Sequence[Skill], *, facts: TargetFacts, bottleneck: Bottleneck, folder: Path, named: Sequence[str] = ()
) -> dict[str, Any]:
    """A short index to open the rest from: those of `named`, then the best matches, then the names of other components
    and the number of other notes. What is foreign to the target is not in it; of a component that does not apply the
    note alone is told."""
    found = [row.skill for row in route(skills, facts=facts, bottleneck=bottleneck)]
    found.sort(key=lambda skill: skill.name not in named)
    first, others = found[:NUM_SKILLS_TOLD], found[NUM_SKILLS_TOLD:]
    rows = [f"{skill.name}: {_first_words(skill.description)}{_card_text(skill, facts)}" for skill in first]
    names = sorted(f"{skill.name}*" for skill in others if _card_text(skill, facts))
    num_notes = len(others) - len(names)
    notes = [f"{num_notes} more in that folder"] if num_notes else []
    return {"rows": rows, "others": ", ".join([*names, *notes]), "folder": str(folder)}


def _card_text(skill: Skill, facts: TargetFacts) -> str:
    card = skill.card
    if card is None or applicable(card, facts=facts) is not None:
        return ""
    extends = f", extends {', '.join(card.extends)}" if card.extends else ""
    return f" [component: {', '.join(card.relieves)} x{card.expected_factor:g}{extends}]"


def _first_words(text: str) -> str:
    """As many whole words of a description as an index has room for."""
    if len(text) <= MAX_SKILL_CHARS:
        return text
    return text[:MAX_SKILL_CHARS].rpartition(" ")[0] + " ..."


def schema_text(schema: Mapping[str, Any]) -> str:
    """The schema on one line; how long a text may be is told by the refusal where it matters."""
    return json.dumps(_unmeasured(schema), separators=(",", ":"))


def _unmeasured(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmeasured(item) for key, item in value.items() if key not in ("minLength", "maxLength")}
    return [_unmeasured(item) for item in value] if isinstance(value, list) else value
