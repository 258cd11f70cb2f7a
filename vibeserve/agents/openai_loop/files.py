"""Tools that read and write files on the controller: read_file, list_files, search, write_file."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from itertools import islice
from pathlib import Path

from vibeserve.agents.openai_loop.reach import SKIPPED, Reach, kind_of, walk
from vibeserve.agents.openai_loop.toolbox import ToolError

MAX_LINES = 400
MAX_LINE_CHARS = 2_000
MAX_READ_CHARS = 17_500
MAX_ENTRIES = 400
MAX_MATCHES = 200
SEARCH_TIMEOUT_S = 10.0


def read_file(reach: Reach, path: str, *, offset: int = 1, limit: int = MAX_LINES) -> str:
    """`limit` lines of a text file from line `offset` (1 = the first), each behind its number."""
    lines = reach.read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return f"['{path}' is empty]"
    if offset > len(lines):
        raise ToolError(f"'{path}' has {len(lines)} lines; offset {offset} is beyond them")
    shown: list[str] = []
    num_chars = 0
    for number, line in enumerate(islice(lines, offset - 1, offset - 1 + limit), start=offset):
        cut = line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}[... {len(line)} characters]"
        shown.append(f"{number:6}\t{cut}")
        num_chars += len(shown[-1]) + 1
        if num_chars > MAX_READ_CHARS:
            break
    last = offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {offset}-{last} of {len(lines)}; go on with offset={last + 1}]")
    return "\n".join(shown)


def list_files(reach: Reach, path: str = ".") -> str:
    """Everything below a folder with its size; links are named and not followed."""
    root = _existing(reach, path)
    if not root.is_dir():
        raise ToolError(f"'{path}' is not a folder")
    lines: list[str] = []
    for entry, found in walk(root):
        if len(lines) == MAX_ENTRIES:
            lines.append(f"[more than {MAX_ENTRIES} entries; list a folder below]")
            break
        name = entry.relative_to(root).as_posix()
        if stat.S_ISREG(found.st_mode):
            lines.append(f"{name}  {found.st_size}")
        elif stat.S_ISDIR(found.st_mode):
            lines.append(f"{name}/" + ("  [not listed]" if entry.name in SKIPPED else ""))
        else:
            lines.append(f"{name}  [{kind_of(found.st_mode)}]")
    return "\n".join(lines) or f"['{path}' is empty]"


def search(reach: Reach, pattern: str, path: str = ".") -> str:
    """Lines that a regular expression (Python's) finds in a file or below a folder. It runs in a child, which is killed
    after 10 s: an expression may take for ever."""
    root = _existing(reach, path)
    task = {"root": str(root), "pattern": pattern, "max_matches": MAX_MATCHES, "skipped": list(SKIPPED)}
    script = Path(__file__).with_name("searching.py")
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(script)], input=json.dumps(task), capture_output=True, text=True,
            check=False, timeout=SEARCH_TIMEOUT_S, env={}, cwd="/", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        text = f"the search took more than {SEARCH_TIMEOUT_S:g} s; use a simpler pattern or a smaller path"
        raise ToolError(text) from error
    if done.returncode != 0:
        raise ToolError(f"the search failed: {done.stderr.strip()[-500:] or f'status {done.returncode}'}")
    found = json.loads(done.stdout)
    if found["error"]:
        raise ToolError(f"pattern {pattern!r} is no regular expression: {found['error']}")
    lines = [f"{reach.shown(Path(file))}:{number}: {text}" for file, number, text in found["matches"]]
    if found["is_cut"]:
        lines.append(f"[only the first {len(lines)} matches; use a narrower pattern or path]")
    return "\n".join(lines) or f"no match in {found['num_files']} files"


def write_file(reach: Reach, path: str, content: str) -> str:
    """Create or replace a file, folders above it included."""
    target = reach.writable(path)
    is_new = not target.exists()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"cannot make the folder of '{path}': {error.strerror}") from error
    reach.write_text(target, content)
    return f"{'created' if is_new else 'replaced'} {reach.shown(target)} ({content.count(chr(10))} lines)"


def _existing(reach: Reach, path: str) -> Path:
    real = reach.readable(path)
    if not real.exists():
        raise reach.missing(path)
    return real
