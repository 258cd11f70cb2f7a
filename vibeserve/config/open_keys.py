"""Overrides below keys that name entries of their own, such as `search.pins.max_num_seqs=16`.

Hydra wants a plus before a key that no file has, and refuses one before a key that some file has. Whoever types an
override cannot know which, so both are the same here.
"""

from __future__ import annotations

from collections.abc import Sequence

OPEN_KEYS = ("search.pins", "model.source.config", "workload.options", "evaluation.tolerances.limits")
"""mappings of single values whose entries may be given on the command line"""
ENTRIES = ("baseline", "workload.loads", "goals")
"""mappings, and a list, whose entries have keys of their own: the entries are declared in files"""
MAPPINGS = (*ENTRIES, *OPEN_KEYS)
"""keys below which a target names entries of its own"""


def mapping_of(key: str, mappings: Sequence[str] = MAPPINGS) -> str:
    """Which of `mappings` the dotted `key` is, or lies below; empty for none."""
    return next((each for each in mappings if key == each or key.startswith(f"{each}.")), "")


def opened(overrides: Sequence[str]) -> list[str]:
    """The overrides as Hydra accepts them."""
    return [_forced(override) for override in overrides]


def _forced(override: str) -> str:
    key, separator, value = override.partition("=")
    bare = key.lstrip("+")
    is_open = separator and (mapping_of(bare, OPEN_KEYS) or (key.startswith("+") and mapping_of(bare)))
    return f"++{bare}={value}" if is_open else override
