"""The invoke collection: the same words on a laptop and in CI, and the verbs of the `vibeserve` command."""

from __future__ import annotations

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import task

from vibeserve.cli.verbs import namespace as verbs


@task
def lint(context: Context) -> None:
    """Ruff over the whole tree."""
    context.run("ruff check .", pty=False)


@task
def typecheck(context: Context) -> None:
    """Mypy, strict."""
    context.run("mypy", pty=False)


@task
def test(context: Context) -> None:
    """The default suite, then the tests that start real servers or load the real model."""
    context.run("python -m pytest -q", pty=False)
    context.run("python -m pytest -q -m slow", pty=False)


@task(help={"target": "target to compile, such as tiny_cpu"})
def build(context: Context, target: str) -> None:
    """Run the plan of one target: weights, reference, baselines, synthesize, certify, package."""
    context.run(f"vibeserve +target={target}", pty=False)


namespace = Collection(lint, typecheck, test, build)
for name, verb in verbs.tasks.items():
    namespace.add_task(verb, name=name)
