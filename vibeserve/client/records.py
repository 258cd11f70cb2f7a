"""Requests and records as JSON between the generator and its parent: the data that `core.documents.to_data` gives.

`from_data` would do for reading, but a load has thousands of replies with hundreds of chunks each.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

from vibeserve.contract import Record, Request
from vibeserve.errors import ContractError

Read = Callable[[Any], Any]

HARNESS_FIELDS = ("request", "scheduled_s", "sent_s", "end_s", "error", "load_id")
"""fields of a record that the harness sets; of what `send` says about them only `error` counts"""
_SUPPORTED = "str, int, float, bool, None, Any, enums, dataclasses, named tuples, and tuples, lists and dicts of these"


def to_json(value: Any) -> bytes:
    """One line. TypeError for what is no JSON data, dataclass or enum, ValueError for what holds itself."""
    return json.dumps(value, separators=(",", ":"), default=_plain).encode() + b"\n"


def record_data(record: Record) -> dict[str, Any]:
    """The fields that `send` decides alone."""
    return {name: value for name, value in _plain(record).items() if name not in HARNESS_FIELDS}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    getter = _getter(type(value))  # type: ignore[arg-type]  # classes are hashable
    if getter is None:
        raise TypeError(f"{type(value).__name__} is no JSON data")
    return getter(value)


@lru_cache(maxsize=64)
def _getter(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    """Value -> its fields by name, one level deep; None for a class that is no dataclass."""
    if not dataclasses.is_dataclass(cls):
        return None
    names = tuple(field.name for field in dataclasses.fields(cls))
    if len(names) < 2:
        return lambda value: {name: getattr(value, name) for name in names}
    values_of = attrgetter(*names)
    return lambda value: dict(zip(names, values_of(value), strict=True))


def request_reader(cls: type[Request]) -> Callable[[dict[str, Any]], Request]:
    """The function that rebuilds a request. ContractError where `cls` is none, or holds what JSON cannot."""
    return _checked(cls, base=Request, name="REQUEST")


def record_reader(cls: type[Record]) -> Callable[..., Record]:
    """(what `record_data` gave, the harness's fields by keyword) -> record. TypeError for data of another shape.

    ContractError where `cls` is no record, has a field without a default, or holds what JSON cannot.
    """
    _checked(cls, base=Record, name="RECORD")
    own = [field for field in dataclasses.fields(cls) if field.name not in HARNESS_FIELDS]
    bare = [field.name for field in own if _is_required(field)]
    if bare:
        raise ContractError(
            f"RECORD {cls.__name__}: no default for {', '.join(bare)}",
            problems=["the record of a failed request holds nothing else than its request, its times and its error"],
            hint="docs/contract.md",
        )
    readers = {name: read for name, read in _field_readers(cls).items() if name not in HARNESS_FIELDS}

    def read_record(data: dict[str, Any], **harness: Any) -> Record:
        return cls(**harness, **{name: _read_field(readers, name, value) for name, value in data.items()})

    return read_record


def _checked(cls: Any, *, base: type, name: str) -> Read:
    if not (isinstance(cls, type) and issubclass(cls, base) and dataclasses.is_dataclass(cls)):
        text = f"{name} is {cls!r}, no dataclass that extends vibeserve.contract.{base.__name__}"
        raise ContractError(text, hint="docs/contract.md")
    return _dataclass_reader(cls)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _field_readers(cls: Any) -> dict[str, Read]:
    """Field -> reader. Every class is looked at once per session."""
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise ContractError(
            f"{cls.__name__}: {error}", problems=["types of fields are imported where the class is"]
        ) from error
    return {field.name: reader(hints[field.name]) for field in dataclasses.fields(cls)}


def _dataclass_reader(cls: type) -> Read:
    readers = _field_readers(cls)

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"{data!r:.60} is no {cls.__name__}")
        return cls(**{name: _read_field(readers, name, value) for name, value in data.items()})

    return read


def _read_field(readers: dict[str, Read], name: str, value: Any) -> Any:
    try:
        return readers[name](value)
    except (TypeError, ValueError, KeyError) as error:
        raise TypeError(f"{name}: {error}") from error


def reader(kind: Any) -> Read:
    """The function that rebuilds a value of type `kind` from JSON data, or raises TypeError or ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return lambda value: value
    if kind in _SCALARS:
        return _scalar_reader(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if kind in (tuple, list, dict):
        return kind  # type: ignore[no-any-return]
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple_reader(kind)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence_reader(tuple, arguments[0])
    if origin is tuple:
        return _fixed_reader(arguments)
    if origin is list:
        return _sequence_reader(list, arguments[0])
    if origin is dict and arguments[0] is str:
        return _mapping_reader(arguments[1])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_reader(kind)
    raise ContractError(f"a field of type {kind} cannot be sent as JSON", problems=[f"valid: {_SUPPORTED}"])


_SCALARS: dict[Any, tuple[type, ...]] = {
    str: (str,), int: (int,), float: (float, int), bool: (bool,), type(None): (type(None),), None: (type(None),),
}  # fmt: skip


def _scalar_reader(kind: Any) -> Read:
    accepted = _SCALARS[kind]

    def read(value: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError(f"{value!r:.60} is no {getattr(kind, '__name__', kind)}")
        return value

    return read


def _union_reader(kinds: tuple[Any, ...]) -> Read:
    readers = [reader(kind) for kind in kinds]

    def read(value: Any) -> Any:
        faults = []
        for read_one in readers:
            try:
                return read_one(value)
            except (TypeError, ValueError) as error:
                faults.append(str(error))
        raise TypeError("; ".join(faults))

    return read


def _sequence_reader(make: type, kind: Any) -> Read:
    accepted = _SCALARS.get(kind)
    read = reader(kind)

    def read_all(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"{value!r:.60} is no list")
        if accepted is not None and all(type(item) in accepted for item in value):
            return make(value)
        return make([read(item) for item in value])

    return read_all


def _mapping_reader(kind: Any) -> Read:
    read = reader(kind)

    def read_all(value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError(f"{value!r:.60} is no mapping")
        return {key: read(item) for key, item in value.items()}

    return read_all


def _named_tuple_reader(cls: Any) -> Read:
    """JSON knows no names: such a tuple is a list, which is why it is fast."""
    read = _fixed_reader(tuple(get_type_hints(cls).values()))
    return lambda value: cls(*read(value))


def _fixed_reader(kinds: tuple[Any, ...]) -> Read:
    readers = [reader(kind) for kind in kinds]

    def read(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"{value!r:.60} is no list")
        return tuple(read_one(item) for read_one, item in zip(readers, value, strict=True))

    return read
