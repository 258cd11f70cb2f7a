"""Whole next-token distributions beside the reference's, where a component yields them: KL, NLL and agreement.

A served reply carries tokens; a component in process carries logits. On a fixed text, position by position:

    KL_t = sum_x p_ref(x) (log p_ref(x) - log p(x))        dNLL = mean_t (log p_ref(x_t) - log p(x_t))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.modalities.binomial import binomial_quantile

if TYPE_CHECKING:
    from torch import Tensor

SHORT_TEXT_CONFIDENCE = 0.999
NOISE_FACTOR = 4.0
"""between the noise of one admissible precision and a bound: kernels round differently, and texts differ"""


@dataclass(frozen=True, kw_only=True)
class DistributionLimits:
    """Bounds for a component on text of a real model; calibrated by `invoke bench-accuracy` (docs/accuracy.md)."""

    kl_mean_max: float = 5e-3
    """nats"""
    kl_p99_max: float = 3e-2
    top1_agreement_min: float = 0.97
    nll_difference_max: float = 0.02
    """absolute, nats per token"""


def limits_from_noise(noise: Mapping[str, float]) -> DistributionLimits:
    """Bounds for any model, random weights included, from what `compare_distributions` gives for an admissible
    precision of it: random weights are far less sure of themselves, so that bounds of real text find nothing there."""
    # the error of a mean over independent positions: in the noise itself it may cancel
    cancelled = (2 * noise["kl_mean"] / noise["num_positions"]) ** 0.5
    return DistributionLimits(
        kl_mean_max=NOISE_FACTOR * noise["kl_mean"], kl_p99_max=NOISE_FACTOR * noise["kl_p99"],
        top1_agreement_min=max(0.0, 1.0 - NOISE_FACTOR * (1.0 - noise["top1_agreement"])),
        nll_difference_max=NOISE_FACTOR * max(noise["nll_difference"], cancelled),
    )  # fmt: skip


def compare_distributions(reference: Tensor, logits: Tensor, next_ids: Sequence[int]) -> dict[str, float]:
    """Figures of `logits` [positions, vocabulary] beside the reference's; `next_ids` [positions] is the text that
    follows. A figure that is no finite number is infinite: it keeps no bound."""
    import torch

    right, other = reference.float().log_softmax(-1), logits.float().log_softmax(-1)
    kl = (right.exp() * (right - other)).sum(-1)
    ids = torch.tensor(list(next_ids), device=right.device)[:, None]
    nll = (right.gather(1, ids) - other.gather(1, ids)).mean()
    ordered = kl.nan_to_num(nan=torch.inf).sort().values
    return {
        "kl_mean": float(kl.nan_to_num(nan=torch.inf).mean()),
        "kl_p99": float(ordered[max(0, -(-99 * len(ordered) // 100) - 1)]),
        "top1_agreement": float((right.argmax(-1) == other.argmax(-1)).float().mean()),
        "nll_difference": float(nll.nan_to_num(nan=torch.inf).abs()),
        "num_positions": float(len(ordered)),
    }


def distribution_problems(figures: Mapping[str, float], *, limits: DistributionLimits) -> Iterator[str]:
    """One text for every bound that is not kept; a figure that is absent, or no number, keeps none."""
    bounds = {
        "kl_mean": limits.kl_mean_max, "kl_p99": limits.kl_p99_max, "nll_difference": limits.nll_difference_max,
    }  # fmt: skip
    for name, bound in bounds.items():
        value = figures.get(name, float("nan"))
        if not value <= bound:
            yield f"{name} is {value:.3g}, at most {bound:.3g} is allowed"
    agreement, num_positions = (figures.get(name, float("nan")) for name in ("top1_agreement", "num_positions"))
    required = _agreement_required(limits.top1_agreement_min, num_positions)
    if not agreement >= required:
        yield f"top1_agreement is {agreement:.4f}, at least {required:.4f} is required of {num_positions:.0f} positions"


def _agreement_required(least: float, num_positions: float) -> float:
    """What an agreement of `least` in the long run still reaches on so few positions: a share of a short text is coarse
    (bf16 has 0.979 in the long run and had 0.969 of 254 positions)."""
    if not num_positions >= 1:
        return 1.0
    allowed = binomial_quantile(int(num_positions), 1.0 - least, confidence=SHORT_TEXT_CONFIDENCE)
    return 1.0 - allowed / num_positions
