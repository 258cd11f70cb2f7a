"""Machines of a Slurm cluster: one allocation, held for a batch of measurements and given back between batches.

`salloc` gets the allocation and holds it for as long as this process holds its standard input; every command there is a
step of it (`srun --overlap`). What is not shared out by Slurm itself is not touched: no job script, no daemon.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from typing import IO

from vibeserve import spec
from vibeserve.hosts.connection import HostLostError, not_found
from vibeserve.hosts.piped import PipedHost

HOLD = 'echo "$SLURM_JOB_ID"; exec cat >/dev/null'
"""what salloc runs here: it ends, and the allocation with it, when this process is gone, however it ends"""
STEP = (
    "--overlap", "--quiet", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none", "--input=0",
    "--export=HOME,PATH",
)  # fmt: skip
"""one task that shares all of the allocation with the others, and gets nothing of this environment but the two"""
END_S = 20.0
RUNNING = "RUNNING"
"""state of a job whose allocation is there"""


class SlurmWay:
    """The way into one allocation; it is asked for by the first command."""

    doctor = "vibeserve doctor host=slurm"
    is_line_buffered = True  # `--unbuffered` would put a terminal in between, which changes bytes

    def __init__(self, *, options: Sequence[str], wait_s: float, idle_s: float) -> None:
        self._options = list(options)
        self._wait_s = wait_s
        self.idle_s = idle_s
        self.generation = 0
        self._name = "vibeserve"
        self._job = ""
        self._holder: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        return f"slurm job {self._job}" if self._job else "slurm"

    def named(self, run: str) -> None:
        """Give back what an earlier controller of the same run left allocated; one that was killed leaves nothing."""
        self.release()
        self._name = f"vibeserve-{run}"
        with contextlib.suppress(FileNotFoundError):
            subprocess.run(["scancel", "--me", f"--name={self._name}"], capture_output=True, check=False)

    def argv(self, command: str) -> list[str]:
        """A step of the allocation. HostLostError where none is granted within `wait_s`."""
        with self._lock:
            if not self._is_granted():
                self._drop()
                self._allocate()
            return ["srun", f"--jobid={self._job}", *STEP, "/bin/sh", "-c", command]

    def release(self) -> None:
        """Give the allocation back."""
        with self._lock:
            self._drop()

    def _is_granted(self) -> bool:
        """Whether the allocation still runs: a job that was cancelled or ran out of time outlives itself in salloc."""
        if self._holder is None or self._holder.poll() is not None:
            return False
        told = subprocess.run(
            ["squeue", "--noheader", f"--jobs={self._job}", "--format=%T"], capture_output=True, text=True, check=False
        )
        return told.stdout.strip() == RUNNING

    def _drop(self) -> None:
        holder, self._holder = self._holder, None
        if holder is None:
            return
        assert holder.stdin is not None
        holder.stdin.close()
        try:
            holder.wait(END_S)
        except subprocess.TimeoutExpired:
            holder.terminate()  # salloc gives back what it holds
            holder.wait()

    def _allocate(self) -> None:
        said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (read where it fails)
        argv = ["salloc", *self._options, f"--job-name={self._name}", "sh", "-c", HOLD]
        with said:
            try:
                holder = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, process_group=0
                )
            except FileNotFoundError:
                raise not_found("srun") from None
            self._job = _first_line(holder, timeout_s=self._wait_s)
            if not self._job:
                is_waiting = holder.poll() is None
                holder.terminate()
                holder.wait()
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                why = f"still waiting after {self._wait_s:g} s" if is_waiting else "refused"
                raise HostLostError(
                    f"slurm granted no allocation ({why}): {lines[-1] if lines else 'salloc said nothing'}\n"
                    f"next: {self.doctor}; host.options are salloc's, host.wait_s is how long to wait in the queue"
                )
        self._holder = holder
        self.generation += 1


def _first_line(process: subprocess.Popen[str], *, timeout_s: float) -> str:
    """What a process says first; empty where it says nothing in time, or ends before."""
    lines: queue.Queue[str] = queue.Queue()
    stdout = process.stdout
    assert stdout is not None
    threading.Thread(target=lambda: lines.put(stdout.readline()), name="salloc", daemon=True).start()
    try:
        return lines.get(timeout=timeout_s).strip()
    except queue.Empty:
        return ""


class SlurmHost(PipedHost):
    """See `PipedHost`."""

    kind = "slurm"

    def __init__(self, declared: spec.Host) -> None:
        way = SlurmWay(options=declared.options, wait_s=declared.wait_s, idle_s=declared.idle_s)
        super().__init__(declared, way=way)
