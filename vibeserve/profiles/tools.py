"""What every profiler of a running server is: a program beside it that looks into its processes from outside."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vibeserve.profiles.samples import NativeSample, Stack

GRACE_S = 20.0
"""for a tool's own start and end, beside the time that it records"""
MAX_TOLD_CHARS = 200
MAX_FILE_BYTES, MAX_ADDRESS_BYTES = 64 << 20, 16 << 30
"""of a tool: the candidate chooses how many stacks and how long names there are. A tool maps the libraries it reads"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A server under load."""

    pids: Callable[[], Sequence[int]]
    """its live processes as the machine numbers them, parents first"""
    folder: Path
    """of the run: tools write below it"""
    wrap: Callable[[Sequence[str]], list[str]] = list
    """the command line that runs a tool where it may look and disturbs least: on other cores than the engine's"""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one slice of one tool gave."""

    stacks: tuple[Stack, ...] = ()
    native: tuple[NativeSample, ...] = ()
    data: Path | None = None
    """what `read` has still to look up"""
    why_not: str = ""
    """empty, or why there is nothing, with the next step"""


class Profiler(Protocol):
    """One tool. It never runs inside the server, and the server is never started for it."""

    @property
    def name(self) -> str: ...

    def why_not(self) -> str:
        """Empty where it can be used here; else why it cannot, and what would change that."""
        ...

    def record(self, target: Target, *, seconds: int) -> Recording:
        """Look for so long. A tool that fails says why in the recording; it raises nothing."""
        ...

    def read(self, recording: Recording) -> Recording:
        """The recording with what can be worked out afterwards, when nobody is timed any more."""
        ...


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A tool's process that ended."""

    returncode: int
    output: str
    problem: str = ""


def run_tool(argv: Sequence[str], *, timeout_s: float) -> Ran:
    """Run a tool to its end; `problem` is its last words where it failed."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False, preexec_fn=_limit
        )
    except subprocess.TimeoutExpired:
        return Ran(returncode=-1, output="", problem=f"did not end within {timeout_s:g} s")
    except OSError as error:
        return Ran(returncode=-1, output="", problem=str(error))
    problem = "" if done.returncode == 0 else first_words(done.stderr) or f"exit status {done.returncode}"
    return Ran(returncode=done.returncode, output=done.stdout, problem=problem)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))


def first_words(text: str) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = next((line for line in lines if "rror" in line or "enied" in line or "ermission" in line), "")
    return (chosen or (lines[0] if lines else ""))[:MAX_TOLD_CHARS]


def find_tool(name: str) -> str | None:
    """Path of a program: beside this interpreter, where pip puts it, or on PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
