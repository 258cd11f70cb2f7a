"""The steps as an invoke collection: `invoke --list` names them, `invoke STEP --target=X` brings one up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invoke.collection import Collection
    from invoke.context import Context
    from invoke.tasks import Task

RunStep = Callable[[str, str, list[str]], None]
"""(step, target, overrides): compile the target's plan and bring the step up to date, with all that it needs"""


def step_collection(steps: Mapping[str, str], *, run: RunStep) -> Collection:
    """One task per step; `steps` maps names to their one-line help, in the order of the graph.

    Each task takes `--target` and any number of `--override`. Dependencies are the executor's: `run` is called once.
    """
    from invoke.collection import Collection

    collection = Collection()
    for name, text in steps.items():
        collection.add_task(_task(name, text, run=run), name=name)
    return collection


def _task(name: str, text: str, *, run: RunStep) -> Task[Any]:
    from invoke.tasks import Task

    def body(context: Context, target: str, override: list[str]) -> None:
        run(name, target, list(override or []))

    body.__doc__ = text
    body.__name__ = name
    # invoke reads the command line from the signature; it wants plain defaults, not annotations
    parameters = [
        Parameter("context", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("target", Parameter.POSITIONAL_OR_KEYWORD),
        Parameter("override", Parameter.POSITIONAL_OR_KEYWORD, default=None),
    ]
    body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    helps = {"target": "target to compile, such as tiny_cpu", "override": "KEY=VALUE or GROUP=OPTION; repeatable"}
    return Task(body, name=name, iterable=["override"], help=helps)
