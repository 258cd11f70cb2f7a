"""The fault study: planted faults and admissible precisions through the very gate that judges servers.

For every plant some requests are served, re-scored under the reference, and put together to many *trials*, each with as
many replies as one judgement in search sees. A trial is judged by `refusals_of`, as records of a server are, under the
shipped tolerances and under milder and stricter ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.judging import refusals_of
from vibeserve.accuracy.roc import RocPoint, auc, critical_factor, roc_points, share_refused, upper_bound
from vibeserve.accuracy.scoring import judged
from vibeserve.contract import ReplyDistances
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import Refusal
from vibeserve.modalities import Bundle, open_bundle
from vibeserve.spec import Tolerances

MAX_RULES = 4
"""rules that a row names"""


@dataclass(frozen=True, kw_only=True)
class Served:
    """What one plant served: distances of all its replies, each with log-probabilities."""

    name: str
    family: str
    is_wrong: bool
    strength: str
    replies: tuple[ReplyDistances, ...]
    component: dict[str, float] = field(default_factory=dict)
    """of the whole distributions on fixed text, where the plant has them (`distributions.py`)"""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One plant under the gate."""

    name: str
    family: str
    is_wrong: bool
    strength: str
    num_tokens: int
    refused: float
    """share of trials that the shipped tolerances refuse: detection of a fault, false refusal of an honest one"""
    critical_median: float
    """median of the critical factors: how many times the shipped tolerances would have to be as mild to pass it"""
    auc: float | None
    """against the honest trials, by critical factor; None for honest ones"""
    figures: dict[str, float]
    """of all replies together"""
    rules: dict[str, int]
    """class of refusal -> trials in which it was among the reasons, the most frequent first"""
    component: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SamplingRow:
    """One way of drawing tokens under the sampling tests of the probes."""

    name: str
    is_wrong: bool
    num_draws: int
    refused: float
    median_p: float


@dataclass(frozen=True, kw_only=True)
class Study:
    """Document: what `bench-accuracy` measured."""

    target: str
    seed: int
    num_replies: int
    num_tokens: int
    """of one reply"""
    trial_replies: int
    num_trials: int
    tolerances: dict[str, float]
    rows: tuple[Row, ...]
    roc: tuple[RocPoint, ...]
    """all faults against all honest plants, each plant with the same weight"""
    auc: float | None
    false_refusals_upper: float
    """95% upper bound of the share of honest trials that are refused, as if they were independent"""
    rule_auc: dict[str, float | None]
    """AUC of single figures, weak faults against honest plants: what each would find alone"""
    sampling: tuple[SamplingRow, ...] = ()
    sampling_seconds: float = 0.0
    wall_s: float = 0.0
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class Design:
    """How many trials of how many replies, and how many of these carry log-probabilities."""

    trial_replies: int
    num_trials: int
    logprob_distance: str = "logprob_difference"
    """distances that only one reply in `logprob_share` has in a trial"""
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One plant's trials."""

    served: Served
    critical: tuple[float, ...]
    figures: tuple[dict[str, float], ...]
    refusals: tuple[tuple[Refusal, ...], ...]


def make_study(
    bundle: Bundle, served: Sequence[Served], *, target: str, design: Design, num_tokens: int,
    sampling: Sequence[SamplingRow] = (),
) -> Study:  # fmt: skip
    """Judge every plant's trials and put the tables together."""
    gate = Gate(bundle)
    plants = [_judge(each, gate=gate, design=design) for each in served]
    honest = [value for plant in plants if not plant.served.is_wrong for value in plant.critical]
    faulty = [value for plant in plants if plant.served.is_wrong for value in plant.critical]
    return Study(
        target=target, seed=design.seed, num_replies=max(len(each.replies) for each in served), num_tokens=num_tokens,
        trial_replies=design.trial_replies, num_trials=design.num_trials, tolerances=gate.shown,
        rows=tuple(_row(plant, gate=gate, honest=honest) for plant in plants),
        roc=roc_points(honest, faulty), auc=auc(honest, faulty),
        false_refusals_upper=upper_bound(sum(value > 1 for value in honest), len(honest)) if honest else 1.0,
        rule_auc=_rule_auc(plants), sampling=tuple(sampling),
    )  # fmt: skip


class Gate:
    """The accuracy gate of one bundle, at multiples of its tolerances."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._shipped = from_data(Tolerances, dict(bundle.ref.context.tolerances))
        self._at: dict[float, Bundle] = {}

    @property
    def shown(self) -> dict[str, float]:
        """The shipped tolerances by name, the bounds of single limits among them."""
        data = to_data(self._shipped)
        return {**{name: value for name, value in data.items() if name != "limits"}, **data["limits"]}

    @property
    def logprob_share(self) -> int:
        return self._shipped.logprob_share

    def judge(
        self, replies: Sequence[ReplyDistances], *, factor: float = 1.0
    ) -> tuple[list[Refusal], dict[str, float]]:
        """Refusals and figures of a trial: the functions that judge servers, with tolerances `factor` times as mild."""
        bundle = self._scaled(factor)
        scores = Scores(
            replies=tuple(replies), num_offered=len(replies), limits=bundle.limits, judgement=judged(bundle, replies)
        )
        return refusals_of(scores)

    def _scaled(self, factor: float) -> Bundle:
        if factor not in self._at:
            tolerances = scaled(self._shipped, factor=factor)
            context = replace(self._bundle.ref.context, tolerances=to_data(tolerances))
            self._at[factor] = open_bundle(replace(self._bundle.ref, context=context))
        return self._at[factor]


def scaled(tolerances: Tolerances, *, factor: float) -> Tolerances:
    """Every bound `factor` times as mild: bounds from above are multiplied, the distance of an agreement from 1 too."""
    if factor == 1.0:
        return tolerances
    fields = {
        name: getattr(tolerances, name) * factor
        for name in (
            "disagreement_margin_max_nats", "mean_margin_max_nats", "logprob_mean_max", "logprob_p99_max",
        )
    }  # fmt: skip
    agreement = max(0.0, 1.0 - (1.0 - tolerances.top1_agreement_min) * factor)
    limits = {key: bound * factor for key, bound in tolerances.limits.items()}
    return replace(tolerances, top1_agreement_min=agreement, limits=limits, **fields)


def draw_trial(
    replies: Sequence[ReplyDistances], *, num_replies: int, logprob_share: int, distance: str, generator: random.Random
) -> list[ReplyDistances]:
    """Replies drawn with replacement; one in `logprob_share` keeps its log-probabilities, one at least."""
    drawn = [generator.choice(replies) for _ in range(num_replies)]
    num_kept = max(1, num_replies // logprob_share) if logprob_share else 0
    return [
        *drawn[:num_kept],
        *(
            replace(reply, distances=tuple(each for each in reply.distances if each.name != distance))
            for reply in drawn[num_kept:]
        ),
    ]


def _judge(served: Served, *, gate: Gate, design: Design) -> _Judged:
    generator = random.Random(f"{design.seed}-{served.name}")
    critical, figures, refusals = [], [], []
    for _ in range(design.num_trials):
        trial = draw_trial(
            served.replies, num_replies=design.trial_replies, logprob_share=gate.logprob_share,
            distance=design.logprob_distance, generator=generator,
        )  # fmt: skip
        found, measured = gate.judge(trial)
        refusals.append(tuple(found))
        figures.append(measured)
        critical.append(critical_factor(_refuses(gate, trial)))
    return _Judged(served=served, critical=tuple(critical), figures=tuple(figures), refusals=tuple(refusals))


def _refuses(gate: Gate, trial: Sequence[ReplyDistances]) -> Callable[[float], bool]:
    return lambda factor: bool(gate.judge(trial, factor=factor)[0])


def _row(plant: _Judged, *, gate: Gate, honest: Sequence[float]) -> Row:
    served = plant.served
    _, figures = gate.judge(served.replies)
    rules = Counter(name for found in plant.refusals for name in sorted({rule_of(each) for each in found}))
    return Row(
        name=served.name, family=served.family, is_wrong=served.is_wrong, strength=served.strength,
        num_tokens=int(figures.get("num_tokens", 0)), refused=share_refused(plant.critical),
        critical_median=sorted(plant.critical)[len(plant.critical) // 2],
        auc=auc(honest, plant.critical) if served.is_wrong else None, figures=figures,
        rules=dict(rules.most_common(MAX_RULES)), component=served.component, seconds=served.seconds,
    )  # fmt: skip


def rule_of(refusal: Refusal) -> str:
    """A short name of the rule behind a refusal: the figure that its text begins with, else its class."""
    head = refusal.text.split(" is ")[0].split(" ")
    return head[0] if len(head) == 1 and "_" in head[0] else refusal.reason_class + _kind(refusal.text)


def _kind(text: str) -> str:
    for word, name in (("top-1", ":top1"), ("disagreements lie", ":far")):
        if word in text:
            return name
    return ""


def _rule_auc(plants: Sequence[_Judged]) -> dict[str, float | None]:
    """Of every figure that trials have; agreement is turned, so that larger is worse for all of them."""
    names = sorted(
        {name for plant in plants for trial in plant.figures for name in trial if not name.startswith("num_")}
    )
    found = {}
    for name in names:
        sign = -1.0 if "agreement" in name and "dis" not in name else 1.0
        values = {
            is_wrong: [
                sign * trial[name] for plant in plants if plant.served.is_wrong is is_wrong for trial in plant.figures
                if name in trial
            ]
            for is_wrong in (False, True)
        }  # fmt: skip
        found[name] = auc(values[False], values[True])
    return found
