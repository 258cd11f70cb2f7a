"""`vibeserve -m ...`: check every job, launch what is not there yet, show how it goes, sum it up.

This process launches nothing itself and holds no pool: it watches a launching process and the jobs' documents, so that
an interrupt always finds it awake. Started again, a sweep finds finished runs by their plans and goes on with the rest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from vibeserve.config.sweep import SWEEP_FLAGS, check_launch, refuse_wrong_jobs, runs_here
from vibeserve.config.targets import project_root
from vibeserve.core.documents import canonical_json, to_data, write_document
from vibeserve.errors import InfraError, SpecError, VibeServeError
from vibeserve.sandbox import tree
from vibeserve.sweeps.documents import (
    INTERRUPTED,
    SUMMARY,
    SWEEP,
    JobState,
    JobStatus,
    SweepDocument,
    ask_to_stop,
    new_sweep_folder,
    statuses,
    target_of,
    write_status,
)
from vibeserve.sweeps.follow import Follower, event_line
from vibeserve.sweeps.summary import Row, SweepSummary, make_rows, table
from vibeserve.sweeps.supervise import GRACE_S, recorded_environment

if TYPE_CHECKING:
    from vibeserve.plan import Plan
    from vibeserve.spec import Spec

JOB_ARGV = (sys.executable, "-m", "vibeserve.sweeps.job")
WARDEN_ARGV = (sys.executable, "-m", "vibeserve.sweeps.warden")
POLL_S = 0.3
LAUNCHER_GRACE_S = 15.0
"""for a launcher to end its pool"""
MARGIN_S = 5.0
TAIL_LINES = 15
Say = Callable[[str], None]
Job = tuple[tuple[str, ...], "Spec"]
"""overrides and spec"""


def run_sweep(overrides: Sequence[str], *, is_json: bool, say: Say, job_argv: Sequence[str] = JOB_ARGV) -> int:
    """Run the sweep that `overrides` describe in the project's root; the exit code is the worst of its jobs'.

    Raises SpecError, with nothing started, where a job or the launch is wrong. A stop (SIGINT, SIGTERM) ends every
    job's process tree and returns 130.
    """
    project = project_root()
    given = [override for override in overrides if override not in SWEEP_FLAGS]
    jobs = refuse_wrong_jobs(given)
    plans = _plans(jobs) if jobs and runs_here(given) else None
    folder = new_sweep_folder(project)
    try:
        check_launch(given, folder=folder)
    except SpecError:
        for empty in (folder, folder.parent, folder.parent.parent):
            with suppress(OSError):  # what is not empty is somebody else's
                empty.rmdir()
        raise
    sweep = SweepDocument(
        project=project, overrides=tuple(given), jobs=tuple(job for job, _ in jobs or ()), job_argv=tuple(job_argv),
        environment=recorded_environment(),
    )  # fmt: skip
    write_document(folder / SWEEP, sweep)
    missing = _mark_present(jobs, plans, folder=folder, project=project) if jobs and plans else None
    teller = Teller(say=say, is_json=is_json)
    teller.start(folder, num_jobs=len(jobs) if jobs else None, num_missing=missing)
    error, was_stopped = "", False
    if missing != 0:
        error, was_stopped = _launch(folder, teller)
    return _conclude(sweep, folder, teller, error=error, was_stopped=was_stopped)


def _plans(jobs: Sequence[Job]) -> list[Plan | None]:
    """The plan of every job on this machine; None where the machine is at fault, which the job itself will say.

    Raises SpecError with the faults of all jobs that cannot be planned.
    """
    from vibeserve.hardware import probe
    from vibeserve.plan.unmeasured import compile_unmeasured

    facts = probe()
    plans: list[Plan | None] = []
    problems: dict[str, None] = {}
    for overrides, spec in jobs:
        try:
            plans.append(compile_unmeasured(spec, facts=facts))
        except SpecError as error:
            problems[f"{' '.join(overrides)}: {'; '.join([str(error).splitlines()[0], *error.problems])}"] = None
        except InfraError:
            plans.append(None)
    if problems:
        raise SpecError("the sweep holds jobs that cannot run; none was started", problems=list(problems))
    return plans


def _mark_present(jobs: Sequence[Job], plans: Sequence[Plan | None], *, folder: Path, project: Path) -> int:
    """Leave the status of every job whose artifact is there already; returns how many are missing."""
    from vibeserve.build.target import artifact_of, is_packaged, report_run

    missing = 0
    for number, ((overrides, spec), plan) in enumerate(zip(jobs, plans, strict=True)):
        if plan is None or not is_packaged(plan, project=project):
            missing += 1
            continue
        code, text = 0, ""
        try:
            report_run(plan, spec=spec, project=project)
        except VibeServeError as error:
            code, text = error.exit_code, str(error)
        artifact = os.path.relpath(artifact_of(plan, project=project), project)
        status = JobStatus(
            job=number, target=target_of(overrides), overrides=overrides, state=JobState.PRESENT, exit_code=code,
            text=text, plan_id=plan.plan_id, artifact=artifact,
        )  # fmt: skip
        write_status(folder / str(number), status)
    return missing


def _launch(folder: Path, teller: Teller) -> tuple[str, bool]:
    """Run the warden and all below it to the end: (what it said when it failed, whether it was stopped)."""
    follower = Follower(folder, tell=teller.event)
    log = folder / "launcher.log"
    with log.open("wb") as output, _noticing_stops() as stops:
        launcher = subprocess.Popen(
            [*WARDEN_ARGV, str(folder), str(os.getpid())], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            while launcher.poll() is None and not stops:
                follower.look()
                time.sleep(POLL_S)
            if stops:
                teller.stopping()
                _stop(folder, launcher, stops)
        finally:
            _end_launcher(launcher)
            follower.look()
    if launcher.returncode == 0 or stops:
        return "", bool(stops)
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:])
    return f"the launcher ended with status {launcher.returncode}\n{tail}", False


@contextmanager
def _noticing_stops() -> Iterator[list[int]]:
    """Signals that ask for the end, as they come. A list: handlers only append, whatever the loop is doing."""
    stops: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        stops.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(folder: Path, launcher: subprocess.Popen[bytes], stops: list[int]) -> None:
    """Let every job stop its servers; a second signal, or `GRACE_S`, ends the patience."""
    ask_to_stop(folder)
    deadline_s = time.monotonic() + GRACE_S + MARGIN_S
    while time.monotonic() < deadline_s and len(stops) < 2 and launcher.poll() is None:
        running = [status for status in statuses(folder) if status.owner and status.owner.is_alive]
        if not running:
            break
        time.sleep(POLL_S)


def _end_launcher(launcher: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then its whole tree: a launcher's workers, their jobs, and what those left."""
    if launcher.poll() is None:
        tree.send(launcher.pid, signal.SIGTERM)
        try:
            launcher.wait(LAUNCHER_GRACE_S)
        except subprocess.TimeoutExpired:
            tree.kill_all(launcher.pid)
            launcher.kill()
            launcher.wait()


def _conclude(sweep: SweepDocument, folder: Path, teller: Teller, *, error: str, was_stopped: bool) -> int:
    _settle(sweep, folder, was_stopped=was_stopped)
    rows = make_rows(statuses(folder), project=sweep.project)
    codes = [row.exit_code for row in rows]
    if error:
        codes.append(InfraError.exit_code)
    code = INTERRUPTED if was_stopped else max(codes, default=0)
    write_document(folder / SUMMARY, SweepSummary(overrides=sweep.overrides, exit_code=code, rows=rows, error=error))
    teller.end(rows, folder=folder, code=code, error=error)
    return code


def _settle(sweep: SweepDocument, folder: Path, *, was_stopped: bool) -> None:
    """A status for every job: of those that the launcher took down with it, or never came to."""
    for status in statuses(folder):
        if status.state is not JobState.RUNNING:
            continue
        if status.owner is not None and status.owner.is_alive:
            tree.kill_all(status.owner.pid)
            tree.send(status.owner.pid, signal.SIGKILL)
        state = JobState.INTERRUPTED if was_stopped else JobState.DIED
        code = INTERRUPTED if was_stopped else InfraError.exit_code
        text = "" if was_stopped else "the launcher's process that stood by this job ended, and the job with it"
        write_status(folder / str(status.job), replace(status, state=state, exit_code=code, text=text, owner=None))
    known = {status.job for status in statuses(folder)}
    for number, overrides in enumerate(sweep.jobs):
        if number not in known:
            blank = JobStatus(
                job=number, target=target_of(overrides), overrides=overrides, state=JobState.NOT_STARTED,
                exit_code=INTERRUPTED if was_stopped else InfraError.exit_code,
            )  # fmt: skip
            write_status(folder / str(number), blank)


class Teller:
    """What the user sees: lines, or JSON lines."""

    def __init__(self, *, say: Say, is_json: bool) -> None:
        self._say = say
        self._is_json = is_json

    def start(self, folder: Path, *, num_jobs: int | None, num_missing: int | None) -> None:
        jobs = "jobs that Hydra lists" if num_jobs is None else f"{num_jobs} jobs"
        before = "" if num_jobs is None or num_missing is None else f", {num_jobs - num_missing} of them done before"
        text = f"{jobs}{before}; statuses in {folder}"
        self._say(canonical_json({"stage": "sweep", "text": text}) if self._is_json else f"sweep: {text}")

    def event(self, job: int, event: dict[str, Any]) -> None:
        self._say(json.dumps({"job": job, **event}) if self._is_json else f"job {job}  {event_line(event)}")

    def stopping(self) -> None:
        text = "stopping: ending the jobs' servers; once more to kill them"
        self._say(canonical_json({"stage": "sweep", "text": text}) if self._is_json else f"sweep: {text}")

    def end(self, rows: Sequence[Row], *, folder: Path, code: int, error: str) -> None:
        if self._is_json:
            for row in rows:
                self._say(json.dumps({"schema_version": 1, **to_data(row)}))
            summary = str(folder / SUMMARY)
            self._say(json.dumps({"schema_version": 1, "summary": summary, "exit_code": code, "error": error}))
            return
        self._say("")
        for line in _aligned(table(rows)):
            self._say(line)
        for row in rows:
            if row.error:
                self._say(f"\njob {row.job} ({' '.join((row.target, *row.overrides))}): {row.error}")
        if error:
            self._say(f"\n{error}")
        if code == INTERRUPTED:
            self._say("\nnext: the same command goes on with what is not done")
        self._say(f"\nsummary     {folder / SUMMARY}")


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
