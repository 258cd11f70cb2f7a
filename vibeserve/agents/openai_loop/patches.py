"""From the text of a patch to hunks: the `*** Begin Patch` form that coding models know, or a unified diff.

Line numbers and counts of a unified diff are not trusted: hunks are found by their lines (`hunks`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from vibeserve.agents.openai_loop.toolbox import ToolError

FORM = (
    "a patch begins with '*** Begin Patch', ends with '*** End Patch' and holds '*** Update File: PATH' with hunks, "
    "'*** Add File: PATH' with + lines, or '*** Delete File: PATH'; a unified diff is taken, too"
)
SECTION = re.compile(r"\*\*\* (Update|Add|Delete) File: (.+)")
UNIFIED_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")
GIT_LINES = ("diff ", "index ", "new file mode ", "deleted file mode ", "old mode ", "new mode ")
UNSUPPORTED = ("rename from ", "rename to ", "copy from ", "copy to ", "GIT binary", "Binary files ", "*** Move to:")
END_OF_FILE = "*** End of File"
NO_NEWLINE = "\\ No newline at end of file"


@dataclass(kw_only=True)
class Hunk:
    """Lines that stand together. `lines` are (operation, text) with ' ', '-' or '+'."""

    anchors: list[str] = field(default_factory=list)
    """lines above the hunk, outermost first, such as `class A:` and `def forward(self):`"""
    line: int = 0
    """where a unified diff says it begins, 1 = the first line; 0 = not told"""
    is_at_end: bool = False
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def before(self) -> list[str]:
        return [text for operation, text in self.lines if operation != "+"]

    @property
    def after(self) -> list[str]:
        return [text for operation, text in self.lines if operation != "-"]


@dataclass(kw_only=True)
class FileChange:
    """`kind` is update, add or delete; only an update has more than one hunk."""

    kind: str
    path: str
    hunks: list[Hunk] = field(default_factory=list)
    has_final_newline: bool = True


def parse_patch(text: str) -> list[FileChange]:
    """The changes of a patch in order. ToolError names the line that is wrong."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines and lines[0].startswith("```"):
        lines = lines[1:]
        while lines and lines[-1].strip() in ("", "```"):
            lines.pop()
    reader = _Reader(lines)
    while not reader.is_at_end:
        reader.take()
    changes = reader.changes
    if not changes:
        raise ToolError(f"the patch changes no file: {FORM}")
    for change in changes:
        _check(change)
    return changes


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self.changes: list[FileChange] = []
        self._lines = lines
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._lines)

    def take(self) -> None:
        """Take in the next line."""
        line = self._lines[self._at]
        section = SECTION.fullmatch(line.rstrip())
        if line.startswith(UNSUPPORTED):
            raise self._problem("renames, copies and binary files are not taken: delete one file and add another")
        if section is not None:
            self._begin(section[1].lower(), section[2].strip())
        elif line.startswith("--- ") and self._peek(1).startswith("+++ "):
            self._begin_unified(line[4:], self._peek(1)[4:])
            self._at += 1
        elif line.rstrip() in ("*** Begin Patch", "*** End Patch") or line.startswith(GIT_LINES):
            pass
        else:
            self._take_body(line)
        self._at += 1

    def _peek(self, offset: int) -> str:
        at = self._at + offset
        return self._lines[at] if at < len(self._lines) else ""

    def _begin(self, kind: str, path: str) -> None:
        self.changes.append(FileChange(kind=kind, path=path, hunks=[Hunk()] if kind == "add" else []))

    def _begin_unified(self, old: str, new: str) -> None:
        before, after = _unified_path(old), _unified_path(new)
        if before == "/dev/null":
            self._begin("add", after)
        elif after == "/dev/null":
            self._begin("delete", before)
        else:
            self._begin("update", after)

    def _take_body(self, line: str) -> None:
        change = self.changes[-1] if self.changes else None
        if change is None:
            if line.strip():
                raise self._problem(FORM)
        elif change.kind == "delete":
            if line.strip() and not line.startswith(("-", "@@", "\\")):
                raise self._problem("nothing but the next file may follow '*** Delete File'")
        elif line.startswith("@@"):
            self._begin_hunk(change, line)
        elif line.rstrip() == END_OF_FILE and change.hunks:
            change.hunks[-1].is_at_end = True
        elif line.rstrip() == NO_NEWLINE:
            change.has_final_newline = False
        else:
            self._take_line(change, line)

    def _begin_hunk(self, change: FileChange, line: str) -> None:
        if change.kind == "add":
            return
        unified = UNIFIED_HUNK.match(line)
        if unified is not None:
            change.hunks.append(Hunk(line=int(unified[1])))
            return
        if not change.hunks or change.hunks[-1].lines:
            change.hunks.append(Hunk())
        anchor = line[2:].strip().removesuffix("@@").strip()
        if anchor:
            change.hunks[-1].anchors.append(anchor)

    def _take_line(self, change: FileChange, line: str) -> None:
        if not change.hunks:
            if not line.strip():
                return
            change.hunks.append(Hunk())
        # editors and models drop the blank of an empty context line
        operation, text = (line[0], line[1:]) if line else (" ", "")
        if operation not in " -+" or (change.kind == "add" and operation != "+" and line):
            allowed = "'+'" if change.kind == "add" else "' ', '-' or '+'"
            raise self._problem(f"each line of a hunk of '{change.path}' begins with {allowed}")
        change.hunks[-1].lines.append((operation if line else "", text))

    def _problem(self, what: str) -> ToolError:
        return ToolError(f"line {self._at + 1} of the patch ({self._lines[self._at][:80]!r}): {what}")


def _check(change: FileChange) -> None:
    """Blank lines that only part hunks go; the others become empty context. An update without hunks is refused."""
    for hunk in change.hunks:
        while hunk.lines and hunk.lines[-1][0] == "":
            hunk.lines.pop()
        blank = "+" if change.kind == "add" else " "
        hunk.lines = [(operation or blank, text) for operation, text in hunk.lines]
    change.hunks = [hunk for hunk in change.hunks if hunk.lines or change.kind == "add"]
    if change.kind == "update" and not change.hunks:
        raise ToolError(f"the patch says to update '{change.path}' and has no hunk for it")


def _unified_path(text: str) -> str:
    path = text.split("\t")[0].strip()
    return path[2:] if path.startswith(("a/", "b/")) else path
