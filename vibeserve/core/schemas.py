"""JSON Schema (draft 2020-12) of document classes: frozen dataclasses of scalars, enums, tuples, mappings and others
like them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
Field = tuple[type, str]
"""a class and one of its fields"""


def _no_notes(cls: type) -> Mapping[str, str]:
    return {}


def _without_none(hint: Any) -> Any:
    """`X` of `X | None`."""
    kept = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    return typing.Union[tuple(kept)]  # noqa: UP007 - made of a list


@dataclasses.dataclass(kw_only=True)
class SchemaWriter:
    """Schemas of classes that refer to each other; `definitions` grows with every class that is met.

    `schema_version` is a constant: the class's default. Every field is required but those in `optional`, and with
    `is_sparse` those whose default is None.
    """

    names: Mapping[Field, str] = dataclasses.field(default_factory=dict)
    """key of a field in the document, where it has another name there"""
    choices: Mapping[Field, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    optional: frozenset[Field] = frozenset()
    is_sparse: bool = False
    """what is None is left out of the document"""
    plain: frozenset[Field] = frozenset()
    """objects that another schema describes"""
    notes: Callable[[type], Mapping[str, str]] = _no_notes
    """description by field"""
    definitions: dict[str, Any] = dataclasses.field(default_factory=dict)

    def reference(self, cls: type) -> dict[str, Any]:
        """A reference to the schema of `cls`."""
        if cls.__name__ not in self.definitions:
            self.definitions[cls.__name__] = {}
            self.definitions[cls.__name__] = self._object(cls)
        return {"$ref": f"#/$defs/{cls.__name__}"}

    def document(self, root: dict[str, Any], *, schema_id: str, title: str) -> dict[str, Any]:
        """A whole schema file around `root`."""
        about = {"$schema": DRAFT, "$id": schema_id, "title": title}
        return {**about, **root, "$defs": dict(sorted(self.definitions.items()))}

    def _object(self, cls: type) -> dict[str, Any]:
        hints, notes = typing.get_type_hints(cls), self.notes(cls)
        properties: dict[str, Any] = {}
        required = []
        for item in dataclasses.fields(cls):
            key = self.names.get((cls, item.name), item.name)
            properties[key] = self._field(cls, item, hints[item.name], note=notes.get(item.name, ""))
            is_left_out = self.is_sparse and item.default is None
            if (cls, item.name) not in self.optional and not is_left_out:
                required.append(key)
        return {
            "type": "object", "properties": properties, "required": sorted(required), "additionalProperties": False
        }  # fmt: skip

    def _field(self, cls: type, item: dataclasses.Field[Any], hint: Any, *, note: str) -> dict[str, Any]:
        choices = self.choices.get((cls, item.name))
        if item.name == "schema_version":
            schema: dict[str, Any] = {"const": item.default}
        elif choices:
            schema = {"enum": list(choices)}
        elif (cls, item.name) in self.plain:
            schema = {"type": "object"}
        else:
            schema = self._type(_without_none(hint) if self.is_sparse and item.default is None else hint)
        return {**schema, "description": note} if note else schema

    def _type(self, hint: Any) -> dict[str, Any]:
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any:
            return {}
        if hint is type(None):
            return {"type": "null"}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (types.UnionType, typing.Union):
            return {"anyOf": [self._type(argument) for argument in arguments]}
        if origin in (tuple, list):
            return {"type": "array", "items": self._type(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._type(arguments[1])}
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return self.reference(hint)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"enum": [member.value for member in hint]}
        return {"type": _SCALARS[hint]}
