"""`vibeserve +target=NAME ...` and `vibeserve -m ...`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.cli.boundary import error_document
from vibeserve.cli.output import write
from vibeserve.config import compose_spec, spec_from_config
from vibeserve.config.sweep import is_for_hydra, job_folder, refuse_wrong_jobs, run_hydra, sweep_folder
from vibeserve.config.words import unknown
from vibeserve.core.documents import to_data, write_document
from vibeserve.errors import SpecError, VibeServeError
from vibeserve.progress import make_progress

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from vibeserve.spec import Spec

OWN_FLAGS = {"--json": [], "--require-goal": ["require_goal=true"]}
"""flags of a build and the overrides that they stand for"""


def main(argv: list[str]) -> int:
    """Build one target, or hand a sweep to Hydra."""
    overrides = [item for argument in argv for item in OWN_FLAGS.get(argument, [argument])]
    is_json = "--json" in argv
    if is_for_hydra(overrides):
        return _sweep(overrides, is_json=is_json)
    flags = [override for override in overrides if override.startswith("-")]
    if flags:
        problem = unknown("option", flags[0], [*OWN_FLAGS, "-m", "--help", "--version"])
        raise SpecError(problem, hint="vibeserve --help")
    return _build(compose_spec(overrides), is_json=is_json)


def _build(spec: Spec, *, is_json: bool) -> int:
    """Run the target; text mode prints `str(summary)`, JSON mode the summary as the last line."""
    from vibeserve.build import run_target

    summary = run_target(spec, progress=make_progress(is_json=is_json))
    write(json.dumps(to_data(summary)) if is_json else str(summary))
    return 0


def _sweep(overrides: list[str], *, is_json: bool) -> int:
    """Every job is checked before the first one starts; the exit code is the worst of the jobs'."""
    folder = sweep_folder(Path.cwd())
    refuse_wrong_jobs(overrides)
    code = run_hydra(overrides, folder=folder, job=sweep_job)
    statuses = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/status.json"))]
    for status in statuses:
        write(json.dumps(status) if is_json else f"{status['target']}: {status['text']}")
    return max([code, *(int(status["exit_code"]) for status in statuses)])


def sweep_job(config: DictConfig) -> None:
    """One job of a sweep, in whatever process the launcher starts. A typed failure must not end the other jobs."""
    spec = spec_from_config(config)
    try:
        code, text = _build(spec, is_json=False), "done"
    except VibeServeError as error:
        code, text = error.exit_code, str(error_document(error)["error"]["message"])  # type: ignore[index]
    status = {"schema_version": 1, "target": spec.target.name, "exit_code": code, "text": text}
    write_document(job_folder() / "status.json", status)
