"""`${...}` in a value: only other keys of the spec may be named, because a target means the same everywhere."""

from __future__ import annotations

import re
import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any

from vibeserve.config.words import unknown
from vibeserve.spec import Spec

_OPENING = re.compile(r"(?<!\\)\$\{")
_RESOLVER = re.compile(r"(?<!\\)\$\{\s*([A-Za-z_][\w.]*)\s*:")
_KEY = re.compile(r"(?<!\\)\$\{\s*([\w.\[\]-]+)\s*\}")
_ENVIRONMENT = ("oc.env", "env")


def interpolation_fault(text: str) -> str:
    """Why an interpolation in `text` is not allowed or names no key; empty when all of them may stay."""
    for resolver in _RESOLVER.findall(text):
        if resolver in _ENVIRONMENT:
            return f"'{text}' reads the environment; state the value itself (only secrets are read from there, by name)"
        return f"'{text}' calls '{resolver}'; only keys of the spec may be named, such as ${{budget.rounds}}"
    for key in _KEY.findall(text):
        if not key.startswith("."):
            problem = key_fault(key.replace("[", ".").replace("]", ""))
            if problem:
                return f"'{text}': {problem}"
    if len(_OPENING.findall(text)) != len(_KEY.findall(text)):
        return f"'{text}' is no interpolation; a key of the spec is named as ${{budget.rounds}}"
    return ""


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
        elif hint is Any:
            return None
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
