"""The component that spreads a model over processes, and how a layout reaches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vibeserve.skills.card import Value
from vibeserve.skills.loader import Skill
from vibeserve.skills.resolve import resolve

COMPONENT = "tensor-parallel"
PARAMETER = "tensor_parallel_size"


def rank_components(values: Mapping[str, Value], skills: Sequence[Skill]) -> tuple[Skill, ...]:
    """What a scaffold needs for the number of ranks in `values`; nothing for one."""
    return resolve([COMPONENT], skills) if int(values.get(PARAMETER, 1)) > 1 else ()
