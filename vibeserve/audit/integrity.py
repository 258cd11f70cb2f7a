"""Digests before and after: what judges, the workspace and the weights must not change while they are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vibeserve.core.documents import digest_file, digest_tree
from vibeserve.core.nouns import Refusal

Snapshot = dict[str, dict[str, str]]
"""root (absolute) -> relative path -> digest"""


def snapshot(roots: Sequence[Path]) -> Snapshot:
    """Digests of every file below each root; a root that is a file stands for itself; a missing root is empty."""
    taken: Snapshot = {}
    for root in roots:
        if root.is_file():
            taken[str(root)] = {root.name: digest_file(root)}
        else:
            taken[str(root)] = digest_tree(root) if root.is_dir() else {}
    return taken


def compare(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[Refusal]:
    """One refusal (gate `integrity`, class `digest_mismatch`) per file that changed, vanished or appeared."""
    refusals = []
    for root in sorted(set(before) | set(after)):
        old, new = before.get(root, {}), after.get(root, {})
        for name in sorted(set(old) | set(new)):
            if old.get(name) == new.get(name):
                continue
            change = "appeared" if name not in old else "vanished" if name not in new else "changed"
            refusals.append(
                Refusal(
                    gate="integrity",
                    reason_class="digest_mismatch",
                    file=name,
                    text=f"{name} {change} {_below(root, name)}while it was measured",
                )
            )
    return refusals


def _below(root: str, name: str) -> str:
    """Nothing for a root that is the file itself."""
    return "" if Path(root).name == name else f"below {Path(root).name}/ "
