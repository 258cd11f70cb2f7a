"""Samples of stacks as tools write them: folded lines of py-spy, records of `perf script`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PROCESS = re.compile(r"(?:^|;)process (\d+)(?=[:;])")
"""of a child its parents' come before its own"""
THREAD = re.compile(r"thread \((?P<tid>[0-9A-Fa-fx]+)\)(?:: (?P<name>.*))?")
FRAME = re.compile(r"(?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)")
HEADER = re.compile(r"^(?P<comm>\S.*?)\s+(?P<pid>\d+)/(?P<tid>\d+)\s*(?::.*)?$")
ADDRESS = re.compile(r"^\s+(?P<address>[0-9a-f]+) (?P<symbol>.+) \((?P<library>[^()]*)\)$")
MAX_THREAD_CHARS, MAX_FUNCTION_CHARS, MAX_SYMBOL_CHARS = 32, 120, 160
MAX_FOLDED_CHARS = 64_000_000
"""more than minutes of a hundred threads: a file beyond it is not read"""


@dataclass(frozen=True)
class PythonFrame:
    """A frame of Python: `file` as the tool names it."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@dataclass(frozen=True)
class Stack:
    """One stack, the innermost frame last, and how many samples it was seen in."""

    pid: int
    tid: str
    """as the process itself numbers it"""
    thread: str
    frames: tuple[PythonFrame, ...]
    count: int


@dataclass(frozen=True)
class NativeSample:
    """Where one thread was in one sample."""

    tid: int
    """as the machine numbers it"""
    symbol: str
    library: str


def parse_folded(text: str) -> list[Stack]:
    """py-spy's `--format raw --threads`, one line a stack: `process ..;thread ..;frame;frame count`.

    A line that is no such line is left out: names in it are the candidate's to choose.
    """
    stacks: list[Stack] = []
    for line in text[:MAX_FOLDED_CHARS].split("\n"):
        body, _, count = line.rpartition(" ")
        stack = _stack(body, int(count)) if count.isascii() and count.isdigit() else None
        if stack is not None:
            stacks.append(stack)
    return stacks


def _stack(body: str, count: int) -> Stack | None:
    found = THREAD.search(body)
    if found is None or count <= 0:
        return None
    # a command line may hold anything, `;` included: what counts begins at the thread
    before, _, rest = body.partition(found[0].partition(";")[0])
    pids = PROCESS.findall(before)
    name = _plain((found["name"] or "").partition(";")[0], max_chars=MAX_THREAD_CHARS)
    frames = [frame for part in rest.split(";")[1:] if (frame := _frame(part)) is not None]
    return Stack(
        pid=int(pids[-1]) if pids else 0,
        tid=found["tid"],
        thread=name or f"thread {found['tid']}",
        frames=tuple(frames),
        count=count,
    )


def _frame(text: str) -> PythonFrame | None:
    found = FRAME.fullmatch(text)
    if found is None:
        return None
    function = _plain(found["function"], max_chars=MAX_FUNCTION_CHARS)
    return PythonFrame(function, found["file"], int(found["line"]))


def _plain(name: str, *, max_chars: int) -> str:
    """A name that somebody chose, without what could pass for more than one."""
    return re.sub(r"[^\w .:<>*~&,()-]", "?", name)[:max_chars]


def num_instants(stacks: Iterable[Stack]) -> int:
    """How often the profiler looked: the samples of the thread that was seen most, as each look sees every thread."""
    seen: dict[tuple[int, str], int] = {}
    for stack in stacks:
        key = (stack.pid, stack.tid)
        seen[key] = seen.get(key, 0) + stack.count
    return max(seen.values(), default=0)


def parse_perf(text: str) -> list[NativeSample]:
    """`perf script -F comm,pid,tid,ip,sym,dso`: the innermost frame of every sample, kernel frames passed over.

    A sample that is all in the kernel counts for its innermost frame there.
    """
    samples: list[NativeSample] = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        header = HEADER.match(lines[0]) if lines else None
        frames = [found for line in lines[1:] if (found := ADDRESS.match(line)) is not None]
        if header is None or not frames:
            continue
        chosen = _innermost(frames)
        library = chosen["library"].rpartition("/")[2]
        symbol = _plain(chosen["symbol"].partition("+0x")[0].partition("@")[0], max_chars=MAX_SYMBOL_CHARS)
        samples.append(NativeSample(int(header["tid"]), symbol, library))
    return samples


def _innermost(frames: Sequence[re.Match[str]]) -> re.Match[str]:
    own = [found for found in frames if "kernel" not in found["library"] and found["symbol"] != "[unknown]"]
    return own[0] if own else frames[0]
