"""Which part of the runtime a frame belongs to, whether a thread only waits in it, and what a native symbol does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from vibeserve.profiles.samples import PythonFrame, Stack
from vibeserve.skills.card import SEAMS

RUNTIME = "runtime/"
OUTSIDE = "outside the runtime"
"""frames of libraries alone: an event loop's own work, an import"""

WAITING_LEAVES = frozenset((
    ("selectors.py", "select"), ("asyncio/runners.py", "run"), ("asyncio/base_events.py", "run_forever"),
    ("asyncio/base_events.py", "_run_once"), ("uvloop/__init__.py", "run"), ("threading.py", "wait"),
    ("threading.py", "_wait_for_tstate_lock"), ("threading.py", "join"), ("queue.py", "get"),
    ("concurrent/futures/thread.py", "_worker"), ("multiprocessing/connection.py", "wait"),
    ("multiprocessing/connection.py", "_recv"), ("multiprocessing/queues.py", "get"), ("socket.py", "accept"),
    ("socketserver.py", "serve_forever"), ("subprocess.py", "wait"), ("asyncio/unix_events.py", "_do_waitpid"),
))  # fmt: skip
"""(file, function without its class) in which a thread has nothing to do: a leaf that is a call into C"""
WAITING_CALL = re.compile(
    r"\.(?:get\((?:\)|block|timeout|True)|wait\(|acquire\(|join\(\)|select\(|poll\(|epoll\(|recv\w*\(|accept\()"
)
"""in the line of the runtime's source at which a thread was seen"""

KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("matmul", re.compile(r"gemm|gemv|matmul|mkldnn|dnnl|onednn|brgemm|cutlass|cublas|addmm|\bdot\b|_linear", re.I)),
    ("attention", re.compile(r"attention|flash_?attn|sdpa|fmha|paged", re.I)),
    ("softmax", re.compile(r"softmax", re.I)),
    ("norm", re.compile(r"(layer|rms|group)_?norm", re.I)),
    ("sort", re.compile(r"sort|topk|argmax|multinomial", re.I)),
    ("copy", re.compile(r"memcpy|memmove|memset|copy_|_copy\b|direct_copy|index_put|gather|scatter", re.I)),
    ("allocation", re.compile(r"malloc|calloc|\bfree\b|_int_free|alloc_cpu|mmap|brk", re.I)),
    ("collective", re.compile(r"nccl|all_?reduce|all_?gather", re.I)),
    ("wait", re.compile(r"futex|epoll|gomp_(team_)?barrier|kmp_(barrier|wait)|pthread_cond|sched_yield", re.I)),
    ("interpreter", re.compile(r"^_?Py[A-Z_]|PyEval|^_PyE|method_vectorcall|cfunction_|dict_lookup", re.I)),
)  # fmt: skip
"""by name, the first that fits"""

SourceLine = Callable[[str, int], str]
"""(file, line) -> its text, empty where it is unknown"""


def path_in_runtime(file: str) -> str:
    """`sampler.py` of `/srv/app/runtime/sampler.py`; empty for what is no part of the runtime.

    Whatever lies in a folder of packages is a package's, also where that has a folder of this name.
    """
    if "site-packages/" in file or "dist-packages/" in file or "/lib/python3" in file:
        return ""
    _, found, rest = f"/{file}".rpartition(f"/{RUNTIME}")
    return rest if found else ""


def seam_of(stack: Stack) -> str:
    """The innermost seam of the stack; where there is none, the innermost module of the runtime."""
    modules = [path for frame in reversed(stack.frames) if (path := path_in_runtime(frame.file))]
    names = [path.removesuffix(".py").partition("/")[0] for path in modules]
    return next((name for name in names if name in SEAMS), names[0] if names else OUTSIDE)


def function_of(stack: Stack) -> PythonFrame | None:
    """The innermost frame of the runtime's own: where it was, or what it called."""
    return next((frame for frame in reversed(stack.frames) if path_in_runtime(frame.file)), None)


def is_waiting(stack: Stack, *, source_line: SourceLine) -> bool:
    """The thread has nothing to do: it is in a call that waits for work. Sleep is no such call: it is a way to spend
    a request's time."""
    if not stack.frames:
        return False
    leaf = stack.frames[-1]
    if path_in_runtime(leaf.file):
        return bool(WAITING_CALL.search(source_line(leaf.file, leaf.line)))
    function = leaf.function.rpartition(".")[2]
    return any(name == function and _ends_with(leaf.file, file) for file, name in WAITING_LEAVES)


def _ends_with(file: str, tail: str) -> bool:
    return file == tail or file.endswith(f"/{tail}")


def kind_of(symbol: str) -> str:
    """What a native function does, as far as its name says; empty = it does not."""
    return next((kind for kind, pattern in KINDS if pattern.search(symbol)), "")


def lines_of(workspace: Path) -> SourceLine:
    """Lines of the candidate's sources, as the framework keeps them."""

    @lru_cache(maxsize=64)
    def read(file: str) -> list[str]:
        path = workspace / RUNTIME / path_in_runtime(file)
        inside = path.resolve().is_relative_to(workspace.resolve())
        return path.read_text(encoding="utf-8", errors="replace").splitlines() if inside and path.is_file() else []

    def line_at(file: str, number: int) -> str:
        lines = read(file)
        return lines[number - 1] if 0 < number <= len(lines) else ""

    return line_at
