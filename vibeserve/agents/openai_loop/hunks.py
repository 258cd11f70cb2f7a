"""Hunks onto files: each must match at exactly one place, and a patch of which one does not changes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.agents.openai_loop.patches import FileChange, Hunk, parse_patch
from vibeserve.agents.openai_loop.reach import Reach
from vibeserve.agents.openai_loop.toolbox import ToolError

_SHOWN_LINES = 12
_SIMILAR_LINES = 5_000
"""lines of a file that are looked through for one that only resembles"""


def apply_patch(reach: Reach, patch: str) -> str:
    """Change the files that `patch` names; what was done to each, one a line. ToolError, and nothing written, where a
    hunk matches nowhere or at several places."""
    writes: dict[Path, str | None] = {}
    report: list[str] = []
    for change in parse_patch(patch):
        target = reach.writable(change.path)
        if target in writes:
            raise ToolError(f"the patch names '{change.path}' twice; put all its hunks under one header")
        writes[target], line = _changed(reach, change, target)
        report.append(line)
    for path, content in writes.items():
        _write(reach, path, content)
    return "\n".join(report)


def _write(reach: Reach, path: Path, content: str | None) -> None:
    try:
        if content is None:
            path.unlink()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ToolError(f"cannot change '{reach.shown(path)}': {error.strerror}") from error
    reach.write_text(path, content)


def _changed(reach: Reach, change: FileChange, target: Path) -> tuple[str | None, str]:
    """(new content, None = deleted; line of the report)"""
    name = reach.shown(target)
    if change.kind == "add":
        if target.exists():
            raise ToolError(f"'{name}' exists already; use '*** Update File: {name}' or write_file")
        added = change.hunks[0].after
        content = "\n".join(added) + ("\n" if added and change.has_final_newline else "")
        return content, f"added {name} (+{len(added)})"
    if not target.exists():
        raise reach.missing(change.path)
    if change.kind == "delete":
        return None, f"deleted {name}"
    old = reach.read_text(change.path)
    new = apply_hunks(old, change.hunks, name=name)
    if new == old:
        raise ToolError(f"the patch leaves '{name}' as it is")
    operations = [operation for hunk in change.hunks for operation, _ in hunk.lines]
    return new, f"updated {name} (+{operations.count('+')} -{operations.count('-')})"


def apply_hunks(text: str, hunks: Sequence[Hunk], *, name: str) -> str:
    """`text` with every hunk applied, in the order of the file. Line ends and the last line's stay as they are."""
    lines = text.split("\n")
    is_crlf = len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1])
    if is_crlf:
        lines = [line.removesuffix("\r") for line in lines]
    has_final_newline = lines[-1] == ""
    if has_final_newline:
        lines.pop()
    place, grown = 0, 0
    for number, hunk in enumerate(hunks, start=1):
        finder = _Finder(lines=lines, hunk=hunk, begin=place, what=f"hunk {number} of {name}")
        start = finder.place(expected=hunk.line - 1 + grown)
        lines[start : start + len(hunk.before)] = hunk.after
        place = start + len(hunk.after)
        grown += len(hunk.after) - len(hunk.before)
    end = "\r\n" if is_crlf else "\n"
    return end.join(lines) + (end if has_final_newline and lines else "")


@dataclass(frozen=True, kw_only=True)
class _Finder:
    lines: list[str]
    hunk: Hunk
    begin: int
    """the hunks before this one end here"""
    what: str

    def place(self, *, expected: int) -> int:
        """Index of the line at which the hunk begins; `expected` is where a unified diff says it does."""
        begin, is_certain = self._below_anchors()
        if not self.hunk.before:
            return self._insertion(begin, is_certain=is_certain)
        found = self._matches(begin)
        if not found and begin > self.begin and self.hunk.before[0].strip() == self.hunk.anchors[-1]:
            found = self._matches(begin - 1)  # the anchor is told once more as the first line
        if len(found) > 1 and self.hunk.line and expected in found:
            return expected
        if len(found) > 1 and not is_certain:
            at = ", ".join(str(index + 1) for index in found[:8])
            raise ToolError(
                f"{self.what} matches at {len(found)} places, lines {at}: add lines around it, or '@@ LINE' with a "
                "line above it that stands once"
            )
        if not found:
            raise ToolError(self._mismatch())
        return found[0]

    def _below_anchors(self) -> tuple[int, bool]:
        """(where to look from, whether the anchors name one place alone)"""
        begin, is_certain = self.begin, bool(self.hunk.anchors)
        for depth, anchor in enumerate(self.hunk.anchors):
            bare = [line.strip() for line in self.lines[begin:]]
            found = [i for i, line in enumerate(bare) if line == anchor]
            found = found or [i for i, line in enumerate(bare) if anchor in line]
            if not found:
                raise ToolError(f"{self.what}: no line {anchor!r} below what is before it{self._near([anchor])}")
            # inside a class that stands once, the first method of that name is meant
            is_certain = is_certain and (len(found) == 1 or depth > 0)
            begin += found[0] + 1
        return begin, is_certain

    def _insertion(self, begin: int, *, is_certain: bool) -> int:
        """Where lines go that come without any to replace."""
        if self.hunk.is_at_end or not self.lines:
            return len(self.lines)
        if is_certain:
            return begin
        raise ToolError(f"{self.what} has + lines alone: give a line of the file before or behind them")

    def _matches(self, begin: int) -> list[int]:
        before = self.hunk.before
        last = len(self.lines) - len(before)
        found = [i for i in range(begin, last + 1) if self.lines[i : i + len(before)] == before]
        return [index for index in found if index == last] if self.hunk.is_at_end else found

    def _mismatch(self) -> str:
        before = self.hunk.before
        if self.hunk.is_at_end and any(
            self.lines[i : i + len(before)] == before for i in range(len(self.lines) - len(before))
        ):
            return f"{self.what} does not match at the end of the file"
        earlier = [i for i in range(self.begin) if self.lines[i : i + len(before)] == before]
        if earlier:
            return f"{self.what} matches only at line {earlier[0] + 1}, above the hunk before it: put hunks in order"
        return f"{self.what} does not match any lines{self._near(before)}"

    def _near(self, wanted: list[str]) -> str:
        """The lines of the file that are most like those wanted, with their numbers."""
        start = _nearest(self.lines, wanted)
        if start is None:
            return ""
        shown = self.lines[start : start + min(len(wanted), _SHOWN_LINES)]
        told = "\n".join(f"{number:6}\t{line[:300]}" for number, line in enumerate(shown, start=start + 1))
        pairs = zip(wanted, self.lines[start:], strict=False)
        first = next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)
        differs = "" if first is None else f"\nthe hunk has {first[0][:300]!r} where the file has {first[1][:300]!r}"
        return f"; the nearest lines are\n{told}{differs}"


def _nearest(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Index at which most of `wanted` stands but for blanks, else where its first line is resembled; None = nowhere."""
    bare, bare_wanted = [line.strip() for line in lines], [line.strip() for line in wanted]
    best, best_score = None, 0
    for start in range(len(bare)):
        pairs = zip(bare_wanted, bare[start : start + len(bare_wanted)], strict=False)
        score = sum(1 for mine, theirs in pairs if mine and mine == theirs)
        if score > best_score:
            best, best_score = start, score
    if best is not None:
        return best
    first = next((line for line in bare_wanted if line), "")
    close = difflib.get_close_matches(first, bare[:_SIMILAR_LINES], n=1, cutoff=0.5)
    return max(0, bare.index(close[0]) - bare_wanted.index(first)) if close else None
