"""What a sweep writes: one document of its own, and for every job its status, its events and its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path

from vibeserve.core.documents import read_document, write_document, write_text_atomic
from vibeserve.core.paths import state_dir
from vibeserve.lease import Owner

SWEEP, JOB, STATUS, RESULT, EVENTS, OUTPUT = (
    "sweep.json", "job.json", "status.json", "result.json", "events.jsonl", "output.log",
)  # fmt: skip
SUMMARY = "summary.json"
LAUNCHER = "launcher.json"
"""owner of the process below which Hydra's launcher runs"""
STOP = "stop"
"""while this file is there, jobs end and none starts"""
INTERRUPTED = 130


class JobState(Enum):
    RUNNING = "running"
    DONE = "done"
    PRESENT = "done before"
    """its artifact was there already"""
    FAILED = "failed"
    """it ended with an error of its own"""
    DIED = "died"
    """its process was killed, or ended without a word"""
    INTERRUPTED = "interrupted"
    NOT_STARTED = "not started"


ENDED = tuple(state for state in JobState if state is not JobState.RUNNING)


@dataclass(frozen=True, kw_only=True)
class JobDocument:
    """Document `<sweep>/<number>/job.json`: what the job's own process is to do."""

    overrides: tuple[str, ...]
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """Document `<sweep>/<number>/status.json`."""

    job: int
    target: str
    overrides: tuple[str, ...]
    state: JobState
    exit_code: int
    text: str = ""
    """why it did not end well: the whole message"""
    plan_id: str = ""
    artifact: str = ""
    """relative to the project where it lies inside; also of a result that is not certified"""
    owner: Owner | None = None
    """the job's process while it runs"""
    seconds: float = 0.0
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Document `<sweep>/<number>/result.json`: what the job's own process says of its end."""

    exit_code: int
    text: str = ""
    plan_id: str = ""
    artifact: str = ""
    is_present: bool = False
    """the artifact was there, nothing was run"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class SweepDocument:
    """Document `<sweep>/sweep.json`: written before anything is launched."""

    project: Path
    overrides: tuple[str, ...]
    """as given, those of the launch included"""
    jobs: tuple[tuple[str, ...], ...]
    """overrides of every job by number; empty where only Hydra knows them"""
    job_argv: tuple[str, ...]
    """program of one job; its folder and the process that starts it are appended"""
    environment: dict[str, str | None] = field(default_factory=dict)
    """variables that launchers change and runs depend on, as they were when the sweep was started; None = unset"""
    schema_version: int = 1


def new_sweep_folder(project: Path) -> Path:
    """A fresh folder for the jobs' documents."""
    folder = state_dir(project) / "sweeps" / datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    folder.mkdir(parents=True)
    return folder


def read_sweep(folder: Path) -> SweepDocument:
    return read_document(folder / SWEEP, SweepDocument)


def read_status(job_folder: Path) -> JobStatus | None:
    """None before the job was heard of."""
    try:
        return read_document(job_folder / STATUS, JobStatus)
    except FileNotFoundError:
        return None


def write_status(job_folder: Path, status: JobStatus) -> None:
    write_document(job_folder / STATUS, status)


def statuses(folder: Path) -> list[JobStatus]:
    """Of every job that was heard of, by number."""
    found = (read_status(path) for path in job_folders(folder))
    return [status for status in found if status is not None]


def job_folders(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def ask_to_stop(folder: Path) -> None:
    write_text_atomic(folder / STOP, "")


def is_stopping(folder: Path) -> bool:
    return (folder / STOP).exists()


def target_of(overrides: tuple[str, ...]) -> str:
    """Name of the target that a job's overrides select."""
    names = [value for key, _, value in (o.partition("=") for o in overrides) if key.lstrip("+") == "target"]
    return names[-1].strip("'\"") if names else ""


def read_launcher(folder: Path) -> Owner | None:
    """Owner of the launching process; None before it has started."""
    try:
        return read_document(folder / LAUNCHER, Owner)
    except FileNotFoundError:
        return None
