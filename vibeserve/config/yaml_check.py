"""Faults of one target file as `file:line:column: where: what`, without composing it.

JSON Schema decides; the positions come from PyYAML's node tree, because a parsed document has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.schema import target_schema
from vibeserve.config.targets import group_options
from vibeserve.config.words import suggest, unknown

if TYPE_CHECKING:
    import yaml
    from jsonschema.exceptions import ValidationError

Mark = tuple[int, int]
Fault = tuple[Mark, str, str]


def file_problems(path: Path, *, cwd: Path) -> list[str]:
    """Every fault of the target file at `path`, in the order of its lines."""
    import yaml

    shown = _shown(path, cwd)
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        duplicates = list(_duplicates(root)) if root is not None else []
        data = yaml.safe_load(text) if not duplicates else None
    except yaml.YAMLError as error:
        return [yaml_fault(error, shown)]
    except UnicodeDecodeError as error:
        return [f"{shown}:1:1: not UTF-8 text: {error.reason} at byte {error.start}"]
    if root is None:
        return [f"{shown}:1:1: the file is empty; a target selects at least a model, a hardware and a workload"]
    faults = duplicates or list(_schema_faults(root, data, target_schema(group_options(cwd))))
    return [f"{shown}:{line}:{column}: {where}: {what}" for (line, column), where, what in sorted(faults)]


def yaml_fault(error: yaml.YAMLError, shown: str) -> str:
    """One line for a YAML syntax error: `file:line:column: what`."""
    mark = getattr(error, "problem_mark", None)
    what = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{shown}:{mark.line + 1}:{mark.column + 1}: YAML: {what}" if mark else f"{shown}: YAML: {what}"


def _shown(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _duplicates(node: yaml.Node, where: str = "$") -> Iterator[Fault]:
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                yield _mark(key), where, f"key '{key.value}' is stated twice"
            seen.add(key.value)
            yield from _duplicates(value, f"{where}.{key.value}")
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _duplicates(value, f"{where}[{index}]")


def _schema_faults(root: yaml.Node, data: Any, schema: dict[str, Any]) -> Iterator[Fault]:
    from jsonschema import Draft202012Validator

    for error in Draft202012Validator(schema).iter_errors(data):
        yield from _faults_of(root, error, tuple(error.absolute_path))


def _faults_of(root: yaml.Node, error: ValidationError, path: tuple[str | int, ...]) -> Iterator[Fault]:
    """`anyOf` is "this, or an interpolation" or "one, or a list": only the shape that was meant is explained."""
    schema: Any = error.schema
    if error.validator == "anyOf":
        meant = _meant_branch(error)
        for cause in [cause for cause in error.context or [] if cause.relative_schema_path[0] == meant]:
            yield from _faults_of(root, cause, path + tuple(cause.relative_path))
    elif error.validator == "additionalProperties":
        known = [*schema.get("properties", {}), *map(_group_of, schema.get("patternProperties", {}))]
        instance: Any = error.instance
        for key in [key for key in instance if not _is_known(str(key), known)]:
            yield (
                _locate(root, [*path, key]),
                _where([*path, key]),
                unknown("key", str(key).removeprefix("override "), known),
            )
    else:
        yield _locate(root, path), _where(path), _wording(error)


def _meant_branch(error: ValidationError) -> int:
    if isinstance(error.instance, list):
        shapes: Any = error.validator_value
        branches = [shape.get("type") for shape in shapes]
        return branches.index("array") if "array" in branches else 0
    return 0


def _group_of(pattern: str) -> str:
    return pattern.removeprefix("^(override )?").removesuffix("$")


def _is_known(key: str, known: Sequence[str]) -> bool:
    return key in known or (key.startswith("override /") and key.removeprefix("override ") in known)


def _wording(error: ValidationError) -> str:
    if error.validator == "enum":
        valid: Any = error.validator_value
        options = [str(option) for option in valid]
        guess = suggest(str(error.instance), options)
        return f"{error.instance!r} is not valid{guess}{' ' if guess else '; '}valid: {', '.join(options)}"
    if error.validator == "type":
        return f"expected {error.validator_value}, got {error.instance!r}"
    return str(error.message)


def _where(path: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _mark(node: yaml.Node) -> Mark:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _locate(node: yaml.Node, path: Sequence[str | int]) -> Mark:
    """Line and column of the deepest node that `path` reaches; of a mapping's entry, its key."""
    import yaml

    mark = _mark(node)
    for part in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            mark = _mark(node)
        elif isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if entry is None:
                break
            mark, node = _mark(entry[0]), entry[1]
    return mark
