"""One job of a sweep, in whatever process the launcher starts: a child of its own runs it, and this process stands by.

So a job that is killed, or that takes its process down, is reported like any other and takes nobody with it; and a job
ends, with its whole tree, when the sweep is stopped or its launcher is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import InfraError
from vibeserve.lease import Owner
from vibeserve.sandbox import tree
from vibeserve.sweeps.documents import (
    ENDED,
    INTERRUPTED,
    JOB,
    OUTPUT,
    RESULT,
    JobDocument,
    JobResult,
    JobState,
    JobStatus,
    SweepDocument,
    is_stopping,
    read_launcher,
    read_status,
    read_sweep,
    target_of,
    write_status,
)

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from vibeserve.config.sweep import JobFacts

POLL_S = 0.2
LOOK_S = 1.0
"""between two looks at whether the sweep goes on"""
GRACE_S = 20.0
"""for a job to stop its servers after SIGTERM"""
TAIL_LINES = 20
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS",
)  # fmt: skip
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"


def sweep_job(config: DictConfig) -> None:
    """The task function that launchers run. It never raises for what the job does; `config` is not used: the job
    composes its overrides as the same command alone would, so that it is the same plan."""
    from vibeserve.config.sweep import job_facts

    supervise(job_facts())


def supervise(facts: JobFacts) -> None:
    """Run the job of `facts` to its end and leave its status."""
    facts.folder.mkdir(parents=True, exist_ok=True)
    known = read_status(facts.folder)
    if known is not None and known.state in ENDED:
        return
    sweep_folder = facts.folder.parent
    blank = JobStatus(
        job=facts.number, target=target_of(facts.overrides), overrides=facts.overrides, state=JobState.NOT_STARTED,
        exit_code=INTERRUPTED,
    )  # fmt: skip
    if is_stopping(sweep_folder):
        write_status(facts.folder, blank)
        return
    started_s = time.monotonic()
    status = _carry_out(facts, read_sweep(sweep_folder), blank=blank)
    write_status(facts.folder, replace(status, seconds=round(time.monotonic() - started_s, 1)))


def _carry_out(facts: JobFacts, sweep: SweepDocument, *, blank: JobStatus) -> JobStatus:
    write_document(facts.folder / JOB, JobDocument(overrides=facts.overrides))
    (facts.folder / RESULT).unlink(missing_ok=True)
    child = _start(facts.folder, sweep)
    running = replace(
        blank, state=JobState.RUNNING, exit_code=0, owner=Owner.of(child.pid, run=blank.target, command="sweep job")
    )
    try:
        write_status(facts.folder, running)
        was_stopped = _stand_by(child, facts.folder.parent)
    except BaseException:
        end_child(child)
        write_status(facts.folder, replace(running, state=JobState.INTERRUPTED, exit_code=INTERRUPTED, owner=None))
        raise
    return _concluded(child.returncode, facts.folder, running=running, was_stopped=was_stopped)


def _start(folder: Path, sweep: SweepDocument) -> subprocess.Popen[bytes]:
    argv = [*sweep.job_argv, str(folder), str(os.getpid())]
    with (folder / OUTPUT).open("wb") as output:
        return subprocess.Popen(
            argv, cwd=sweep.project, env=_environment(sweep), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for the sweep, which ends its jobs
        )  # fmt: skip


def _environment(sweep: SweepDocument) -> dict[str, str]:
    """This process's, with what launchers change put back: a run is the same under every launcher."""
    environment = dict(os.environ)
    for name, value in sweep.environment.items():
        # a launcher hides GPUs by an empty text; one that gives out GPUs says which
        if name == GPU_VARIABLE and environment.get(name):
            continue
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    return environment


def recorded_environment() -> dict[str, str | None]:
    """Of the process that starts a sweep."""
    return {name: os.environ.get(name) for name in (*THREAD_VARIABLES, GPU_VARIABLE)}


def _stand_by(child: subprocess.Popen[bytes], sweep_folder: Path) -> bool:
    """Wait for the job's end; True when the sweep ended it."""
    look_at_s = time.monotonic()
    while child.poll() is None:
        if time.monotonic() >= look_at_s:
            look_at_s = time.monotonic() + LOOK_S
            if is_stopping(sweep_folder) or _is_launcher_gone(sweep_folder):
                end_child(child)
                return True
        time.sleep(POLL_S)
    return False


def _is_launcher_gone(sweep_folder: Path) -> bool:
    owner = read_launcher(sweep_folder)
    return owner is not None and owner.is_gone


def end_child(child: subprocess.Popen[bytes], *, grace_s: float = GRACE_S) -> None:
    """SIGTERM, so that it stops its servers; after `grace_s` its whole tree is killed."""
    if child.poll() is None:
        tree.send(child.pid, signal.SIGTERM)
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            tree.kill_all(child.pid)
            child.kill()
            child.wait()


def _concluded(returncode: int, folder: Path, *, running: JobStatus, was_stopped: bool) -> JobStatus:
    ended = replace(running, owner=None)
    result = _read_result(folder)
    if result is None:
        if was_stopped or returncode == INTERRUPTED:
            return replace(ended, state=JobState.INTERRUPTED, exit_code=INTERRUPTED)
        # a signal is the machine's doing, anything else a fault of the program
        code = InfraError.exit_code if returncode < 0 else returncode or InfraError.exit_code
        return replace(ended, state=JobState.DIED, exit_code=code, text=_death_text(returncode, folder))
    state = JobState.FAILED if result.exit_code else JobState.PRESENT if result.is_present else JobState.DONE
    return replace(
        ended, state=state, exit_code=result.exit_code, text=result.text, plan_id=result.plan_id,
        artifact=result.artifact,
    )  # fmt: skip


def _read_result(folder: Path) -> JobResult | None:
    try:
        return read_document(folder / RESULT, JobResult)
    except FileNotFoundError:
        return None


def _death_text(returncode: int, folder: Path) -> str:
    how = f"killed by {_signal_name(-returncode)}" if returncode < 0 else f"exit status {returncode} without a result"
    output = (folder / OUTPUT).read_text(encoding="utf-8", errors="replace").splitlines()
    tail = "\n".join(f"  | {line}" for line in output[-TAIL_LINES:])
    return f"the job's process died: {how}" + (f"\n{tail}" if tail else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
