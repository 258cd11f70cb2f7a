"""Frozen nouns that cross module borders. Times are seconds, memory is GiB, tokens are counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from vibeserve.contract import Direction, Metric, Record, Request, Role

__all__ = [
    "METRICS",
    "Activation",
    "ActivationState",
    "Candidate",
    "Chunk",
    "Decision",
    "Direction",
    "LoadPoint",
    "Metric",
    "Outcome",
    "PromptRequest",
    "Proposal",
    "RatioInterval",
    "Record",
    "Refusal",
    "RefusedAttempt",
    "Reply",
    "Request",
    "Role",
    "Round",
    "Usage",
    "Verdict",
]


class Outcome(Enum):
    BASELINE = "baseline"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    INFRA = "infra"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="output_throughput", unit="tok/s", direction=Direction.MAX),
        Metric(name="request_throughput", unit="req/s", direction=Direction.MAX),
        Metric(name="goodput", unit="req/s", direction=Direction.MAX),
        Metric(name="ttft_p50", unit="s", direction=Direction.MIN),
        Metric(name="ttft_p99", unit="s", direction=Direction.MIN),
        Metric(name="tpot_p50", unit="s", direction=Direction.MIN),
        Metric(name="tpot_p99", unit="s", direction=Direction.MIN),
        Metric(name="itl_p50", unit="s", direction=Direction.MIN),
        Metric(name="itl_p99", unit="s", direction=Direction.MIN),
        Metric(name="e2el_p50", unit="s", direction=Direction.MIN),
        Metric(name="e2el_p99", unit="s", direction=Direction.MIN),
        Metric(name="time_to_partial_p50", unit="s", direction=Direction.MIN),
        Metric(name="time_to_partial_p99", unit="s", direction=Direction.MIN),
        Metric(name="realtime_sessions", unit="sessions", direction=Direction.MAX),
        Metric(name="peak_memory", unit="GiB", direction=Direction.MIN),
        Metric(name="startup", unit="s", direction=Direction.MIN),
    )
}


@dataclass(frozen=True, kw_only=True)
class LoadPoint:
    """One declared load: closed loop at a concurrency (`c8`), Poisson arrivals at a rate (`r0.5`), or the requests' own
    arrivals at a speed (`x2`). Exactly one of the three is above 0."""

    name: str
    concurrency: int = 0
    """closed loop: requests in flight; 0 = open loop"""
    rate_per_s: float = 0.0
    """open loop: mean arrivals per second"""
    trace_speed: float = 0.0
    """open loop: `Request.arrival_s`, so many times as fast"""


@dataclass(frozen=True, kw_only=True)
class PromptRequest(Request):
    """One request for text. The prompt text encodes to exactly `num_prompt_tokens` under the model's tokenizer."""

    prompt: str
    num_prompt_tokens: int
    max_tokens: int
    """fixed output length: the reply has exactly so many tokens (EOS is ignored), unless `ignore_eos` is false"""
    ignore_eos: bool = True
    logprobs: int = 0
    """> 0: ask for the log-probabilities of so many top tokens"""
    stop: tuple[str, ...] = ()


class Chunk(NamedTuple):
    """One piece of a streamed reply: when it arrived (active seconds), its text and its ids if returned.

    A tuple, not a dataclass: the load generator makes and writes one for every token.
    """

    at_s: float
    text: str
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    accepted_prediction_tokens: int | None = None
    """None where the server says nothing of predictions"""
    rejected_prediction_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Reply(Record):
    """A record of streamed text: all that the client saw of one request."""

    request: PromptRequest
    chunks: tuple[Chunk, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    token_logprobs: tuple[float, ...] = ()
    """log-probability of each emitted token where `logprobs` was asked for"""

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for chunk in self.chunks for token in chunk.token_ids)

    @property
    def served(self) -> Any:
        """`token_ids`, `text` and `logprobs` as JSON data (None for what is no number); None where nothing came."""
        if not self.chunks:
            return None
        logprobs = [value if math.isfinite(value) else None for value in self.token_logprobs]
        return {"token_ids": list(self.token_ids), "text": self.text, "logprobs": logprobs}

    @classmethod
    def of_output(cls, request: PromptRequest, output: Any) -> Reply:
        """The finished reply of a server that sent `output`, as `served` gives it, in one piece."""
        ids = tuple(output["token_ids"])
        return cls(
            request=request, chunks=(Chunk(at_s=0.0, text=output["text"], token_ids=ids),), finish_reason="length",
            usage=Usage(prompt_tokens=request.num_prompt_tokens, completion_tokens=len(ids)),
            token_logprobs=tuple(math.nan if value is None else value for value in output["logprobs"]),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A typed reason why something was refused.

    `gate` is where (integrity, scan, build, start, probe, accuracy, lengths, usage, stream, baseline, decision ...),
    `reason_class` what (digest_mismatch, engine_import, reply_cache ...). `feedback` is what the next attempt may see:
    it never holds hidden prompts.
    """

    gate: str
    reason_class: str
    text: str
    file: str | None = None

    @property
    def feedback(self) -> str:
        return f"{self.gate}/{self.reason_class}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Pass or refuse, from measurements. An agent may add a refusal, never remove one."""

    refusals: tuple[Refusal, ...] = ()
    accuracy: dict[str, float] = field(default_factory=dict)
    """measured figures of the accuracy gate, by name"""
    checks: tuple[str, ...] = ()
    """every check that ran, by name; a check that did not run cannot pass"""

    @property
    def passed(self) -> bool:
        return not self.refusals and bool(self.checks)


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """One hypothesis of the outer loop."""

    proposal_id: str
    title: str
    hypothesis: str
    mechanism: str
    activation_evidence: str
    falsification: str
    forecast_ratio: float
    """expected headline ratio against the incumbent"""
    components: tuple[str, ...]
    """the whole component list of the proposed assembly, sorted by name"""
    parameters: dict[str, float | int | str | bool]
    skills: tuple[str, ...] = ()
    card: str = ""
    """the card that this proposal adds or tunes"""
    invariants: tuple[str, ...] = ()
    """what must stay true of the runtime"""
    variants: tuple[dict[str, float | int | str | bool], ...] = ()
    """tuning: parameter sets to halve successively before the best one is offered; empty = `parameters` alone"""
    what_changed: str = ""
    """against an abandoned idea that this one is like; empty = it is like none"""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A commit of the workspace offered for judgement."""

    candidate_id: str
    commit: str
    workspace: str
    origin: str
    """scaffold, component:<skill>, agent:<back end/model>, human"""


@dataclass(frozen=True, kw_only=True)
class RatioInterval:
    """Median of paired ratios (> 1 is better) with a bootstrap interval."""

    ratio: float
    ci_low: float
    ci_high: float
    num_pairs: int
    values: tuple[float, ...] = ()
    """per pair, in measured order"""


@dataclass(frozen=True, kw_only=True)
class Decision:
    accepted: bool
    reason: str
    headline: RatioInterval | None
    noise_floor: float
    """half-width of the 95% interval of the median A/A log-ratio at the same number of pairs"""


class ActivationState(Enum):
    SEEN = "seen"
    NOT_SEEN = "not seen"
    NOT_CHECKABLE = "not checkable"
    NOT_ACTIVATED = "not activated"
    """nothing of all that the proposal changed was seen: the round is not credited to its mechanism"""


@dataclass(frozen=True, kw_only=True)
class Activation:
    """Whether the framework's profiler saw the new path run: first by the names in `Proposal.activation_evidence`, then
    by everything that the proposal changed."""

    state: ActivationState
    text: str
    """what was looked for and found, or why it cannot be checked"""
    seen: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RefusedAttempt:
    """A refused candidate that another attempt of the same round followed."""

    proposal: Proposal
    candidate: Candidate | None
    outcome: Outcome
    reason: str
    verdict: Verdict | None = None
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round left: written to the journal whatever its outcome."""

    schema_version: int = 1
    number: int
    proposal: Proposal | None
    """None for round 0"""
    candidate: Candidate | None
    outcome: Outcome
    reason: str
    verdict: Verdict | None = None
    decision: Decision | None = None
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """contender (candidate, incumbent) -> metric -> median over its windows"""
    spans: dict[str, float] = field(default_factory=dict)
    """share of the requests' wall time by span, of the candidate where it ran"""
    attempts: int = 1
    refused_attempts: tuple[RefusedAttempt, ...] = ()
    """those before the last one, in order"""
    seconds: float = 0.0
    analysis: str = ""
    """what the evaluator's agent made of the measurements; it decides nothing"""
    remark: str = ""
    """what the judge's agent said of a candidate that it let pass"""
    activation: Activation | None = None
    """of a candidate that its windows would accept; None where nothing was profiled"""

    @property
    def is_unactivated(self) -> bool:
        """Nothing of what its proposal changed was seen to run: whatever was measured tests no hypothesis."""
        return self.activation is not None and self.activation.state is ActivationState.NOT_ACTIVATED

    @property
    def is_refused(self) -> bool:
        """A gate refused it; as opposed to measured and not better, or an infrastructure failure."""
        return self.verdict is not None and not self.verdict.passed
