"""What round 0 starts from. `scaffold` is the correct, slow runtime of the target's model."""

from __future__ import annotations

from vibeserve.seeds.port import Seed, get_seed, get_seeds
from vibeserve.seeds.scaffold import ScaffoldSeed, scaffold_settings

__all__ = ["ScaffoldSeed", "Seed", "get_seed", "get_seeds", "scaffold_settings"]
