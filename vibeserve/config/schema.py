"""JSON Schema (draft 2020-12) of target files and of composed specs, generated from the dataclasses of `spec.py`."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any

from vibeserve.spec import MISSING, Spec

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
INTERPOLATION: Schema = {"type": "string", "pattern": r"\$\{[^}]+\}"}
SCALARS: dict[type, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}

FILLED_BY_LOADER = {"name", "dir"}
"""fields of `target:` that a target file may not state"""


def composed_schema() -> Schema:
    """Schema of a composed spec as JSON: every field is there, nothing else is."""
    return {"$schema": DRAFT, "title": "VibeServe composed spec", **_object(Spec, partial=False)}


def target_schema(options: dict[str, list[str]]) -> Schema:
    """Schema of a target file. `options` are the valid options by group."""
    body = _object(Spec, partial=True)
    for name in FILLED_BY_LOADER:
        del body["properties"]["target"]["properties"][name]
    choices = {f"^(override )?/{group}$": _choice(names) for group, names in options.items()}
    selection = {
        "type": "object",
        "patternProperties": choices,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    defaults = {
        "type": "array",
        "description": "groups this target selects, and targets it inherits from",
        "items": {"anyOf": [selection, {"type": "string"}]},
    }
    body["properties"] = {"defaults": defaults, **body["properties"]}
    return {"$schema": DRAFT, "title": "VibeServe target", **body}


def _choice(names: list[str]) -> Schema:
    option = {"enum": names}
    return {"anyOf": [option, {"type": "array", "items": option}]}


def _object(cls: type, *, partial: bool) -> Schema:
    hints = typing.get_type_hints(cls)
    notes = field_notes(cls)
    properties = {}
    for item in fields(cls):
        schema = _type(hints[item.name], partial=partial)
        if item.name in notes:
            schema = {**schema, "description": notes[item.name]}
        default = item.default
        if default is not NO_DEFAULT and default != MISSING:
            schema = {**schema, "default": default.name if isinstance(default, Enum) else default}
        properties[item.name] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema if partial else {**schema, "required": list(properties)}


def _type(hint: Any, *, partial: bool) -> Schema:
    if hint is Any:
        return {}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(argument, partial=partial) for argument in arguments]}
    if hint is type(None):
        return {"type": "null"}
    if is_dataclass(hint):
        return _object(typing.cast(type, hint), partial=partial)
    if origin is list:
        return {"type": "array", "items": _type(arguments[0], partial=partial)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], partial=partial)}
    if isinstance(hint, type) and issubclass(hint, Enum):
        scalar: Schema = {"enum": [member.name for member in hint]}
    else:
        scalar = {"type": SCALARS[hint]}
    return {"anyOf": [scalar, INTERPOLATION]} if partial and hint is not str else scalar


@cache
def field_notes(cls: type) -> dict[str, str]:
    """The string literal below each field of a dataclass, by field name."""
    body = typing.cast(ast.ClassDef, ast.parse(dedent(inspect.getsource(cls))).body[0]).body
    notes = {}
    for above, below in pairwise(body):
        if not isinstance(above, ast.AnnAssign) or not isinstance(above.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            notes[above.target.id] = " ".join(below.value.value.split())
    return notes
