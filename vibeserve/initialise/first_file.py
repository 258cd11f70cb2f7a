"""`vibeserve init NAME`: a target that selects options of groups, as one commented file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vibeserve.initialise.answers import Answers, parse_goal
from vibeserve.initialise.render import render
from vibeserve.initialise.staging import (
    SCHEMA_FILE,
    Written,
    refuse_existing,
    write_surroundings,
    write_target_file,
    written,
)


def init_file(name: str, answers: Answers, *, goals: Sequence[str], root: Path) -> Written:
    """Write `targets/NAME.yaml`. SpecError (exit 2) for what exists already or would not be valid.

    `goals` in the form of `answers.parse_goal`; the first one is the headline.
    """
    refuse_existing(name, root=root)
    text = render(
        "target.yaml.j2", schema=SCHEMA_FILE, name=name, model=answers.model, hardware=answers.hardware,
        workload=answers.workload, budget=answers.budget, goals=[parse_goal(goal).line() for goal in goals],
    )  # fmt: skip
    place = write_target_file(name, text, root=root)
    others, notes = write_surroundings(root)
    return written(name, [place, *others], root=root, notes=notes)
