"""Stacks of Python by py-spy (MIT; https://github.com/benfred/py-spy): it reads the server's memory from outside.

Nothing is injected and nothing is stopped (`--nonblocking`), so that a sample may be torn; those that are do not parse
and are left out. It works on a process in a namespace of its own, because it is started outside of it. `--native` is
not used: it stops the server for every sample, and cannot unwind a process of another pid namespace (0.4.3). Native
symbols come from `linux_perf`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from vibeserve.profiles.samples import parse_folded
from vibeserve.profiles.tools import GRACE_S, Recording, Target, find_tool, run_tool

RATE_HZ = 100
INSTALL = "pip install py-spy"
NOT_PERMITTED = "it may not read the server's memory; next: run as root, or `sysctl kernel.yama.ptrace_scope=0`"


class PySpy:
    """See `tools.Profiler`."""

    name = "stacks"

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def why_not(self) -> str:
        return "" if self._found() else f"py-spy: not installed; next: {INSTALL}"

    def record(self, target: Target, *, seconds: int) -> Recording:
        program, pids = self._found(), target.pids()
        if program is None:
            return Recording(why_not=self.why_not())
        if not pids:
            return Recording(why_not="py-spy: the server has no process any more")
        with tempfile.TemporaryDirectory(dir=target.folder) as folder:
            output = Path(folder) / "stacks.txt"
            argv = command_line(program, pid=pids[0], seconds=seconds, output=output)
            ran = run_tool(target.wrap(argv), timeout_s=seconds + GRACE_S)
            if ran.problem:
                return Recording(why_not=f"py-spy: {_explained(ran.problem)}")
            text = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
        stacks = tuple(parse_folded(text))
        return Recording(stacks=stacks, why_not="" if stacks else "py-spy: no stack of Python was seen")

    def read(self, recording: Recording) -> Recording:
        return recording

    def _found(self) -> str | None:
        return self._program or find_tool("py-spy")


def command_line(program: str, *, pid: int, seconds: int, output: Path) -> list[str]:
    """py-spy's own; a rate that a busy core can keep up with."""
    return [
        program, "record", "--pid", str(pid), "--subprocesses", "--nonblocking", "--threads", "--rate", str(RATE_HZ),
        "--duration", str(seconds), "--format", "raw", "--output", str(output),
    ]  # fmt: skip


def _explained(problem: str) -> str:
    is_permission = "ermission" in problem or "not permitted" in problem
    return f"{problem}; {NOT_PERMITTED}" if is_permission else problem
