"""The invoke collection: the same words on a laptop and in CI, and the verbs of the `vibeserve` command."""

from __future__ import annotations

import shlex
import sys

from invoke.collection import Collection
from invoke.context import Context
from invoke.exceptions import Exit
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
    """The default suite, then the tests that start real servers or load the real model, on every core."""
    context.run("python -m pytest -q -n auto --dist loadfile", pty=False)
    # in the order of `tests/conftest.py`, the longest first
    context.run("python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder -m slow", pty=False)


@task(help={"target": "target to compile, such as tiny_cpu"})
def build(context: Context, target: str) -> None:
    """Run the plan of one target: weights, reference, baselines, synthesize, certify, package."""
    context.run(f"vibeserve +target={target}", pty=False)


@task(
    help={
        "json": "one JSON document instead of text",
        "noise": "file of noise that was measured before; default: what ships",
        "measure": "target whose scaffold the noise is measured on now",
        "save": "file that the noise is written to",
    }
)
def bench_decision(context: Context, json: bool = False, noise: str = "", measure: str = "", save: str = "") -> None:
    """Error rates of the decision on candidates, by simulation under measured noise."""
    from vibeserve.cli.boundary import within_boundary
    from vibeserve.decision_study import main

    words = {"--noise": noise, "--measure": measure, "--save": save}
    argv = [part for name, value in words.items() if value for part in (name, value)]
    code = within_boundary(main, [*argv, *(["--json"] if json else []), *shlex.split(context.remainder)])
    if code:
        raise Exit(code=code)


@task(help={"json": "one JSON document instead of a table", "table": "measured grid; default: what is checked in"})
def bench_search(context: Context, json: bool = False, table: str = "") -> None:
    """Greedy, beam and random at equal measurement budget, simulated. After `--`: more options, --help."""
    words = [*(["--table", table] if table else []), *(["--json"] if json else []), *shlex.split(context.remainder)]
    context.run(shlex.join([sys.executable, "-m", "benchmarks.search.replay", *words]), pty=False)


@task(help={"target": "whose assemblies are measured", "limit_s": "stop before so many seconds are over; 0 = never"})
def bench_grid(context: Context, target: str = "smollm2_cpu", limit_s: float = 0.0) -> None:
    """Measure every assembly of a target beside one control runtime; goes on where it stopped. After `--`: more."""
    words = ["--target", target, *(["--limit-s", str(limit_s)] if limit_s else []), *shlex.split(context.remainder)]
    context.run(shlex.join([sys.executable, "-m", "benchmarks.search.measure", *words]), pty=False)


@task(
    help={
        "target": "tiny_cpu (a minute) or smollm2_cpu (real weights, some minutes)",
        "json": "one JSON document instead of tables",
    }
)
def bench_accuracy(context: Context, target: str = "tiny_cpu", json: bool = False) -> None:
    """Planted faults through the accuracy gate: detection, false refusals, ROC. After `--`: more options, --help."""
    words = ["--target", target, *(["--json"] if json else []), *shlex.split(context.remainder)]
    context.run(shlex.join([sys.executable, "-m", "vibeserve.accuracy.bench", *words]), pty=False)


@task(help={"json": "one JSON document instead of text", "only": "clients, of openai,codex,claude"})
def agents_loopback(context: Context, json: bool = False, only: str = "") -> None:
    """Real clients of agents through whole rounds against a scripted model. After `--`: more options, --help."""
    from vibeserve.cli.boundary import within_boundary
    from vibeserve.loopback.command import main

    words = [*(["--only", only] if only else []), *(["--json"] if json else []), *shlex.split(context.remainder)]
    code = within_boundary(main, words)
    if code:
        raise Exit(code=code)


@task(help={"json": "one JSON document instead of text", "points": "so many of the kills (default: all)"})
def crash_loop(context: Context, json: bool = False, points: int = 0) -> None:
    """Kill a run around every append of its journal and start it again. After `--`: more options, --help."""
    from vibeserve.cli.boundary import within_boundary
    from vibeserve.crash_loop.command import main

    words = [f"--points={points}", *(["--json"] if json else []), *shlex.split(context.remainder)]
    code = within_boundary(main, words)
    if code:
        raise Exit(code=code)


@task(help={"json": "one JSON document instead of text", "run": "folder of a finished run in .vibeserve/runs"})
def bench_overhead(context: Context, json: bool = False, run: str = "") -> None:
    """What the framework itself costs a round, at 1 to 10,000 rounds of history. After `--`: more options, --help."""
    words = [*(["--json"] if json else []), *(["--run", run] if run else []), *shlex.split(context.remainder)]
    context.run(shlex.join([sys.executable, "-m", "benchmarks.overhead", *words]), pty=False)


@task(
    help={
        "json": "one JSON document instead of tables",
        "only": "cases, of A,B,C,D,E,F",
        "run": "first run what has no certified artifact yet: hours",
    }
)
def bench_cases(context: Context, json: bool = False, only: str = "", run: bool = False) -> None:
    """The case studies beside their peers, out of certified artifacts. After `--`: more options, --help."""
    words = [*(["--only", only] if only else []), *(["--run"] if run else []), *(["--json"] if json else [])]
    words += shlex.split(context.remainder)
    context.run(shlex.join([sys.executable, "-m", "benchmarks.cases", *words]), pty=False)


@task(
    help={
        "json": "one JSON document instead of text",
        "requests": "default 10,000",
        "components": "of the skills that are assembled; default: the scaffold alone",
        "artifact": "a packaged runtime in place of an assembly",
    }
)
def soak(
    context: Context, json: bool = False, requests: int = 0, components: str = "", artifact: str = ""
) -> None:
    """10,000 requests of every kind at one runtime: all answered, memory flat. After `--`: more options, --help."""
    given = {"--requests": str(requests or ""), "--components": components, "--artifact": artifact}
    words = [*(part for name, value in given.items() if value for part in (name, value)), *(["--json"] if json else [])]
    words += shlex.split(context.remainder)
    context.run(shlex.join([sys.executable, "-m", "benchmarks.soak", *words]), pty=False)


@task(help={"json": "one JSON document instead of a table", "only": "kinds, of local,ssh"})
def hosts_loopback(context: Context, json: bool = False, only: str = "") -> None:
    """The same runtime on this machine and behind a real sshd of loopback; the connection is cut once."""
    from vibeserve.cli.boundary import within_boundary
    from vibeserve.host_loopback.command import main

    words = [*(["--only", only] if only else []), *(["--json"] if json else []), *shlex.split(context.remainder)]
    code = within_boundary(main, words)
    if code:
        raise Exit(code=code)


CHORES = (
    lint, typecheck, test, build, bench_decision, bench_search, bench_grid, bench_accuracy, bench_overhead,
    bench_cases, agents_loopback, crash_loop, hosts_loopback, soak,
)  # fmt: skip
namespace = Collection(*CHORES)
for name, verb in verbs.tasks.items():
    namespace.add_task(verb, name=name)
