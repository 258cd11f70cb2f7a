"""Native symbols by Linux perf, where it is installed and permitted: which functions of libraries ran.

The kernel takes the samples, so it costs the server next to nothing; names are looked up afterwards, when nothing is
timed. A bonus: without it the profile says which libraries were mapped and not what ran in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from vibeserve.profiles.documents import NativeSymbol
from vibeserve.profiles.samples import NativeSample, parse_perf
from vibeserve.profiles.seams import kind_of
from vibeserve.profiles.tools import GRACE_S, Recording, Target, find_tool, run_tool

RATE_HZ = 199
LOOK_UP_S = 25.0
"""longest: the symbols of a large library are read once"""
INSTALL = "install linux-perf (Debian) or linux-tools (Ubuntu), and `sysctl kernel.perf_event_paranoid=1`"
MAX_SYMBOLS = 40
SKIPPED_LIBRARIES = ("libpython", "python3")
SKIPPED_KINDS = ("interpreter", "wait")
"""not what a runtime is made of"""


class LinuxPerf:
    """See `tools.Profiler`."""

    name = "perf"

    def why_not(self) -> str:
        return "" if find_tool("perf") else f"perf: not installed, so no native symbol is known; next: {INSTALL}"

    def record(self, target: Target, *, seconds: int) -> Recording:
        program, pids = find_tool("perf"), target.pids()
        if program is None or not pids:
            return Recording(why_not=self.why_not() or "perf: the server has no process any more")
        data = target.folder / "perf.data"
        ran = run_tool(
            target.wrap(record_line(program, pids=pids, seconds=seconds, data=data)), timeout_s=seconds + GRACE_S
        )
        return Recording(why_not=f"perf: {ran.problem}; next: {INSTALL}") if ran.problem else Recording(data=data)

    def read(self, recording: Recording) -> Recording:
        program, data = find_tool("perf"), recording.data
        if program is None or data is None:
            return recording
        ran = run_tool(script_line(program, data=data), timeout_s=LOOK_UP_S)
        for file in (data, data.with_suffix(".data.old")):
            file.unlink(missing_ok=True)
        if ran.problem:
            return Recording(why_not=f"perf: its samples cannot be read: {ran.problem}")
        return Recording(native=tuple(parse_perf(ran.output)))


def record_line(program: str, *, pids: Sequence[int], seconds: int, data: Path) -> list[str]:
    """A clock of the CPU, which a virtual machine has, too."""
    return [
        program, "record", "--pid", ",".join(map(str, pids)), "--freq", str(RATE_HZ), "--event", "cpu-clock", "-g",
        "--no-buildid", "--no-buildid-cache", "--output", str(data), "--", "sleep", str(seconds),
    ]  # fmt: skip


def script_line(program: str, *, data: Path) -> list[str]:
    return [program, "script", "--input", str(data), "--fields", "comm,pid,tid,ip,sym,dso"]


def native_symbols(samples: Iterable[NativeSample]) -> tuple[NativeSymbol, ...]:
    """What ran most, without the interpreter, the kernel and waiting."""
    counts = Counter((sample.symbol, sample.library) for sample in samples)
    total = counts.total()
    rows = [
        NativeSymbol(name=symbol, library=library, kind=kind_of(symbol), share=round(count / total, 4))
        for (symbol, library), count in counts.most_common()
        if _is_told(symbol, library)
    ]
    return tuple(rows[:MAX_SYMBOLS])


def _is_told(symbol: str, library: str) -> bool:
    if symbol == "[unknown]" or "kernel" in library or library.startswith(SKIPPED_LIBRARIES):
        return False
    return kind_of(symbol) not in SKIPPED_KINDS
