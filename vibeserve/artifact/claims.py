"""Does a re-measured ratio bear out the certified one? Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from vibeserve.core.manifest import BaselineValue, MetricResult
from vibeserve.core.nouns import Refusal, Role

MAX_REGRESSION = 0.10
"""How far the re-measured median may lie below the claim, as a share"""


class ClaimState(Enum):
    HOLDS = "holds"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"
    NOT_COMPARABLE = "not_comparable"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One certified ratio and what came out when it was measured again."""

    metric: str
    load: str
    baseline: str
    precision: str
    certified_ci_low: float
    ratio: float
    ci_low: float
    ci_high: float
    state: ClaimState

    @property
    def text(self) -> str:
        measured = f"{self.ratio:.2f}x [{self.ci_low:.2f}, {self.ci_high:.2f}]"
        verb = "holds" if self.state is ClaimState.HOLDS else f"is {self.state.value}"
        claim = f"claim {self.certified_ci_low:.2f}x {verb}"
        return f"{self.metric} {self.load} against {self.baseline}: {measured}, {claim}"


def judge_ratio(
    certified_ci_low: float, *, ratio: float, ci_high: float, max_regression: float = MAX_REGRESSION
) -> ClaimState:
    """The claim is the certified lower bound.

    It holds when the re-measured interval reaches it and the re-measured median is at least `1 - max_regression` of
    it; it is refused when the whole interval lies below it. In between (a wide interval around a low median) nothing is
    shown, which does not count as holding.
    """
    if not ci_high >= certified_ci_low:
        return ClaimState.REFUSED
    is_near = ratio >= (1.0 - max_regression) * certified_ci_low
    return ClaimState.HOLDS if is_near else ClaimState.INCONCLUSIVE


def judge_claims(
    certified: Sequence[MetricResult], measured: Sequence[MetricResult], *, max_regression: float = MAX_REGRESSION
) -> list[Claim]:
    """Every certified ratio of a headline metric that was measured again, judged.

    Where a headline has competent baselines only those are claims: a ratio to a naive one is reported, never headlined.
    """
    again = {_key(metric, base): base for metric in measured for base in metric.baselines}
    claims: list[Claim] = []
    for metric in certified:
        if metric.role is not Role.HEADLINE:
            continue
        for base in metric.claims():
            key = _key(metric, base)
            now = again.get(key)
            if now is None or base.ci_low is None or now.ratio is None or now.ci_low is None or now.ci_high is None:
                continue
            state = judge_ratio(base.ci_low, ratio=now.ratio, ci_high=now.ci_high, max_regression=max_regression)
            claims.append(
                Claim(
                    metric=metric.name, load=metric.load, baseline=base.name, precision=base.precision,
                    certified_ci_low=base.ci_low, ratio=now.ratio, ci_low=now.ci_low, ci_high=now.ci_high, state=state,
                )
            )  # fmt: skip
    return claims


def overall(claims: Sequence[Claim]) -> ClaimState:
    """The worst of the claims; without any, nothing was shown."""
    states = {claim.state for claim in claims}
    if not states or (ClaimState.INCONCLUSIVE in states and ClaimState.REFUSED not in states):
        return ClaimState.INCONCLUSIVE
    return ClaimState.REFUSED if ClaimState.REFUSED in states else ClaimState.HOLDS


def claim_refusals(claims: Sequence[Claim]) -> list[Refusal]:
    """A typed reason for every claim that does not hold, and one where none could be judged."""
    if not claims:
        text = "no certified ratio of the headline metric was measured again: nothing bears out the claim"
        return [Refusal(gate="performance", reason_class="claim_not_measured", text=text)]
    classes = {ClaimState.REFUSED: "regression", ClaimState.INCONCLUSIVE: "claim_inconclusive"}
    return [
        Refusal(gate="performance", reason_class=classes[claim.state], text=claim.text)
        for claim in claims
        if claim.state in classes
    ]


def _key(metric: MetricResult, base: BaselineValue) -> tuple[str, str, str, str]:
    return metric.name, metric.load, base.name, base.precision
