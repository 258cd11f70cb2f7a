"""`python -m vibeserve.sweeps.job FOLDER PARENT`: the process of one job. A child program, started by `supervise`.

It reads `job.json`, writes its events to `events.jsonl` and, however it ends by itself, `result.json`. Without a
result the process was killed or has a bug.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from vibeserve.core.children import die_with_parent
from vibeserve.core.documents import read_document, write_document
from vibeserve.core.signals import terminable
from vibeserve.errors import VibeServeError
from vibeserve.progress import JsonProgress
from vibeserve.sweeps.documents import EVENTS, INTERRUPTED, JOB, RESULT, JobDocument, JobResult


def main(folder: Path) -> int:
    """Exit code of the job."""
    overrides = read_document(folder / JOB, JobDocument).overrides
    with (folder / EVENTS).open("a", encoding="utf-8") as events:
        try:
            result = run(overrides, progress=JsonProgress(events))
        except KeyboardInterrupt:
            return INTERRUPTED
    write_document(folder / RESULT, result)
    return result.exit_code


def run(overrides: tuple[str, ...], *, progress: JsonProgress) -> JobResult:
    """Report the finished run of the very plan, or carry it out. Errors are part of the result."""
    from vibeserve.build.target import artifact_of, is_packaged, report_run, run_target
    from vibeserve.config import compose_spec
    from vibeserve.config.targets import project_root, words_beside_target
    from vibeserve.hardware import probe
    from vibeserve.lease import await_run
    from vibeserve.plan.unmeasured import compile_unmeasured

    project = project_root()
    try:
        spec = compose_spec(overrides)
        plan = compile_unmeasured(spec, facts=probe())
    except VibeServeError as error:
        return JobResult(exit_code=error.exit_code, text=str(error))
    is_present = is_packaged(plan, project=project)
    code, text = 0, ""
    try:
        if is_present:
            report_run(plan, spec=spec, project=project)
        else:
            run_target(spec, progress=progress, hold=await_run, overrides=words_beside_target(overrides))
    except VibeServeError as error:
        code, text = error.exit_code, str(error)
    artifact = artifact_of(plan, project=project)
    return JobResult(
        exit_code=code, text=text, plan_id=plan.plan_id, is_present=is_present,
        artifact=os.path.relpath(artifact, project) if (artifact / "manifest.json").is_file() else "",
    )  # fmt: skip


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    with terminable():
        sys.exit(main(Path(sys.argv[1])))
