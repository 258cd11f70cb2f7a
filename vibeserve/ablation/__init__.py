"""What a skill is worth: the same target built with it and without it, by the product's own command.

Both runs measure their winner interleaved with the same baseline; the effect is the quotient of the two ratios, so that
a machine that drifts between the runs cancels out as far as the baseline drifts with it.
"""

from __future__ import annotations

from vibeserve.ablation.documents import Ablation, ArmRow, SkillRow
from vibeserve.ablation.effects import combined, effect_row

__all__ = ["Ablation", "ArmRow", "SkillRow", "combined", "effect_row"]
