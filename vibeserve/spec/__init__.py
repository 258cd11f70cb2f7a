"""What may be declared: the schema of a target after composition, and the one source of every default.

The classes are plain (not frozen) because OmegaConf merges into them; after `config.compose_spec` nobody writes to
them. Field names carry their unit. A string field documents the field above it and becomes its JSON Schema description.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from vibeserve.spec.agents import (
    BACKENDS,
    COMMAND_WORDS,
    DEFAULT_MODELS,
    MODEL_FREE,
    ROLES,
    UNMETERED,
    Agent,
    Agents,
    Command,
    Price,
    RoleAgent,
    Skills,
    resolve_role,
)
from vibeserve.spec.model import (
    MISSING,
    ImageHead,
    LinearState,
    Modality,
    Model,
    ModelSource,
    SourceKind,
    SpeechEncoder,
)
from vibeserve.spec.places import OWN_SEEDS, SEED_BASELINE, Host, Seed, SeedSearch, place_of

__all__ = [
    "BACKENDS",
    "COMMAND_WORDS",
    "DEFAULT_MODELS",
    "MISSING",
    "MODEL_FREE",
    "OWN_SEEDS",
    "ROLES",
    "SEED_BASELINE",
    "UNMETERED",
    "Agent",
    "Agents",
    "Command",
    "Host",
    "ImageHead",
    "LinearState",
    "Modality",
    "Model",
    "ModelSource",
    "Price",
    "RoleAgent",
    "Seed",
    "SeedSearch",
    "Skills",
    "SourceKind",
    "SpeechEncoder",
    "place_of",
    "resolve_role",
]


class Level(Enum):
    quick = "quick"
    standard = "standard"
    full = "full"


class ClockKind(Enum):
    real = "real"
    fake = "fake"


class ProfileKind(Enum):
    auto = "auto"
    """stacks where its tool is installed, else spans"""
    off = "off"
    spans = "spans"
    """the server's own counters alone"""
    stacks = "stacks"
    """a sampling profiler that looks into the server's processes from outside"""


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
    """dense, per device, as are the next three; 0 = probed on a CPU, else unknown"""
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
    """devices that share every layer, on a CPU processes; 0 = as few as it fits on"""
    pipeline: int = 0
    """devices that take turns at the layers; 0 = one"""
    replicas: int = 0
    """copies of the model side by side; 0 = as many as the devices that are left make"""


@dataclass(kw_only=True)
class Load:
    concurrency: int = 0
    """closed loop: requests in flight"""
    rate_per_s: float = 0.0
    """open loop: mean Poisson arrivals per second"""
    trace_speed: float = 0.0
    """open loop of a trace: its own arrivals, so many times as fast as recorded"""
    output_tokens: int = 0
    """of every request under this load; 0 = the workload's range"""
    num_prefixes: int = 0
    """shared_prefix: different prefixes under this load; 0 = the workload's"""
    prediction: str = ""
    """code_edit: kind of prediction under this load; empty = the workload's"""
    audio_s: float = 0.0
    """streaming_asr: length of every recording under this load; 0 = the workload's range"""


@dataclass(kw_only=True)
class Slo:
    """What a request must meet to count for goodput."""

    ttft_s: float = 10.0
    """time to first token, or to the first output of another modality"""
    tpot_s: float = 0.5
    """time per output token after the first"""
    e2el_s: float = 0.0
    """whole reply; 0 = no bound for text, ttft_s for other modalities, whose first output may be the whole one"""


@dataclass(kw_only=True)
class Workload:
    kind: str = MISSING
    """chat, shared_prefix, code_edit, constrained_json, trace, streaming_asr, text_to_image (`docs/workloads.md`)"""
    prompt_tokens_min: int = 128
    """shortest prompt"""
    prompt_tokens_max: int = 512
    """longest prompt"""
    output_tokens_min: int = 64
    """shortest reply"""
    output_tokens_max: int = 128
    """longest reply; with the prompt at most the model's context"""
    loads: dict[str, Load] = field(default_factory=dict)
    """by name: c8 for a closed loop of 8, r0.5 for 0.5 requests a second"""
    headline_load: str = "c8"
    """the load that the search measures and the headline quotes"""
    shared_prefix_tokens: int = 0
    """shared_prefix: tokens of the prefix; prompt_tokens count what is unique behind it"""
    num_prefixes: int = 1
    """shared_prefix: different prefixes in use"""
    trace: str = ""
    """trace: JSONL file of requests, relative to the target's folder (`docs/workloads.md`)"""
    prediction: str = "none"
    """code_edit: what the client predicts: none, edits (the answer with some tokens edited), pre_edit (the file as it
    was), exact, useless"""
    predictions_ahead: int = 64
    """code_edit with prediction exact or edits: the reference's answers that are there before a load starts; what it
    takes beyond them is computed beside it"""
    edit_tasks: str = ""
    """code_edit: JSONL file of CodeEditorBench's shape, relative to the target's folder (`docs/workloads.md`); empty =
    sources of the standard library"""
    audio_s_min: float = 0.0
    audio_s_max: float = 0.0
    """streaming_asr: seconds of one recording, sent in real time"""
    chunk_s: float = 0.5
    """streaming_asr: audio in one message of the client"""
    num_steps: int = 0
    """text_to_image: denoising steps of one image"""
    guidance_scale: float = 0.0
    """text_to_image: classifier-free guidance; above 1 every step runs twice, with the prompt and without"""
    temperature: float = 0.0
    """text_to_image: of the image tokens of a model that draws token by token; 0 = always the likeliest"""
    options: dict[str, Any] = field(default_factory=dict)
    """of a workload that the target's folder brings: passed to its workload.py as they are"""
    reuse: str = "none"
    """declared reuse between requests: none or prefix. Without it a nonce opens every prompt"""
    slo: Slo = field(default_factory=Slo)


@dataclass(kw_only=True)
class Budget:
    level: Level = Level.standard
    """how long and how often is measured (`docs/measuring.md`)"""
    rounds: int = 4
    """rounds after round 0"""
    attempts: int = 2
    """candidates per round"""
    wall_s: float = 1800.0
    """the whole run; search stops in time for certification"""
    usd: float = 0.0
    """what agents may cost; 0 = no cap in money. Needs a price for every model (`docs/agents.md`)"""
    tokens: int = 10_000_000
    """what agents may read and write together; 0 = no cap"""
    device_s: float = 0.0
    """seconds in which the search may hold the devices for measuring; 0 = as long as wall_s lasts"""


@dataclass(kw_only=True)
class Search:
    policy: str = "greedy"
    """greedy, beam, random (`docs/search.md`)"""
    patience: int = 3
    """greedy, random: rounds in a row without an accepted candidate that are a plateau; beam: moves"""
    pivots: int = 2
    """greedy: changes of direction at a plateau before the search ends, each for as many rounds again; 0 = none"""
    width: int = 2
    """beam: checkpoints that are extended side by side"""
    branching: int = 2
    """beam: proposals upon each of them in one move"""
    stop_at_goal: bool = False
    """end the search once every goal is met with the lower end of its interval, instead of using the budget up"""
    seed: int = 0
    """of the policy random"""
    pins: dict[str, float | int | str | bool] = field(default_factory=dict)
    """parameters of scaffold and components that the search leaves at these values (`docs/sweeps.md`)"""
    allow_unproven: bool = False
    """also components that have not run on the hardware that they are for (their cards say `status: unproven`)"""


@dataclass(kw_only=True)
class Tolerances:
    """The accuracy gate on served greedy replies under the f32 reference (`docs/accuracy.md`)."""

    top1_agreement_min: float = 0.97
    """share of tokens that are the reference's own choice"""
    disagreement_margin_max_nats: float = 0.25
    """how far below the reference's choice a token that differs may lie"""
    far_disagreement_share_max: float = 0.001
    """share of tokens (at least one) that may reach that margin, but not twice it; 0 = none may"""
    mean_margin_max_nats: float = 0.003
    """mean of that distance over all tokens"""
    logprob_mean_max: float = 0.05
    """mean distance of a served log-probability from the reference's, nats"""
    logprob_p99_max: float = 0.3
    """99th percentile of the same"""
    logprob_share: int = 8
    """one in so many timed requests carries logprobs"""
    limits: dict[str, float] = field(default_factory=dict)
    """bounds by `distance/statistic`, such as `cosine/max`: they replace those of check.py's LIMITS, or add to them"""


@dataclass(kw_only=True)
class Contract:
    """Evaluators in another language, as programs of the target's folder that speak JSON lines (`docs/contract.md`).

    The words are taken as they are, but for `{python} {model_dir} {device} {dtype}`; the folder is where they run.
    """

    reference_argv: list[str] = field(default_factory=list)
    """in place of reference.py"""
    check_argv: list[str] = field(default_factory=list)
    """in place of check.py; its limits are `evaluation.tolerances.limits`"""
    timeout_s: float = 600.0
    """for one answer; the first one includes loading"""


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
    """replies re-scored per candidate in search; at certification as many as the level says"""
    min_effect: float = 0.02
    """smallest median gain that is accepted, as a share"""
    measure_again: bool = True
    """a candidate whose gain is large enough and whose interval is too wide is measured once more, twice as long"""
    profile: ProfileKind = ProfileKind.auto
    """how the seed and accepted candidates are profiled, after their windows; never under a fake clock"""
    startup_max_s: float = 300.0
    """longest start-up of a certified runtime, from the start of its wall to readiness"""
    tolerances: Tolerances = field(default_factory=Tolerances)


@dataclass(kw_only=True)
class DeclaredValue:
    """A published or earlier figure of a baseline, in the metric's own unit. `plan` bounds ratios by it; a run measures
    anew."""

    metric: str = MISSING
    load: str = ""
    """empty = the workload's headline load"""
    value: float = 0.0
    source: str = MISSING
    """where the figure comes from, and on which machine"""


@dataclass(kw_only=True)
class Baseline:
    baseline_class: BaselineClass = BaselineClass.competent
    """goals name it: naive is what one writes in an afternoon, competent what one would run"""
    required: bool = False
    """a run that cannot start it ends before anything is spent (exit 5)"""
    precision: Precision = Precision.same_bytes
    version: str = ""
    """exact version that the step checks; empty = whatever the core environment holds"""
    flags: list[str] = field(default_factory=list)
    """words at the end of its command line"""
    dtypes: list[str] = field(default_factory=list)
    """weights to choose from by a short calibration; empty = the engine's own file"""
    declared: list[DeclaredValue] = field(default_factory=list)


@dataclass(kw_only=True)
class Sandbox:
    tier: Tier = Tier.auto
    allow_none: bool = False
    """tier C, no wall at all: only by this explicit opt-out"""
    max_processes: int = 512
    """of one process tree"""
    max_memory_gib: float = 0.0
    """of one process tree; 0 = what a CPU target's hardware declares, at most 90% of the machine's"""
    max_disk_gib: float = 16.0
    """what one process tree may write to disk, its log included"""
    build_timeout_s: float = 300.0
    """longest build of one candidate"""


@dataclass(kw_only=True)
class Goal:
    metric: str = MISSING
    """such as output_throughput, ttft_p50 or peak_memory (`docs/measuring.md`)"""
    load: str = ""
    """empty = the workload's headline load"""
    against: str = ""
    """relative goals: a baseline's name or class (competent, naive)"""
    min_ratio: float | None = None
    """relative goals: the runtime over the baseline, turned so that above 1 is better; a goal has exactly one bound"""
    max_ms: float | None = None
    """times: at most"""
    max_gib: float | None = None
    """memory: at most"""
    min_per_s: float | None = None
    """rates: at least"""


@dataclass(kw_only=True)
class TargetInfo:
    """Filled by the loader: where the target came from. Not part of the plan's hash but for the name; files that the
    folder brings enter by their digest."""

    name: str = MISSING
    dir: str = ""
    inherited_dirs: list[str] = field(default_factory=list)
    """folders of the targets that this one inherits from, the nearest first"""
    twin: str = ""
    """target of the same model family that runs on a machine at hand"""
    description: str = ""
    """one line for lists"""

    def folder_of(self, relative: str) -> Path | None:
        """The folder that a relative path of this target starts from: the first that has it, else the target's own.

        The target's own folder comes first, then those it inherits from; None for a spec without a target file.
        """
        folders = [Path(folder) for folder in (self.dir, *self.inherited_dirs) if folder]
        having = (folder for folder in folders if relative and (folder / Path(relative).expanduser()).exists())
        return next(having, folders[0] if folders else None)


@dataclass(kw_only=True)
class Spec:
    """A target after composition."""

    target: TargetInfo = field(default_factory=TargetInfo)
    """about this target: a description and its twin"""
    model: Model = field(default_factory=Model)
    """what is served: architecture, sizes, dtype, where its weights come from"""
    hardware: Hardware = field(default_factory=Hardware)
    """what it is served on: devices, memory, rates, cores"""
    parallelism: Parallelism = field(default_factory=Parallelism)
    workload: Workload = field(default_factory=Workload)
    """the requests: lengths, loads, service levels"""
    agents: Agents = field(default_factory=Agents)
    """one back end per role"""
    skills: Skills = field(default_factory=Skills)
    """what agents may know and assemble"""
    budget: Budget = field(default_factory=Budget)
    """what a run may take: level of measuring, rounds, attempts, time, money"""
    search: Search = field(default_factory=Search)
    """how the outer loop chooses, and when it stops"""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """how candidates are measured and judged"""
    contract: Contract = field(default_factory=Contract)
    """programs in place of the target's Python files"""
    baseline: dict[str, Baseline] = field(default_factory=dict)
    """the servers to compare with, by name"""
    sandbox: Sandbox = field(default_factory=Sandbox)
    """the wall around a candidate"""
    host: Host = field(default_factory=Host)
    """where it is built, served and measured"""
    seed: Seed = field(default_factory=Seed)
    """what round 0 starts from"""
    goals: list[Goal] = field(default_factory=list)
    """what to reach: the first is the headline, the others are guards"""
    allow_engines: list[str] = field(default_factory=list)
    """serving engines that the runtime may import"""
    require_goal: bool = False
    """exit 3 when the result is certified but a goal is missed"""
    out_dir: str = "artifacts"
    """folder of the artifacts, relative to the working directory"""
