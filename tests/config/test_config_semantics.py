"""Rules that a schema cannot say; each has a spec that breaks it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.config.semantics import BASELINES, LAUNCHED, WORKLOADS, semantic_problems
from vibeserve.errors import SpecError
from vibeserve.spec import Baseline, Goal, Load, Modality, SourceKind, Spec, Tier

RULES: list[tuple[str, object, str]] = [
    ("workload.prompt_tokens_min", 60, "workload.prompt_tokens_min: 60 is above workload.prompt_tokens_max 48"),
    ("workload.output_tokens_min", 0, "workload.output_tokens_min: 0 is below 1"),
    ("workload.prompt_tokens_max", 600, "= 616 is above model.max_context_tokens 512"),
    ("workload.headline_load", "c2", "'c2' is no declared load; valid: c1, c4"),
    ("workload.loads.c4.rate_per_s", 2, "workload.loads.c4: needs exactly one of concurrency and rate_per_s"),
    ("workload.loads.c4.concurrency", 0, "workload.loads.c4: needs exactly one of concurrency and rate_per_s"),
    ("workload.loads.c4.concurrency", 5, "workload.loads.c4: the name says 4, concurrency is 5"),
    ("workload.loads.c4.concurrency", -1, "workload.loads.c4.concurrency: -1 is below 0"),
    ("workload.kind", "chit", "workload.kind: 'chit' is not valid; did you mean 'chat'? valid: chat, shared_prefix,"),
    ("workload.kind", "shared_prefix", "workload.shared_prefix_tokens: a shared_prefix workload needs the length of"),
    ("workload.kind", "shared_prefix", "workload.reuse: a shared_prefix workload declares `prefix`, else servers may"),
    ("workload.kind", "trace", "workload.trace: a trace workload needs the path of a JSONL file"),
    ("workload.kind", "streaming_asr", "workload.audio_s_min: 0 and audio_s_max 0: need 0 < min <= max"),
    ("workload.kind", "streaming_asr", "'streaming_asr' needs a speech model, model.modality is text"),
    ("workload.kind", "text_to_image", "'text_to_image' needs an image model, model.modality is text"),
    ("workload.shared_prefix_tokens", 64, "workload.shared_prefix_tokens: only a shared_prefix workload has it"),
    ("workload.num_steps", 20, "workload.num_steps: only a text_to_image workload has it, workload.kind is chat"),
    ("workload.prediction", "omen", "'omen' is not valid; valid: none, edits, pre_edit, exact, useless"),
    ("workload.loads.c4.trace_speed", 1, "workload.loads.c4: needs exactly one of concurrency and rate_per_s"),
    ("workload.loads.c4.audio_s", 5, "workload.loads.c4.audio_s: only loads of a streaming_asr workload have one"),
    ("workload.loads.c4.prediction", "edits", "c4.prediction: only loads of a code_edit workload have one"),
    ("workload.loads.c4.output_tokens", 600, "prompt_tokens_max + output_tokens_max = 648 is above"),
    ("model.linear_state.dtype", "int3", "model.linear_state.dtype: 'int3' is not valid; valid: float32,"),
    ("model.image_head.kind", "paint", "model.image_head.kind: 'paint' is not valid; valid: flow, tokens"),
    ("workload.reuse", "all", "workload.reuse: 'all' is not valid; valid: none, prefix"),
    ("model.modality", Modality.image, "workload.kind: 'chat' needs a text model, model.modality is image"),
    ("model.dtype", "int3", "model.dtype: 'int3' is not valid; valid: float32, bfloat16, float16"),
    ("model.source.kind", SourceKind.package, "model.source.package: needed when model.source.kind is package"),
    ("model.source.kind", SourceKind.folder, "model.source.path: needed when model.source.kind is folder"),
    ("hardware.kind", "tpu", "hardware.kind: 'tpu' is not valid; did you mean 'cpu'? valid: cpu, cuda, mps"),
    ("agents.backend", "oracle", "agents.backend: 'oracle' is not valid; valid: playbook, openai, codex, claude,"),
    ("agents.judge.backend", "oracle", "agents.judge.backend: 'oracle' is not valid; valid: playbook, openai,"),
    ("agents.judge.backend", "command", "agents.judge.model: the back end command needs one, such as agents.model="),
    ("agents.judge.backend", "command", "agents.command.argv: needed by the back end command, or a recipe: gemini,"),
    ("agents.judge.backend", "command", "agents.command.dialect: needed by the back end command; valid: responses,"),
    ("agents.judge.backend", "replay", "judge.backend: replay repeats a whole run; planner, implementer, evaluator"),
    ("agents.backend", "replay", "agents.recording: needed by the back end replay: an artifact, or a recording in"),
    ("agents.recording", "x", "agents.recording: only the back end replay reads it (agents=replay)"),
    ("agents.mailbox", "x", "agents.mailbox: only the back end external has one (agents=external)"),
    ("agents.command.argv", ["x"], "agents.command: only the back end command reads it (agents=command)"),
    ("agents.command.recipe", "gemni", "recipe: 'gemni' is not valid; did you mean 'gemini'? valid: gemini, openc"),
    ("agents.command.parser", "xml", "agents.command.parser: 'xml' is not valid; valid: text, codex_jsonl,"),
    ("agents.api", "soap", "agents.api: 'soap' is not valid; valid: auto, responses, chat"),
    ("agents.timeout_s", 0, "agents.timeout_s: 0 is below 1"),
    ("agents.max_turns", 0, "agents.max_turns: 0 is below 1"),
    ("agents.max_context_tokens", 100, "agents.max_context_tokens: 100 is below 8000"),
    ("agents.judge.max_usd", -1, "agents.judge.max_usd: -1 is below 0"),
    ("agents.price.output_usd_per_m", -1, "agents.price.output_usd_per_m: -1 is below 0"),
    ("skills.components", False, "skills.components: false leaves the implementer playbook nothing to assemble"),
    ("skills.path", ["absent"], "skills.path: there is no folder "),
    ("skills.path", ["package:absent"], "skills.path: no installed package offers skills as 'absent'; valid: "),
    ("skills.exclude", ["absent"], "skills.exclude: there is no skill 'absent'; valid: accuracy-gating, "),
    ("search.policy", "beem", "search.policy: 'beem' is not valid; did you mean 'beam'? valid: greedy, beam, random"),
    ("search.pivots", -1, "search.pivots: -1 is below 0"),
    ("search.width", 0, "search.width: 0 is below 1"),
    ("search.branching", 0, "search.branching: 0 is below 1"),
    ("host.kind", "moon", "host.kind: 'moon' is not valid; valid: local, ssh, slurm, docker"),
    ("host.kind", "ssh", "host.address: a host of kind ssh needs one, such as user@machine"),
    ("seed.kind", "engine", "seed.kind: 'engine' is not valid; valid: scaffold, artifact, path, git"),
    ("budget.attempts", 0, "budget.attempts: 0 is below 1"),
    ("budget.wall_s", 0, "budget.wall_s: 0 is not above 0"),
    ("evaluation.window_scale", 0, "evaluation.window_scale: 0 is not in (0, 1]"),
    ("evaluation.min_effect", 1, "evaluation.min_effect: 1 is not a share in [0, 1)"),
    ("sandbox.tier", Tier.C, "sandbox.tier: C is no wall at all; it needs sandbox.allow_none=true"),
]

GOALS = [
    (Goal(metric="speed", min_ratio=2), "goals[0].metric: 'speed' is not valid; valid: output_throughput,"),
    (Goal(metric="ttft_p5", max_ms=2), "did you mean 'ttft_p50'?"),
    (Goal(metric="goodput", load="c8", min_per_s=2), "goals[0].load: 'c8' is no declared load; valid: c1, c4"),
    (Goal(metric="goodput"), "goals[0]: needs exactly one of min_ratio, max_ms, max_gib, min_per_s; given: none"),
    (Goal(metric="goodput", min_ratio=1, min_per_s=1), "given: min_ratio, min_per_s"),
    (Goal(metric="goodput", max_ms=2), "goals[0].max_ms: goodput is in req/s; state min_per_s or min_ratio"),
    (Goal(metric="ttft_p50", max_ms=-2), "goals[0].max_ms: -2 is below 0"),
    (Goal(metric="goodput", min_per_s=1, against="naive"), "goals[0].against: only a relative goal"),
    (Goal(metric="goodput", min_ratio=1, against="vllm"), "'vllm' is not declared under baseline; valid: scaffold"),
    (Goal(metric="goodput", min_ratio=1, against="best"), "'best' is no class and no baseline"),
]


@pytest.fixture(scope="module")
def composed() -> Spec:
    return compose_spec(["+target=tiny_cpu"])


@pytest.fixture
def spec(composed: Spec) -> Spec:
    return copy.deepcopy(composed)


def assign(node: object, key: str, value: object) -> None:
    """Set the dotted `key` of a spec."""
    *parents, last = key.split(".")
    for name in parents:
        node = node[name] if isinstance(node, dict) else getattr(node, name)
    setattr(node, last, value)


@pytest.mark.parametrize(("key", "value", "problem"), RULES)
def test_broken_rules_are_told_by_key(spec: Spec, key: str, value: object, problem: str) -> None:
    assign(spec, key, value)
    assert any(problem in told for told in semantic_problems(spec)), semantic_problems(spec)


@pytest.mark.parametrize(("goal", "problem"), GOALS)
def test_broken_goals_are_told_by_index(spec: Spec, goal: Goal, problem: str) -> None:
    spec.goals = [goal]
    assert [told for told in semantic_problems(spec) if problem in told], semantic_problems(spec)


def test_a_correct_spec_has_no_problems(spec: Spec) -> None:
    assert semantic_problems(spec) == []


def test_all_problems_are_one_message() -> None:
    with pytest.raises(SpecError, match="target 'tiny_cpu' cannot be run as declared") as caught:
        compose_spec(["+target=tiny_cpu", "workload.headline_load=c2", "goals=[]"])
    assert len(caught.value.problems) == 2
    assert "goals: none is declared" in str(caught.value)


def test_without_any_baseline_a_ratio_is_impossible(spec: Spec) -> None:
    spec.baseline = {}
    assert any(problem.startswith("baseline: none is declared") for problem in semantic_problems(spec))


def test_open_loop_loads_are_declared_by_rate(spec: Spec) -> None:
    spec.workload.loads["r0.5"] = Load(rate_per_s=0.5)
    assert semantic_problems(spec) == []
    spec.workload.loads["r2"] = Load(rate_per_s=3)
    assert semantic_problems(spec) == ["workload.loads.r2: the name says 2, rate_per_s is 3"]


def test_unknown_peers_are_refused(spec: Spec) -> None:
    spec.baseline["vlm"] = Baseline()
    (problem,) = semantic_problems(spec)
    assert problem.startswith("baseline.vlm: no such peer; did you mean 'vllm'?")


def test_every_peer_that_may_be_declared_has_a_group_file() -> None:
    from vibeserve.core.paths import data_dir

    files = {path.stem for path in (data_dir("conf") / "baseline").glob("*.yaml")}
    assert set(BASELINES) == files - {"required", "all", "text_cuda"}


def test_what_may_be_declared_is_what_exists() -> None:
    from vibeserve.baselines import NO_LAUNCHER, PEERS
    from vibeserve.workloads import RUNNABLE, WORKLOAD_KINDS

    assert set(WORKLOADS) - {"custom"} == set(RUNNABLE)
    assert {kind for kind, modality in WORKLOADS.items() if modality is Modality.text} == set(WORKLOAD_KINDS)
    assert set(BASELINES) == set(PEERS) | set(NO_LAUNCHER)
    assert set(LAUNCHED) == set(PEERS)


def test_a_model_on_a_hub_may_wait_for_its_revision(spec: Spec) -> None:
    spec.model.source.kind = SourceKind.hub
    assert semantic_problems(spec) == []
    spec.model.revision = "main"
    assert semantic_problems(spec) == [
        "model.revision: a model from a hub needs the 40 hex digits of a commit, so that a run can be repeated"
    ]


def test_sizes_of_a_model_agree(spec: Spec) -> None:
    spec.model.num_layers, spec.model.num_attention_layers, spec.model.linear_state.num_layers = 4, 2, 3
    spec.model.num_parameters, spec.model.num_active_parameters = 1000, 2000
    assert semantic_problems(spec) == [
        "model.num_layers: 4 is below its 2 attention and 3 linear_state layers",
        "model.num_active_parameters: 2000 is above num_parameters 1000",
    ]


def test_a_trace_is_replayed_at_a_speed_that_its_load_names(spec: Spec, tmp_path: Path) -> None:
    trace = tmp_path / "my.jsonl"
    trace.write_text(
        '{"arrival_s": 0, "prompt_tokens": 20, "output_tokens": 9}\n'
        '{"arrival_s": 2, "prompt_tokens": 99, "output_tokens": 9}\n'
    )
    spec.workload.kind, spec.workload.trace = "trace", str(trace)
    spec.workload.loads["x2"] = Load(trace_speed=3)
    assert semantic_problems(spec) == [
        "workload.loads.x2: the name says 2, trace_speed is 3",
        "my.jsonl:2: prompt_tokens 99 is above workload.prompt_tokens_max 48",
    ]


def test_an_image_takes_the_models_own_number_of_tokens() -> None:
    with pytest.raises(SpecError) as caught:
        compose_spec(["+target=showo2_cpu", "workload.output_tokens_max=300", "workload.num_steps=0"])
    steps, tokens = caught.value.problems
    assert steps.endswith("workload.num_steps: a model that draws by flow needs the number of denoising steps")
    assert tokens.endswith(
        "workload.output_tokens_max: 300 is not model.image_head.num_tokens 256; an image takes that many positions"
    )


def test_recordings_have_a_length_and_chunks_shorter_than_it() -> None:
    with pytest.raises(SpecError) as caught:
        compose_spec(["+target=moonshine_cpu", "workload.chunk_s=30"])
    (problem,) = caught.value.problems
    assert problem.endswith("workload.chunk_s: 30 is not in (0, workload.audio_s_max 20]")


def test_peers_are_declared_in_the_class_and_precision_that_they_are() -> None:
    from vibeserve.baselines import PEERS

    spec = compose_spec(["+target=smollm2_cpu", f"baseline=[{','.join(PEERS)}]"])
    assert set(spec.baseline) == set(PEERS)
    for name, declared in spec.baseline.items():
        assert declared.baseline_class is PEERS[name].baseline_class
        assert declared.precision is PEERS[name].precision
        assert set(declared.dtypes) <= set(PEERS[name].dtypes)
