"""The rules on names, as data and pure functions: what is stripped, what a name may not be, how it is shown."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase

GATE = "workspace"

MAX_FILE_BYTES = 512 * 1024
MAX_CHANGED_BYTES = 8 * 1024 * 1024
"""of all files that are new or other than before"""
MAX_NAME_BYTES = 200
"""of a path relative to the workspace; bounds the depth of what is walked, too"""
MAX_NEW_FILES = 2_000
MAX_ENTRIES = 20_000
"""beside what was there before: files, folders and everything else that is looked at"""
MAX_STRIPPED_ENTRIES = 200_000
"""of all folders that are removed whole, such as node_modules"""
MAX_KNOWN_FILE_BYTES = 64 * 1024 * 1024
"""of a file that was there before: it is hashed to see whether it still is the same"""
MAX_READ_BYTES = 512 * 1024 * 1024
MAX_TOLD = 20
"""refusals of one class that are told one by one"""

TRASH = ".vibeserve-trash-"
BUILD = "build"
LEFTOVER_NAMES = frozenset({
    ".git", ".hg", ".svn", ".jj",
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules", ".venv",
    ".codex", ".claude", ".opencode", ".gemini", ".cursor", ".idea", ".vscode", ".DS_Store",
    "AGENTS.md", "CLAUDE.md", "GEMINI.md",
})  # fmt: skip
"""the last three instruct whichever agent works in the folder next, such as the one that reviews it"""
LEFTOVER_PATTERNS = (".aider*", "*.orig", "*.rej", "*.pyc", "*.pyo", "*.swp", "*~", f"{TRASH}*")

WHAT_TO_DO = {
    "link_out": "copy what it points to into the workspace as a plain file",
    "link": "replace it by a copy of the file",
    "special_file": "remove it; a workspace holds plain files and folders that its owner can read",
    "too_large": "remove it or make it smaller: a workspace holds source text, weights come from the model's folder",
    "binary": "ship the source in its place; compiled files come from the build step, weights from the model's folder",
    "too_many_files": "remove what the runtime does not need",
    "bad_name": "rename it",
}
"""reason class -> what to do"""


def is_leftover(name: str) -> bool:
    """The last part of a path is one that tools leave behind and no candidate needs."""
    return (
        name in LEFTOVER_NAMES
        or name.lower() == ".git"
        or any(fnmatchcase(name, pattern) for pattern in LEFTOVER_PATTERNS)
    )


def bad_name(path: str) -> str:
    """What is wrong with a relative path; empty where nothing is."""
    try:
        encoded = path.encode("utf-8")
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if len(encoded) > MAX_NAME_BYTES:
        return f"has a name of {len(encoded)} bytes with its folders (at most {MAX_NAME_BYTES})"
    if not path.isprintable():
        return "has a control character or an invisible one in its name"
    if any(_is_git(part) for part in path.split("/")):
        return "has a name that is taken for .git"
    return ""


def _is_git(part: str) -> bool:
    """Some file system takes it for `.git`, so that git itself refuses it."""
    return part.lower().split(":")[0].rstrip(" .") in (".git", "git~1")


def folded(path: str) -> str:
    """Equal for names that a case-insensitive file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def folders_of(names: Iterable[str]) -> frozenset[str]:
    """Every folder that lies above one of the relative paths `names`."""
    found: set[str] = set()
    for name in names:
        parts = name.split("/")
        found.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return frozenset(found)


def shown(text: str, *, max_chars: int = 240) -> str:
    """A name as it may stand in a message or a document: what cannot be printed is escaped."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    clean = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in clean)
    return clean if len(clean) <= max_chars else f"{clean[: max_chars - 3]}..."
