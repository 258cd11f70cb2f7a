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

from vibeserve.config.bounds import most_of
from vibeserve.spec import MISSING, Spec

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
INTERPOLATION: Schema = {"type": "string", "pattern": r"\$\{[^}]+\}"}
SCALARS: dict[type, str] = {int: "integer", float: "number", str: "string", bool: "boolean"}

FILLED_BY_LOADER = {"name", "dir", "inherited_dirs"}
"""fields of `target:` that a target file may not state"""

COMPOSABLE = ("baseline",)
"""groups of which several options may be selected at once"""


def composed_schema() -> Schema:
    """Schema of a composed spec as JSON: every field is there, nothing else is."""
    return {"$schema": DRAFT, "title": "VibeServe composed spec", **_object(Spec, partial=False)}


def target_schema(options: dict[str, list[str]]) -> Schema:
    """Schema of a target file. `options` are the valid options by group."""
    body = body_schema()
    choices = {group: _choice(names, is_composable=group in COMPOSABLE) for group, names in options.items()}
    notes = {group: f"selects the {group}: conf/{group}/NAME.yaml" for group in options}
    selections = {
        f"{spelling}/{group}": {**choice, "description": notes[group]}
        for spelling in ("override ", "")
        for group, choice in choices.items()
    }
    selection = {
        "type": "object",
        "properties": selections,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    inherited = {"type": "string", "description": "name of the target that this one inherits from, or _self_"}
    defaults = {
        "type": "array",
        "description": "the options that this target selects, and the target that it inherits from",
        "items": {"anyOf": [selection, inherited]},
    }
    about = {"$schema": DRAFT, "title": "VibeServe target"}
    return {**about, **body, "properties": {"defaults": defaults, **body["properties"]}}


@cache
def body_schema() -> Schema:
    """Schema of a target's own values: its file without `defaults`. Nobody may write to it."""
    body = _object(Spec, partial=True)
    for name in FILLED_BY_LOADER:
        del body["properties"]["target"]["properties"][name]
    return body


def group_schema(group: str) -> Schema:
    """Schema of `conf/<group>/NAME.yaml`: the values below the group's key; `defaults` names options of that group."""
    body = body_schema()["properties"][group]
    named = {"type": "array", "description": f"options of {group} to start from", "items": {"type": "string"}}
    properties = {"defaults": named, **body.get("properties", {})}
    about = {"$schema": DRAFT, "title": f"VibeServe {group}"}
    return {**about, **{name: value for name, value in body.items() if name != "default"}, "properties": properties}


def schema_at(schema: Schema, key: str) -> Schema:
    """The part of `schema` that describes the dotted `key`, which must exist; an empty schema allows anything."""
    for part in key.split("."):
        schema = next((shape for shape in schema.get("anyOf", []) if shape.get("type") in ("object", "array")), schema)
        if part in schema.get("properties", {}):
            schema = schema["properties"][part]
        elif schema.get("type") == "array":
            schema = schema["items"]
        else:
            below = schema.get("additionalProperties", {})
            schema = below if isinstance(below, dict) else {}
    return schema


def _choice(names: list[str], *, is_composable: bool) -> Schema:
    option = {"enum": names}
    return {"anyOf": [option, {"type": "array", "items": option}]} if is_composable else option


def _object(cls: type, *, partial: bool) -> Schema:
    hints = typing.get_type_hints(cls)
    notes = field_notes(cls)
    properties = {}
    for item in fields(cls):
        schema = _type(hints[item.name], partial=partial)
        _bound(schema, most=most_of(cls.__name__, item.name))
        if item.name in notes:
            schema = {**schema, "description": notes[item.name]}
        default = item.default
        if default is not NO_DEFAULT and default != MISSING:
            schema = {**schema, "default": default.name if isinstance(default, Enum) else default}
        properties[item.name] = schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    about = _docstring(cls)
    schema = {"description": about, **schema} if about else schema
    return schema if partial else {**schema, "required": list(properties)}


def _bound(schema: Schema, *, most: int) -> None:
    """Add the bounds to the numbers that a field's `schema` allows."""
    if schema.get("type") in ("integer", "number"):
        schema |= {"minimum": 0, "maximum": most}
    for shape in schema.get("anyOf", []):
        _bound(shape, most=most)


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
def _class_of(cls: type) -> ast.ClassDef:
    return typing.cast(ast.ClassDef, ast.parse(dedent(inspect.getsource(cls))).body[0])


def _docstring(cls: type) -> str:
    """The docstring as it is written: that which `dataclass` makes up is no description."""
    return " ".join((ast.get_docstring(_class_of(cls)) or "").split())


@cache
def field_notes(cls: type) -> dict[str, str]:
    """The string literal below each field of a dataclass, by field name."""
    notes = {}
    for above, below in pairwise(_class_of(cls).body):
        if not isinstance(above, ast.AnnAssign) or not isinstance(above.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            notes[above.target.id] = " ".join(below.value.value.split())
    return notes
