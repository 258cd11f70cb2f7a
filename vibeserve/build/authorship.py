"""Who wrote the winner: lines by origin, and the share of the search's gain by the round that brought it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vibeserve.checkpoint import CheckpointStore, list_files
from vibeserve.core.documents import digest_file
from vibeserve.core.manifest import Authorship
from vibeserve.core.nouns import Outcome
from vibeserve.errors import SpecError
from vibeserve.skills.assembler import ASSEMBLY_PATH
from vibeserve.synthesis import Entry

Blamed = dict[str, list[tuple[str, str]]]
"""path -> (line, origin) of every line"""
KEPT = (Outcome.BASELINE, Outcome.ACCEPTED)
Assemble = Callable[[Sequence[str], Mapping[str, Any], Path], object]
"""(components, parameters, folder): writes there what these are assembled to"""


def authorship(
    entries: Sequence[Entry], *, store: CheckpointStore, assemble: Assemble | None = None, before: Blamed | None = None
) -> tuple[Authorship, ...]:
    """Lines of the winner by origin, and the share of the search's log-gain by the round that brought it.

    A line belongs to the scaffold or the component whose file it is in, as long as that file is as it was assembled. Of
    an edited file, a line that was in the kept tree before, or that `assemble` writes there, stays whose it was; any
    other belongs to the round that brought it. The gain is over round 0: the scaffold's own share is 0 by definition. A
    tuning round's gain goes to `tuning`. `before`: whose lines the seed's were, where an artifact says so.
    """
    lines = _lines_by_origin(blame(entries, store=store, assemble=assemble, before=before))
    gains: dict[str, float] = {}
    for entry in entries:
        for origin, gain in _gain(entry):
            gains[origin] = gains.get(origin, 0.0) + gain
    total = sum(gains.values())
    shares = {origin: gain / total if total > 0 else 0.0 for origin, gain in gains.items()}
    return tuple(
        Authorship(origin=origin, lines=lines.get(origin, 0), share_of_log_ratio=round(shares.get(origin, 0.0), 4))
        for origin in sorted({*lines, *shares})
    )


def blame(
    entries: Sequence[Entry], *, store: CheckpointStore, assemble: Assemble | None = None, before: Blamed | None = None
) -> Blamed:
    """Every line of the last kept tree with its origin, carried from kept tree to kept tree; `before` is the first."""
    blamed: Blamed = before or {}
    with TemporaryDirectory(prefix="vibeserve-authorship-") as scratch:
        for entry in entries:
            candidate = entry.record.candidate
            if entry.record.outcome in KEPT and candidate is not None:
                tree = Path(scratch) / candidate.candidate_id
                store.checkout(candidate.commit, tree)
                blamed = _next(blamed, tree, origin=candidate.origin, assemble=assemble)
    return blamed


def _next(before: Blamed, tree: Path, *, origin: str, assemble: Assemble | None) -> Blamed:
    rows = _assembled_files(tree)
    assembled = {name: whose for name, (whose, is_intact) in rows.items() if is_intact}
    brought = {
        name: whose
        for name, (whose, is_intact) in rows.items()
        if not is_intact and whose not in {author for _, author in before.get(name, [])}
    }
    shipped = _shipped(tree, brought, assemble) if assemble is not None and brought else {}
    after: Blamed = {}
    for name in list_files(tree):
        if name == ASSEMBLY_PATH:
            continue
        lines = (tree / name).read_text(encoding="utf-8", errors="replace").splitlines()
        if name in assembled:
            after[name] = [(line, assembled[name]) for line in lines]
        else:
            after[name] = _carried(shipped.get(name) or before.get(name, []), lines, origin=origin)
    return after


def _assembled_files(tree: Path) -> dict[str, tuple[str, bool]]:
    """path -> (origin, whether the file is as it was assembled)"""
    path = tree / ASSEMBLY_PATH
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["files"]
    return {
        row["path"]: (row["origin"], digest_file(tree / row["path"]) == row["digest"])
        for row in rows
        if (tree / row["path"]).is_file()
    }


def _shipped(tree: Path, brought: Mapping[str, str], assemble: Assemble) -> Blamed:
    """The files `brought`, edited in the round that brought them, as their component ships them."""
    assembly = json.loads((tree / ASSEMBLY_PATH).read_text(encoding="utf-8"))
    names = [row["name"] for row in assembly["components"]]
    with TemporaryDirectory(prefix="vibeserve-shipped-") as scratch:
        folder = Path(scratch) / "tree"
        folder.mkdir()
        try:
            assemble(names, assembly["parameters"], folder)
        except SpecError:
            return {}  # components that this version does not ship: what a round edited counts as its own
        return {
            name: [(line, whose) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
            for name, whose in brought.items()
            if (folder / name).is_file()
        }


def _carried(before: Sequence[tuple[str, str]], lines: Sequence[str], *, origin: str) -> list[tuple[str, str]]:
    found = [(line, origin) for line in lines]
    matcher = SequenceMatcher(a=[line for line, _ in before], b=list(lines), autojunk=False)
    for block in matcher.get_matching_blocks():
        found[block.b : block.b + block.size] = before[block.a : block.a + block.size]
    return found


def _lines_by_origin(blamed: Blamed) -> dict[str, int]:
    counts: dict[str, int] = {}
    for rows in blamed.values():
        for _, origin in rows:
            counts[origin] = counts.get(origin, 0) + 1
    return counts


def _gain(entry: Entry) -> Iterator[tuple[str, float]]:
    record = entry.record
    headline = record.decision.headline if record.decision else None
    if record.outcome is Outcome.ACCEPTED and headline is not None and record.candidate is not None:
        yield record.candidate.origin, math.log(headline.ratio)
