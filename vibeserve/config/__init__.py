"""From a target and overrides to a typed, complete, validated `Spec`. Hydra is used here and nowhere else.

Precedence, weakest first: `spec.py` defaults, group files, the target's body, `a.b=c` on the command line. A group
chosen on the command line (`budget=large`) beats the target's choice of that group, but not values in its body.
"""

from __future__ import annotations

from vibeserve.config.check import TargetCheck, check_file, check_target
from vibeserve.config.compose import compose_file, compose_spec, spec_from_config
from vibeserve.config.targets import TargetFile, find_target, list_targets

__all__ = [
    "TargetCheck",
    "TargetFile",
    "check_file",
    "check_target",
    "compose_file",
    "compose_spec",
    "find_target",
    "list_targets",
    "spec_from_config",
]
