"""The plan as a build graph: steps with declared inputs, run through invoke, cached by content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vibeserve.build.graph import Step, StepContext, StepOutcome, StepResult, StepState
from vibeserve.build.run import execute

if TYPE_CHECKING:
    from vibeserve.build.target import RunSummary
    from vibeserve.progress import Progress
    from vibeserve.spec import Spec

__all__ = ["Step", "StepContext", "StepOutcome", "StepResult", "StepState", "execute", "run_target"]


def run_target(spec: Spec, *, progress: Progress, overrides: Sequence[str] | None = None) -> RunSummary:
    """See `vibeserve.build.target.run_target`; imported when it is called."""
    from vibeserve.build import target

    return target.run_target(spec, progress=progress, overrides=overrides)
