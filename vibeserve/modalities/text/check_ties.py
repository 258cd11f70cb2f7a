"""Near ties: a served token that is not the reference's best, though only just, is honest rounding or a choice.

Rounding decides a tie one way or the other, by as much as the server's numbers differ from the reference's. How much
that is, its own log-probabilities say. A server that takes the second best token wherever the tolerance lets it, and
says log-probabilities of fine arithmetic, flips more ties than such arithmetic can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vibeserve.contract import Distance, Finding, ReplyDistances
from vibeserve.core.nouns import Reply
from vibeserve.modalities.binomial import poisson_quantile

TIE_GAP = "tie_gap"
"""per token: log-probability of the reference's best token minus that of its second best, nats"""
FLIP = "flip"
"""per token: 1 where another one than the reference's best was served, the first time of this token in its reply: text
that goes in circles meets the same tie again"""
GAP_NOISE = "gap_noise"
"""per token with a log-probability: by how much the server's gap between two tokens is off the reference's, as far as
one log-probability tells, nats"""
LEAST_SHARE, MOST_SHARE = 0.02, 0.9
"""probabilities of tokens whose log-probability tells of a gap: (1 - p) of the gap's noise is in it"""
MIN_NOISE_VALUES = 20
SAFETY = 2.0
"""noise is taken to be so many times as large: its tails are longer than the normal distribution's"""
FACTOR, SLACK = 1.5, 1.0
"""over the flips that are expected"""
CONFIDENCE = 0.9999
"""that a server which flips no more than factor and slack allow in the mean is not refused for one sample"""


def tie_distances(
    reply: Reply, *, margins: Sequence[float], gaps: Sequence[float], logprobs: Sequence[float]
) -> list[Distance]:
    """The three distances of one scored reply; none where the reference has no gaps. `margins`, `gaps`, `logprobs` are
    the reference's, one per served id."""
    if not gaps or len(gaps) != len(margins):
        return []
    seen: set[int] = set()
    flips = []
    for token, margin in zip(reply.token_ids, margins, strict=False):
        flips.append(float(margin > 0 and token not in seen))
        if margin > 0:
            seen.add(token)
    found = [Distance(name=TIE_GAP, values=tuple(gaps), unit="nats"), Distance(name=FLIP, values=tuple(flips))]
    served = reply.token_logprobs if reply.request.logprobs else ()
    noise = tuple(_gap_noise(served, logprobs)) if len(served) == len(logprobs) else ()
    return [*found, Distance(name=GAP_NOISE, values=noise, unit="nats")] if noise else found


def _gap_noise(served: Sequence[float], logprobs: Sequence[float]) -> Iterator[float]:
    for ours, theirs in zip(served, logprobs, strict=True):
        share = math.exp(min(0.0, theirs))
        if LEAST_SHARE <= share <= MOST_SHARE and math.isfinite(ours):
            yield abs(ours - theirs) / (1 - share)


def tie_findings(replies: Sequence[ReplyDistances], *, figures: dict[str, float]) -> Iterator[Finding]:
    """More flips among replies without log-probabilities than the noise of those with them explains."""
    noise = [value for reply in replies for value in reply.values(GAP_NOISE)]
    if len(noise) < MIN_NOISE_VALUES:
        return
    scale = SAFETY * math.sqrt(sum(value * value for value in noise) / len(noise))
    plain = [reply for reply in replies if not reply.values(GAP_NOISE)]
    gaps = [gap for reply in plain for gap in reply.values(TIE_GAP)]
    num_flips = round(sum(value for reply in plain for value in reply.values(FLIP)))
    expected = sum(flip_probability(gap, scale=scale) for gap in gaps)
    num_allowed = poisson_quantile(FACTOR * expected + SLACK, confidence=CONFIDENCE)
    figures |= {"num_flips": num_flips, "num_flips_expected": expected}
    if num_flips > num_allowed:
        text = f"{num_flips} tokens without log-probabilities are second best, at most {num_allowed} are allowed: the "
        text += f"log-probabilities of other replies are so near the reference's that rounding explains {expected:.1f}"
        yield Finding(reason_class="spent_tolerance", text=f"{text} ({len(gaps)} tokens)")


def flip_probability(gap: float, *, scale: float) -> float:
    """That noise of this standard deviation turns a gap around; at most one half, whatever the noise."""
    return 0.5 * math.erfc(gap / (scale * math.sqrt(2))) if scale > 0 else 0.0
