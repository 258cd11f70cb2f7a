"""Markdown of a verification: for a CI's step summary, and for whoever reads it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.artifact.checks import Check, checks_of
from vibeserve.core.nouns import Role
from vibeserve.errors import VibeServeError
from vibeserve.report.markdown import cell, code, known, share
from vibeserve.report.page import interval_text

if TYPE_CHECKING:
    from vibeserve.artifact.verification import Verification


def summary_text(done: Verification, *, command: str) -> str:
    """Verdict, every check, what was measured beside what, on which machine, and the command that did it."""
    again = f"Again: `{code(command)}`"
    return "\n".join([*_head(done), *_table(done), *_rows(done), *_measured(done), again]) + "\n"


def error_summary(error: VibeServeError, *, command: str) -> str:
    """That nothing was judged, and why."""
    lines = "\n".join(f"> {line}" for line in str(error).splitlines())
    return f"## vibeserve verify: not judged (exit {error.exit_code})\n\n{lines}\n\n`{code(command)}`\n"


def _head(done: Verification) -> Iterator[str]:
    name = f" {done.manifest.target} `{done.manifest.plan_id}`" if done.manifest else ""
    yield f"## vibeserve verify: {done.status}{name} (exit {done.exit_code})"
    yield ""
    yield cell(done.line)
    yield ""


def _table(done: Verification) -> Iterator[str]:
    yield "| level | check | result | |"
    yield "|---|---|---|---|"
    for check in checks_of(done):
        yield f"| {check.level} | {cell(check.name)} | {check.state.value} | {cell(_note(check))} |"
    yield ""


def _note(check: Check) -> str:
    return "; ".join(reason.feedback for reason in check.reasons) or check.note


def _rows(done: Verification) -> Iterator[str]:
    """The headline as it was measured now, whatever was claimed of it."""
    result = done.result
    for metric in result.metrics if result is not None else ():
        if metric.role is not Role.HEADLINE:
            continue
        for base in metric.baselines:
            yield (
                f"{metric.name} at {metric.load}: {metric.candidate:.4g} {metric.unit}; {cell(base.name)} "
                f"{cell(base.version)}: {known(base.value)}, ratio {cell(interval_text(base))}."
            )
        yield ""


def _measured(done: Verification) -> Iterator[str]:
    result = done.result
    if result is None:
        return
    if result.against:
        yield f"Measured beside, in turns: {cell('; '.join(result.against))}."
    if result.seeds:
        yield f"Fresh seeds: {', '.join(f'{name} {seed}' for name, seed in result.seeds.items())}."
    if result.built:
        yield f"Built here: {', '.join(f'`{name}`' for name in result.built)}."
    if result.not_run:
        yield f"Not run: {cell('; '.join(result.not_run))}."
    seen = result.environment
    if seen is not None:
        yield (
            f"Machine: {cell(seen.cpu_model)}, cores {seen.engine_cpus} serve, {seen.client_cpus} ask; {seen.kernel}; "
            f"steal {share(seen.steal_share)}, waiting for a core {share(seen.cpu_pressure)}; "
            f"sandbox tier {seen.sandbox_tier}."
        )
    yield ""
