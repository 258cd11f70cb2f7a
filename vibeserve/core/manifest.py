"""Documents of a finished run: manifest, rounds, golden replies, result of a re-verification.

They live here, below everything, because certification and synthesis write them and artifact and report read them.
Field names are those of `verify --json` and `manifest.json`; only `class`, a keyword of Python, is `baseline_class` or
`reason_class` here (`vibeserve.artifact.manifest` maps them).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from vibeserve.core.environment import Environment
from vibeserve.core.nouns import Activation, Direction, Outcome, Proposal, RatioInterval, Refusal, Role, Verdict

STATUSES = ("certified", "uncertified", "refused")


@dataclass(frozen=True, kw_only=True)
class BaselineValue:
    """One baseline's figure for one metric at one load. `ratio` > 1: the candidate is better, in either direction."""

    name: str
    baseline_class: str
    """naive or competent"""
    version: str
    flags: tuple[str, ...] = ()
    precision: str = "same_bytes"
    """table of this row: same_bytes or any"""
    value: float | None = None
    """None only where `state` is skipped"""
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    state: str = "measured"
    """measured (interleaved), screened (too slow to be interleaved) or skipped (not installed)"""
    note: str = ""
    """why it was screened or skipped; the dtype that a calibration chose"""
    weight_bits: float | None = None
    kv_bits: float | None = None
    bytes_per_token: float | None = None
    """weights and KV read per emitted token"""
    roofline_share: float | None = None
    """of the roofline at this row's precision, 0 to 1"""


@dataclass(frozen=True, kw_only=True)
class MetricResult:
    """A certified metric at one load, beside every baseline."""

    name: str
    unit: str
    direction: Direction
    role: Role
    load: str
    candidate: float
    baselines: tuple[BaselineValue, ...] = ()
    roofline_share: float | None = None

    def claims(self) -> tuple[BaselineValue, ...]:
        """The rows that a claim is made of: those with an interval; where any is competent, the competent ones only."""
        rows = tuple(base for base in self.baselines if base.ci_low is not None)
        return tuple(base for base in rows if base.baseline_class == "competent") or rows


@dataclass(frozen=True, kw_only=True)
class GoalResult:
    """A declared goal and whether it is met. Relative goals carry `ratio`, absolute ones `value` and `limit`."""

    metric: str
    load: str
    against: str
    ratio: float | None
    ci_low: float | None
    met: bool
    value: float | None = None
    limit: float | None = None
    unit: str = ""


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """One audit of the certified runtime (`vibeserve.live_audits`)."""

    name: str
    passed: bool
    text: str
    """one line: what was found"""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the search saw of the winner beside what certification saw: a number that was chosen for being high tends to
    be too high (the winner's curse), so only the certified one is quoted."""

    metric: str
    unit: str
    load: str
    selected: float
    """median over the windows of the round that chose it"""
    certified: float
    ratio: float
    """certified over selected, turned so that below 1 is worse"""


@dataclass(frozen=True, kw_only=True)
class ScoredForecast:
    """What a proposal forecast of the headline beside what its round measured."""

    round: int
    forecast: float
    """ratio against the incumbent"""
    measured: float
    """paired ratio, with its interval"""
    ci_low: float
    ci_high: float
    log_error: float
    """natural log of measured over forecast; below 0 the forecast was too high"""
    is_inside: bool
    """the interval holds the forecast"""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How good the search's forecasts were. The figures are None where there are too few to say."""

    forecasts: tuple[ScoredForecast, ...] = ()
    judgement: str
    """too few, no bias seen, forecasts too high, forecasts too low"""
    bias: float | None = None
    """geometric mean of measured over forecast"""
    mean_abs_log_error: float | None = None
    coverage: float | None = None
    """share of the measured intervals that hold the forecast"""


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """What a person asked of the run while it searched."""

    number: int
    """of the request"""
    command: str
    """pause, stop, constrain, veto, pin, propose, budget, backend, backlog, note ..."""
    text: str
    """what it was, in words"""
    who: str
    at: str
    """UTC, ISO 8601: when it was asked"""
    round: int
    """the last one that was finished, or the one under way, when it took effect"""
    state: str
    """applied or refused"""
    effect: str
    """what it did, or why it was refused"""


@dataclass(frozen=True, kw_only=True)
class Authorship:
    """What one origin contributed: scaffold, component:<skill>, seed:<repo@commit>, agent:<back end/model>, human."""

    origin: str
    lines: int
    share_of_log_ratio: float


@dataclass(frozen=True, kw_only=True)
class RoundEntry:
    """One round as it is quoted in the manifest and drawn in the report."""

    number: int
    """0 is the scaffold"""
    outcome: Outcome
    reason: str
    """one line: why this outcome"""
    proposal: Proposal | None = None
    commit: str = ""
    headline: RatioInterval | None = None
    """headline metric against the incumbent of that time"""
    cumulative_ratio: float | None = None
    """candidate against round 0: the product of the accepted ratios before it times its own"""
    refusals: tuple[Refusal, ...] = ()
    spans: dict[str, float] = field(default_factory=dict)
    """share of request wall time by span, 0 to 1"""
    seconds: float = 0.0
    """wall time of the round"""
    activation: Activation | None = None
    """whether the framework's profiler saw the new path run; of accepted rounds that were profiled"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """All that is kept of one round, for `rounds/NNNN/`."""

    entry: RoundEntry
    verdict: Verdict | None = None
    measurements: Any = None
    """JSON data: windows, pairs, metrics by load"""
    patch: str = ""
    """against the incumbent, as `CheckpointStore.diff` prints it"""
    profile: Any = None
    """document of `vibeserve.profiles.Profile`; of the seed and of accepted rounds"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class GoldenReply:
    """One certification request with what the certified runtime served and how far that is from the reference."""

    request_id: str
    load: str
    request: Any
    """the whole request as JSON data; of text: `prompt`, `max_tokens` ..."""
    output: Any
    """JSON data; of text: `token_ids`, `text`, `logprobs`"""
    distances: dict[str, tuple[float, ...]]
    """by name; of text: `margin`, the reference's best logit minus the served token's, nats, per token. Empty = not
    drawn for re-scoring (`Schedule.certify_rescored`)"""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """Certification's traffic, revealed after the freeze."""

    seeds: dict[str, int]
    """by load and start, such as `c8/0`"""
    replies: tuple[GoldenReply, ...]
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """`manifest.json`: what is claimed, how it was measured, and what it was made of."""

    target: str
    plan_id: str
    status: str
    """certified or uncertified; `verify` may answer refused"""
    level: str
    """quick, standard or full"""
    created_at: str
    """UTC, ISO 8601"""
    sandbox_tier: str
    hardware: dict[str, Any]
    """hardware identity, as `hardware.identity` gives it: what must be equal for numbers to be compared"""
    not_run: tuple[str, ...] = ()
    reasons: tuple[Refusal, ...] = ()
    goals: tuple[GoalResult, ...] = ()
    authorship: tuple[Authorship, ...] = ()
    metrics: tuple[MetricResult, ...] = ()
    accuracy: dict[str, float] = field(default_factory=dict)
    judged_by: str = ""
    """whose check passed or refused it: the framework's, or the target's own with its digest"""
    audits: tuple[AuditResult, ...] = ()
    """of the running server; what could not be held is in `not_run`"""
    selection: Selection | None = None
    """None where the search measured nothing, or under a fake clock"""
    candidates_tried: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    """tokens, usd, wall_s, device_s"""
    digests: dict[str, str] = field(default_factory=dict)
    """spec, plan, weights, framework, skills ...; packaging adds runtime, golden and checkpoints"""
    provenance: dict[str, Any] = field(default_factory=dict)
    """the predicate of SLSA provenance v1 (`artifact.provenance.slsa_predicate`)"""
    rounds: tuple[RoundEntry, ...] = ()
    environment: Environment | None = None
    """the machine while the winner was certified"""
    calibration: Calibration | None = None
    """of the search's forecasts; None where nothing was measured, or under a fake clock"""
    interventions: tuple[Intervention, ...] = ()
    """of people, in order"""
    schema_version: int = 1

    @property
    def heading(self) -> str:
        """`synthesised` where an agent or a person wrote code of it, else `assembled`."""
        written = any(share.origin.startswith(("agent:", "human")) and share.lines > 0 for share in self.authorship)
        return "synthesised" if written else "assembled"

    def headline(self) -> MetricResult | None:
        """The headline metric, None where nothing was measured."""
        return next((metric for metric in self.metrics if metric.role is Role.HEADLINE), None)


@dataclass(frozen=True, kw_only=True)
class VerifyResult:
    """What a re-verification measured on a packaged runtime (`certification.reverify`)."""

    level: str
    """accuracy, performance or full: what was really run"""
    reasons: tuple[Refusal, ...] = ()
    accuracy: dict[str, float] = field(default_factory=dict)
    metrics: tuple[MetricResult, ...] = ()
    """re-measured, same shape as the manifest's; empty below level performance"""
    not_run: tuple[str, ...] = ()
    sandbox_tier: str = ""
    judged_by: str = ""
    usage: dict[str, float] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    """every check that ran, by name"""
    against: tuple[str, ...] = ()
    """what it was measured beside, in words; empty below level performance"""
    recorded: tuple[MetricResult, ...] = ()
    """claims that were measured again and are not among the manifest's metrics: the search's, against a predecessor"""
    seeds: dict[str, int] = field(default_factory=dict)
    """drawn for this re-verification, by load and start"""
    built: tuple[str, ...] = ()
    """what the build step left here; an artifact ships none of it"""
    environment: Environment | None = None
    audits: tuple[AuditResult, ...] = ()
    schema_version: int = 1
