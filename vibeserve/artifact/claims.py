"""Does a re-measured ratio bear out the certified one? Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vibeserve.core.manifest import BaselineValue, MetricResult
from vibeserve.core.nouns import Refusal, Role

MAX_REGRESSION = 0.10
"""How far the re-measured median may lie below the certified one, as a share"""


class ClaimState(Enum):
    HOLDS = "holds"
    HOLDS_IN_PART = "holds_in_part"
    """what was measured again holds; a certified ratio was not measured again"""
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not_measured_again"
    NOT_COMPARABLE = "not_comparable"
    NOT_RUN = "not_run"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One certified ratio and what came out when it was measured again; None where it was not."""

    metric: str
    load: str
    baseline: str
    precision: str
    certified_ratio: float
    certified_ci_low: float
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    state: ClaimState = ClaimState.NOT_MEASURED

    @property
    def name(self) -> str:
        return f"{self.metric} {self.load} against {self.baseline}"

    @property
    def text(self) -> str:
        claim = f"claim {self.certified_ratio:.2f}x"
        if self.ratio is None or self.ci_low is None or self.ci_high is None:
            return f"{self.name}: {claim} not measured again"
        measured = f"{self.ratio:.2f}x [{self.ci_low:.2f}, {self.ci_high:.2f}]"
        if self.state is not ClaimState.HOLDS:
            return f"{self.name}: {measured}, {claim} is {self.state.value}"
        # said, though the share allows it: the certified interval was quoted, too
        below = (
            f", below its interval (from {self.certified_ci_low:.2f}x)" if self.ci_high < self.certified_ci_low else ""
        )
        return f"{self.name}: {measured}, {claim} holds{below}"


def judge_ratio(
    certified: float, *, ratio: float, ci_high: float, max_regression: float = MAX_REGRESSION
) -> ClaimState:
    """The claim is the certified median ratio, less `max_regression`; one above 1 is never less than 1.

    It holds when the re-measured median reaches that, and is refused when the whole re-measured interval lies below it.
    In between (a wide interval around a low median) nothing is shown, which does not count as holding. The certified
    interval has no say: by its lower end a noisy certification would claim less, and be easier to hold, than a quiet
    one of the same ratio.
    """
    least = (1.0 - max_regression) * certified
    if certified > 1.0:
        least = max(least, 1.0)
    if not ci_high >= least:
        return ClaimState.REFUSED
    return ClaimState.HOLDS if ratio >= least else ClaimState.INCONCLUSIVE


def judge_claims(
    certified: Sequence[MetricResult], measured: Sequence[MetricResult], *, max_regression: float = MAX_REGRESSION
) -> list[Claim]:
    """Every certified ratio of a headline metric, judged, or said not to have been measured again.

    Where a headline has competent baselines only those are claims: a ratio to a naive one is reported, never headlined.
    """
    again = {_key(metric, base): base for metric in measured for base in metric.baselines}
    claims: list[Claim] = []
    for metric in certified:
        if metric.role is not Role.HEADLINE:
            continue
        for base in metric.claims():
            if base.ratio is None or base.ci_low is None:
                continue
            claim = Claim(
                metric=metric.name, load=metric.load, baseline=base.name, precision=base.precision,
                certified_ratio=base.ratio, certified_ci_low=base.ci_low,
            )  # fmt: skip
            now = again.get(_key(metric, base))
            if now is not None and now.ratio is not None and now.ci_low is not None and now.ci_high is not None:
                state = judge_ratio(base.ratio, ratio=now.ratio, ci_high=now.ci_high, max_regression=max_regression)
                claim = replace(claim, ratio=now.ratio, ci_low=now.ci_low, ci_high=now.ci_high, state=state)
            claims.append(claim)
    return claims


def overall(claims: Sequence[Claim]) -> ClaimState:
    """The worst of the claims that were measured again; without any, nothing was shown."""
    states = {claim.state for claim in claims} - {ClaimState.NOT_MEASURED}
    if ClaimState.REFUSED in states:
        return ClaimState.REFUSED
    if not states or ClaimState.INCONCLUSIVE in states:
        return ClaimState.INCONCLUSIVE
    return ClaimState.HOLDS_IN_PART if not_measured(claims) else ClaimState.HOLDS


def not_measured(claims: Sequence[Claim]) -> list[str]:
    """Certified ratios that were not measured again, by name."""
    return [claim.name for claim in claims if claim.state is ClaimState.NOT_MEASURED]


def claim_refusals(claims: Sequence[Claim]) -> list[Refusal]:
    """A typed reason for every claim that does not hold, and one where none could be judged."""
    if len(not_measured(claims)) == len(claims):
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
