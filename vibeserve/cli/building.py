"""`vibeserve +target=NAME ...` and `vibeserve -m ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vibeserve.cli.output import write
from vibeserve.config import compose_spec
from vibeserve.config.compose import placing
from vibeserve.config.sweep import ask_hydra, is_question, is_sweep
from vibeserve.config.targets import words_beside_target
from vibeserve.config.words import unknown
from vibeserve.core.documents import to_data
from vibeserve.core.signals import finishing, terminable
from vibeserve.errors import SpecError
from vibeserve.progress import JsonProgress, LineProgress, LiveProgress, Progress

if TYPE_CHECKING:
    from vibeserve.spec import Spec

OWN_FLAGS: dict[str, list[str]] = {"--json": [], "--plain": [], "--require-goal": ["require_goal=true"]}
"""flags of a build and the overrides that they stand for"""
MULTIRUN_FLAGS = ("-m", "--multirun")


def main(argv: list[str]) -> int:
    """Build one target, or sweep over several."""
    arguments = [item for argument in argv for item in OWN_FLAGS.get(argument, [argument])]
    if is_question(arguments):
        return ask_hydra(arguments)
    flags = [argument for argument in arguments if argument.startswith("-") and argument not in MULTIRUN_FLAGS]
    if flags:
        problem = unknown("option", flags[0], [*OWN_FLAGS, "-m", "--help", "--version"])
        raise SpecError(problem, hint="vibeserve --help")
    is_json = "--json" in argv
    if is_sweep(arguments):
        from vibeserve.sweeps import run_sweep

        return run_sweep(arguments, is_json=is_json, say=_say)
    spec = compose_spec(arguments)
    with placing(arguments):
        return _build(spec, overrides=words_beside_target(arguments), is_json=is_json, is_plain="--plain" in argv)


def _build(spec: Spec, *, overrides: list[str], is_json: bool, is_plain: bool = False) -> int:
    """Run the target; text mode prints `str(summary)`, JSON mode the summary as the last line."""
    from vibeserve.build import run_target

    with terminable(), finishing(), _progress(is_json=is_json, is_plain=is_plain) as progress:
        summary = run_target(spec, progress=progress, overrides=overrides)
    write(json.dumps(to_data(summary)) if is_json else str(summary))
    return 0


@contextmanager
def _progress(*, is_json: bool, is_plain: bool) -> Iterator[Progress]:
    """JSON lines, plain lines, or on a terminal the lines above a view of the run."""
    if is_json or is_plain or not sys.stdout.isatty():
        yield JsonProgress() if is_json else LineProgress()
        return
    from vibeserve.config.targets import project_root
    from vibeserve.status.live import own_run

    live = LiveProgress(view=own_run(project_root()))
    with live.shown():
        yield live


def _say(line: str) -> None:
    """A line at once: a sweep is watched through pipes and logs."""
    write(line)
    sys.stdout.flush()
