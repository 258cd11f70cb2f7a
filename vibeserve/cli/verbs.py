"""The verbs as an invoke collection: `invoke plan -- smollm2_cpu --json` is `vibeserve plan smollm2_cpu --json`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.tasks import Task

from vibeserve.cli.main import main
from vibeserve.cli.table import VERBS

if TYPE_CHECKING:
    from invoke.context import Context


def make_collection() -> Collection:
    """One task per verb; its arguments are what follows `--` on invoke's command line."""
    collection = Collection()
    for name, _, summary in VERBS:
        collection.add_task(_task(name, summary))
    return collection


def _task(name: str, summary: str) -> Task:  # type: ignore[type-arg]
    def body(context: Context) -> None:
        code = main([name, *shlex.split(context.remainder)])
        if code:
            raise Exit(code=code)

    body.__doc__ = f"{summary[0].upper()}{summary[1:]}."
    return Task(body, name=name)


namespace = make_collection()
