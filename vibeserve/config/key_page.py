"""Every key of a target on one page, `docs/keys.md`: the composed schema as tables, one for each group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vibeserve.config.schema import composed_schema
from vibeserve.core.documents import write_text_atomic
from vibeserve.spec import ROLES

HEAD = """\
# Every key

What a target may say, with its default and meaning; generated from the schema (`vibeserve schema spec`). `NAME` stands
for a name of your own, a number in a path (`goals.0`) for the place in a list. A default of *required* has to come from
an option or from the target. [spec.md](spec.md) says how values are written and what wins; the ends of names are units
(`_s _ms _gib _usd`). `agents.ROLE` is each of `agents.planner`, `agents.implementer`, `agents.judge` and
`agents.evaluator`; what is empty or 0 there is taken from `agents`.
"""
TOP = "target"
"""group of the keys that belong to none, besides the group of that name"""
FILLED = ("target.name", "target.dir", "target.inherited_dirs")
"""known from where the file lies"""


def render_key_page() -> str:
    """The page as Markdown."""
    schema = composed_schema()
    groups: dict[str, list[tuple[str, Mapping[str, Any], bool]]] = {}
    for name, node in schema["properties"].items():
        needed = name in schema.get("required", ())
        rows = [row for row in _leaves(name, node, is_required=needed) if row[0] not in FILLED]
        groups.setdefault(name if len(rows) > 1 else TOP, []).extend(rows)
    parts = [HEAD]
    for group, rows in groups.items():
        lines = [_row(path, node, is_required=needed) for path, node, needed in rows]
        parts.append("\n".join([f"## {group}\n", "| key | default | what it is |", "|---|---|---|", *lines]) + "\n")
    return "\n".join(parts)


def write_key_page(path: Path) -> None:
    """Replace `path` by the page."""
    write_text_atomic(path, render_key_page())


def _leaves(path: str, node: Mapping[str, Any], *, is_required: bool) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """(path, schema, whether somebody must set it) of everything below `node` that holds a value."""
    if node.get("properties"):
        required = node.get("required", ())
        for name, child in node["properties"].items():
            if path == "agents" and name in ROLES[1:]:
                continue
            step = "ROLE" if path == "agents" and name in ROLES else name
            yield from _leaves(f"{path}.{step}", child, is_required=name in required)
        return
    entry, step = node.get("additionalProperties"), "NAME"
    if not isinstance(entry, dict):
        entry, step = node.get("items"), "0"
    if isinstance(entry, dict) and entry.get("properties"):
        yield from _leaves(f"{path}.{step}", entry, is_required=is_required)
        return
    yield path, node, is_required


def _row(path: str, node: Mapping[str, Any], *, is_required: bool) -> str:
    told = str(node.get("description", ""))
    values = node.get("enum")
    if values:
        told = f"{', '.join(f'`{value}`' for value in values)}{'. ' if told else ''}{told}"
    escaped = " ".join(told.split()).replace("|", "\\|")
    return f"| `{path}` | {_default(node, is_required=is_required)} | {escaped} |"


def _default(node: Mapping[str, Any], *, is_required: bool) -> str:
    if "default" in node:
        value = node["default"]
        if value in ("", None, [], {}):
            return "empty"
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    if node.get("type") in ("object", "array"):
        return "empty"
    return "*required*" if is_required else ""
