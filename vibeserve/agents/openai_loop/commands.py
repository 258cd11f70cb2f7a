"""Tool run_command: a shell command behind a wall around the workspace."""

from __future__ import annotations

from pathlib import Path

from vibeserve.agents.openai_loop.toolbox import MAX_RESULT_CHARS, ToolError
from vibeserve.hosts import Host
from vibeserve.sandbox import Finished, Wall

DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 60, 600
SHELLS = ("/bin/bash", "/bin/sh")
_KEPT_LOG_BYTES = 1 << 20
_LEAST_S = 0.05


def run_command(command: str, *, host: Host, wall: Wall, logs: Path, timeout_s: float, left_s: float) -> str:
    """Status and output of a shell command. Its whole tree is killed at the end, whatever it left running, and after
    `timeout_s` or `left_s` at the latest. InfraError when the wall cannot be built."""
    if "\0" in command:
        raise ToolError("a command must not hold NUL")
    log = logs / f"{sum(1 for _ in logs.glob('*.log')) + 1:04}.log"
    shell = next(path for path in SHELLS if Path(path).exists())
    limit_s = max(_LEAST_S, min(timeout_s, left_s))
    done = host.run([shell, "-c", command], wall=wall, log=log, timeout_s=limit_s)
    output = read_ends(log)
    if log.stat().st_size > _KEPT_LOG_BYTES:
        log.write_text(output, encoding="utf-8")
    return f"[{_ended(done, limit_s=limit_s, is_cut_short=left_s < timeout_s)}]\n{output}".rstrip("\n")


def read_ends(log: Path, *, max_bytes: int = MAX_RESULT_CHARS - 500) -> str:
    """Head and tail of a log, with the number of bytes between them; of a large one no more is read."""
    size = log.stat().st_size if log.is_file() else 0
    if size == 0:
        return "[no output]"
    with log.open("rb") as stream:
        if size <= max_bytes:
            return _text(stream.read())
        head = stream.read(max_bytes // 2)
        stream.seek(size - max_bytes // 2)
        tail = stream.read()
    return f"{_text(head)}\n[... {size - len(head) - len(tail)} bytes of output left out ...]\n{_text(tail)}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _ended(done: Finished, *, limit_s: float, is_cut_short: bool) -> str:
    if done.exceeded is not None:
        return f"killed: {done.exceeded.value} after {done.seconds:.1f} s"
    if done.timed_out:
        whose = ", all that is left of this task" if is_cut_short else ""
        return f"killed after {limit_s:.3g} s{whose}"
    return f"exit status {done.returncode} after {done.seconds:.1f} s"
