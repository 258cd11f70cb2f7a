"""Reference scores of served tokens, and the tolerances of the accuracy gate over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from vibeserve.core.nouns import Refusal
from vibeserve.spec import Tolerances

GATE = "accuracy"
MIN_FIRST_TOKENS = 4
"""fewer far-off first tokens than this say nothing about first tokens in particular"""
MAX_LATER_SHARE = 0.05
"""of later tokens far off: with more of them the numerics are wrong throughout (per-tensor int8: 0.10)"""


@dataclass(frozen=True, kw_only=True)
class ReplyScores:
    """One reply, teacher-forced under the f32 reference on its served ids; one entry per served token throughout."""

    request_id: str
    margins: tuple[float, ...]
    """log-probability of the reference's best token minus that of the served one, nats; 0 where they agree"""
    logprobs: tuple[float, ...]
    """reference log-probability of the served token, nats"""
    served_logprobs: tuple[float, ...] = ()
    """what the server said, where the request asked for it"""
    asked_logprobs: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.margins)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Document: the answer of one re-scoring. `unscored` names replies without anything to score, with the reason."""

    replies: tuple[ReplyScores, ...] = ()
    unscored: dict[str, str] = field(default_factory=dict)
    num_offered: int = 0
    """replies that the sample was drawn from"""
    wall_s: float = 0.0
    schema_version: int = 1

    @property
    def num_tokens(self) -> int:
        return sum(reply.num_tokens for reply in self.replies)


def accuracy_refusals(scores: Scores, *, tolerances: Tolerances) -> tuple[list[Refusal], dict[str, float]]:
    """Refusals and measured figures by `tolerances`; whatever is missing or not a number refuses.

    Figures: `top1_agreement` (share), `max_disagreement_margin`, `mean_margin` (nats), `logprob_mean`, `logprob_p99`
    (absolute difference, nats; p99 by nearest rank), and the counts `num_replies`, `num_tokens`, `num_disagreements`,
    `num_far_disagreements`, `num_logprobs`. A figure that could not be measured is absent. `tolerances.logprob_share`
    0 waives the log-probability checks (servers that cannot return them).
    """
    refusals = list(_missing(scores))
    figures: dict[str, float] = {"num_replies": len(scores.replies), "num_tokens": scores.num_tokens}
    if scores.num_tokens and not refusals:
        refusals += _margin_refusals(scores, tolerances=tolerances, figures=figures)
    if tolerances.logprob_share:
        refusals += _logprob_refusals(scores, tolerances=tolerances, figures=figures)
    return refusals, figures


def _missing(scores: Scores) -> Iterator[Refusal]:
    if not scores.num_tokens:
        yield _refusal("missing_scores", "no served token could be re-scored under the reference")
    if scores.unscored:
        reasons = sorted(set(scores.unscored.values()))
        yield _refusal(
            "missing_ids", f"{len(scores.unscored)} replies could not be re-scored: {'; '.join(reasons[:3])}"
        )
    bad = [reply for reply in scores.replies if not _is_well_formed(reply)]
    if bad:
        yield _refusal("missing_scores", f"{len(bad)} replies have scores that are missing or not numbers")


def _is_well_formed(reply: ReplyScores) -> bool:
    return len(reply.margins) == len(reply.logprobs) > 0 and all(map(math.isfinite, (*reply.margins, *reply.logprobs)))


def _margin_refusals(scores: Scores, *, tolerances: Tolerances, figures: dict[str, float]) -> list[Refusal]:
    margins = [margin for reply in scores.replies for margin in reply.margins]
    disagreements = [margin for margin in margins if margin > 0]
    top1 = 1 - len(disagreements) / len(margins)
    mean = sum(margins) / len(margins)
    worst = max(disagreements, default=0.0)
    figures |= {
        "top1_agreement": top1,
        "mean_margin": mean,
        "max_disagreement_margin": worst,
        "num_disagreements": len(disagreements),
    }
    texts = []
    if top1 < tolerances.top1_agreement_min:
        texts.append(f"top-1 agreement {top1:.4f}, at least {tolerances.top1_agreement_min} is required")
    limit = tolerances.disagreement_margin_max_nats
    num_far = sum(margin >= limit for margin in disagreements)
    figures["num_far_disagreements"] = num_far
    if num_far > _num_far_allowed(len(margins), tolerances=tolerances) or worst >= 2 * limit:
        where = f"{limit} nats or more below the reference's best"
        texts.append(f"{num_far} of {len(disagreements)} disagreements lie {where}, the worst {worst:.3f}")
    if mean > tolerances.mean_margin_max_nats:
        texts.append(f"mean margin {mean:.4f} nats, at most {tolerances.mean_margin_max_nats} is allowed")
    refusals = [_refusal("wrong_tokens", f"{text} ({len(margins)} tokens)") for text in texts]
    return refusals + list(_first_token_refusals(scores, tolerances=tolerances))


def _num_far_allowed(num_tokens: int, *, tolerances: Tolerances) -> int:
    """Honest bf16 reaches 0.25 nats about once in 10,000 tokens: a rule of none depends on the sample's size."""
    share = tolerances.far_disagreement_share_max
    return max(1, math.floor(share * num_tokens)) if share else 0


def _first_token_refusals(scores: Scores, *, tolerances: Tolerances) -> Iterator[Refusal]:
    """Wrong first tokens in otherwise right replies: they were sent before anything was computed."""
    limit = tolerances.disagreement_margin_max_nats
    first = [reply.margins[0] >= limit for reply in scores.replies if reply.num_tokens > 1]
    later = [margin >= limit for reply in scores.replies for margin in reply.margins[1:]]
    num_far = sum(first)
    is_rest_right = sum(later) <= MAX_LATER_SHARE * len(later)
    if num_far >= MIN_FIRST_TOKENS and num_far > len(first) / 2 and is_rest_right:
        yield _refusal(
            "fake_first_token",
            f"{num_far} of {len(first)} first tokens are far from the reference's best, later ones are not",
        )


def _logprob_refusals(scores: Scores, *, tolerances: Tolerances, figures: dict[str, float]) -> Iterator[Refusal]:
    asked = [reply for reply in scores.replies if reply.asked_logprobs]
    lacking = [reply for reply in asked if len(reply.served_logprobs) != reply.num_tokens]
    compared = [reply for reply in asked if len(reply.served_logprobs) == reply.num_tokens]
    pairs = [pair for reply in compared for pair in zip(reply.served_logprobs, reply.logprobs, strict=True)]
    figures["num_logprobs"] = len(pairs)
    if lacking or not pairs:
        yield _refusal(
            "missing_logprobs",
            f"{len(lacking)} of {len(asked)} replies that asked for log-probabilities lack them for some tokens",
        )
        return
    if not all(math.isfinite(served) for served, _ in pairs):
        yield _refusal("wrong_logprobs", "some served log-probabilities are not numbers")
        return
    differences = sorted(abs(served - reference) for served, reference in pairs)
    mean = sum(differences) / len(differences)
    p99 = nearest_rank(differences, share=0.99)
    figures |= {"logprob_mean": mean, "logprob_p99": p99}
    for name, value, limit in (("mean", mean, tolerances.logprob_mean_max), ("p99", p99, tolerances.logprob_p99_max)):
        if value > limit:
            found = f"{name} difference from the reference's {value:.4f} nats, at most {limit} is allowed"
            yield _refusal("wrong_logprobs", f"served log-probabilities: {found} ({len(differences)} tokens)")


def nearest_rank(ordered: Sequence[float], *, share: float) -> float:
    """Percentile of ascending values by nearest rank: the smallest value that `share` of them do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _refusal(reason_class: str, text: str) -> Refusal:
    return Refusal(gate=GATE, reason_class=reason_class, text=text)


def merge(parts: Iterable[Scores]) -> Scores:
    """One `Scores` of several, for evidence that was re-scored in pieces."""
    listed = list(parts)
    return Scores(
        replies=tuple(reply for part in listed for reply in part.replies),
        unscored={name: reason for part in listed for name, reason in part.unscored.items()},
        num_offered=sum(part.num_offered for part in listed),
        wall_s=sum(part.wall_s for part in listed),
    )
