"""Child program of the tool `search`: a task as JSON on standard input, what was found as JSON on standard output.

Reads regular files only, never through a link. Standard library alone: it starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from typing import Any

MAX_FILE_BYTES = 4 << 20
MAX_FILES = 20_000
MAX_LINE_CHARS = 300
MAX_MEMORY_BYTES = 2 << 30


def main() -> None:
    """Answer one task: root, pattern, max_matches, skipped (names of folders)."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    task = json.load(sys.stdin)
    answer: dict[str, Any] = {"error": "", "matches": [], "is_cut": False, "num_files": 0}
    try:
        pattern = re.compile(task["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        answer["error"] = str(error)
    else:
        _search(task, pattern, answer)
    json.dump(answer, sys.stdout)


def _search(task: dict[str, Any], pattern: re.Pattern[str], answer: dict[str, Any]) -> None:
    for path in files_below(task["root"], skipped=frozenset(task["skipped"])):
        if answer["num_files"] == MAX_FILES:
            answer["is_cut"] = True
            return
        answer["num_files"] += 1
        for number, line in enumerate(text_of(path).split("\n"), start=1):
            if pattern.search(line):
                if len(answer["matches"]) == task["max_matches"]:
                    answer["is_cut"] = True
                    return
                answer["matches"].append([path, number, line[:MAX_LINE_CHARS]])


def files_below(root: str, *, skipped: frozenset[str]) -> Iterator[str]:
    """Regular files at and below `root` in order of names."""
    if not os.path.isdir(root):  # noqa: PTH112 - without site-packages every import counts
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in skipped)
        yield from (f"{folder}/{name}" for name in sorted(names))


def text_of(path: str) -> str:
    """Content of a text file; empty for what is none, is too large or cannot be opened."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            return ""
        data = stream.read(MAX_FILE_BYTES)
    return "" if b"\0" in data[:8192] else data.decode("utf-8", errors="replace")


if __name__ == "__main__":
    main()
