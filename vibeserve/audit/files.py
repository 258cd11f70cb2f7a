"""Rules on what kind of files a workspace holds: links, binaries, sizes, start-up hooks."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

from vibeserve.audit import policy

Found = tuple[int, str, str]
_CODING = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
TOOL_FOLDERS = frozenset({".git", ".pytest_cache", ".mypy_cache", ".ruff_cache"})


def walk(workspace: Path) -> Iterator[Path]:
    """Every entry below the workspace, sorted, without the `build/` at its top, which is rebuilt."""
    for path in sorted(workspace.rglob("*")):
        parts = path.relative_to(workspace).parts
        if parts[0] == "build":
            continue
        yield path


def check_entry(path: Path, workspace: Path) -> Iterator[Found]:
    """Findings about one entry itself, before its content is read."""
    relative = path.relative_to(workspace)
    if path.is_symlink():
        yield 0, "symlink", f"is a symbolic link to {path.readlink()}"
        return
    if path.is_dir():
        return
    if TOOL_FOLDERS & set(relative.parts):
        yield 0, "blob", "lies in a tool's folder, which no digest covers"
        return
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        yield 0, "symlink", "is not a plain file"
        return
    if path.name in policy.HOOK_FILES or (path.suffix == ".pth" and b"\0" not in path.read_bytes()[:4096]):
        yield 0, "import_hook", "changes how the interpreter or its tools start"
    elif path.name == "conftest.py" and relative.parts[0] != "tests":
        yield 0, "import_hook", "is loaded by pytest wherever it lies; only tests/ may hold one"
    elif path.suffix == ".pyc" or "__pycache__" in relative.parts:
        yield (
            0,
            "blob",
            "is byte code, which may differ from the source beside it (vibeserve.audit.purge_bytecode removes it)",
        )
    elif path.suffix.lower() in policy.BINARY_SUFFIXES:
        yield 0, "blob", f"is a binary file ({path.suffix})"
    elif path.stat().st_size > policy.MAX_FILE_BYTES:
        yield 0, "blob", f"has {path.stat().st_size} bytes (at most {policy.MAX_FILE_BYTES})"
    elif (
        len(relative.parts) == 1
        and path.suffix == ".py"
        and (path.stem in policy.STDLIB or path.stem in policy.ALLOWED)
    ):
        yield 0, "import_hook", f"shadows the module {path.stem}"


def check_shadowing(workspace: Path) -> Iterator[tuple[str, Found]]:
    """Packages at the workspace's top that shadow an allowed or standard module."""
    for path in sorted(workspace.iterdir()):
        if path.is_dir() and (path.name in policy.STDLIB or path.name in policy.ALLOWED):
            yield path.name, (0, "import_hook", f"shadows the module {path.name}")


def read_source(path: Path) -> str | None:
    """The file as text, or None when it is not text."""
    data = path.read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def check_encoding(text: str) -> Iterator[Found]:
    """A Python file that declares another encoding (PEP 263) is other code to the interpreter than to its readers."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text)[:2], 1):
        match = _CODING.match(line)
        if match is not None and match.group(1).lower().replace("_", "-") not in ("utf-8", "utf8"):
            yield number, "dynamic_code", f"declares the encoding {match.group(1)!r}; source is UTF-8"


def purge_bytecode(workspace: Path) -> int:
    """Delete byte code (`__pycache__`, `*.pyc`) below the workspace; returns how many files went."""
    count = 0
    for path in sorted(workspace.rglob("*.pyc")):
        if path.is_file() and not path.is_symlink():
            path.unlink()
            count += 1
    for folder in sorted(workspace.rglob("__pycache__"), reverse=True):
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()
    return count
