"""Overrides of the command line, checked against the schema before Hydra sees them: its messages name no options."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from vibeserve.config.explain import explained
from vibeserve.config.words import unknown
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

HINT = "vibeserve plan NAME shows a target; docs/schemas/spec.schema.json lists every key"


def split_target(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """The name given by `+target=NAME` (None when there is none) and the other overrides."""
    names = []
    others = []
    for override in overrides:
        key, separator, value = override.partition("=")
        if key.lstrip("+") == "target" and separator:
            names.append(value.strip("'\""))
        elif key.lstrip("+") == "target":
            raise SpecError(f"'{override}' names no target", hint="vibeserve +target=NAME (`vibeserve list`)")
        else:
            others.append(override)
    if len(names) > 1 or any("," in name or "(" in name for name in names):
        given = " and ".join(names)
        raise SpecError(f"one run builds one target, given: {given}", hint="a sweep: vibeserve -m +target=A,B")
    return (names[0] if names else None), others


def check_overrides(overrides: Sequence[str], *, options: dict[str, list[str]]) -> None:
    """SpecError that lists every override whose key, group option or syntax is wrong."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    with explained():
        parsed = OverridesParser.create().parse_overrides(overrides=list(overrides))
    problems = [problem for override in parsed for problem in _problems(override, options=options)]
    if problems:
        raise SpecError("overrides are not valid", problems=problems, hint=HINT)


def _problems(override: Override, *, options: dict[str, list[str]]) -> list[str]:
    key, text = override.key_or_group, override.input_line
    if override.is_sweep_override():
        return [f"{text}: several values need a sweep: vibeserve -m ..."]
    if key in options:
        return _group_problems(override, options[key])
    if key.split(".")[0] == "hydra" or key.startswith("hydra/"):
        return []
    fault = key_fault(key)
    return [f"{text}: {fault}"] if fault else []


def _group_problems(override: Override, valid: list[str]) -> list[str]:
    value = override.value()
    if override.is_delete() or isinstance(value, dict):
        return []
    chosen = map(str, value if isinstance(value, list) else [value])
    group = override.key_or_group
    return [f"{override.input_line}: {unknown(group, name, valid)}" for name in chosen if name not in valid]


def key_fault(key: str) -> str | None:
    """Why the dotted `key` names no field of the spec, with the valid ones; None when it does."""
    hint: Any = Spec
    walked: list[str] = []
    for part in key.split("."):
        hint = _without_none(hint)
        if is_dataclass(hint):
            hints = typing.get_type_hints(hint)
            names = [item.name for item in fields(hint)]
            if part not in names:
                where = f"key under {'.'.join(walked)}" if walked else "key"
                return unknown(where, part, names)
            hint = hints[part]
        elif typing.get_origin(hint) in (dict, list):
            hint = typing.get_args(hint)[-1]
        else:
            return f"{'.'.join(walked)} is a value, it has no key '{part}'"
        walked.append(part)
    return None


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(argument for argument in typing.get_args(hint) if argument is not type(None))
    return hint
