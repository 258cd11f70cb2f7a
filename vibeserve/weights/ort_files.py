"""Read what a model file of ONNX Runtime's own format (`.ort`) holds: initialisers and nodes. Nothing is run.

The format is a FlatBuffer (onnxruntime, `core/flatbuffers/schema/ort.fbs`; format version 5 and 6 were read). Only the
fields that name and hold tensors are read here, by their place in the schema; a file that is none, or that points
outside of itself, is a WeightsError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from vibeserve.errors import WeightsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

IDENTIFIER = b"ORTM"
SESSION_MODEL, MODEL_GRAPH = 1, 7
GRAPH_INITIALISERS, GRAPH_NODES = 0, 2
TENSOR_NAME, TENSOR_DIMS, TENSOR_TYPE, TENSOR_RAW = 0, 2, 3, 4
NODE_NAME, NODE_TYPE, NODE_INPUTS, NODE_ATTRIBUTES = 0, 5, 8, 10
ATTRIBUTE_NAME, ATTRIBUTE_GRAPH = 0, 7
"""places of fields in the schema's tables"""
DTYPES = {1: "<f4", 2: "|u1", 3: "|i1", 6: "<i4", 7: "<i8", 10: "<f2"}
"""ONNX's tensor types by number; others are left out"""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Node:
    name: str
    kind: str
    inputs: tuple[str, ...]


@dataclass(kw_only=True)
class OrtGraph:
    """Initialisers and nodes, those of nested graphs (the branches of an `If`) included."""

    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


def read_ort(path: Path) -> OrtGraph:
    """WeightsError for a file that is not of this format."""
    data = path.read_bytes()
    if data[4:8] != IDENTIFIER:
        raise WeightsError(f"{path}: is no model of ONNX Runtime's format (.ort)")
    found = OrtGraph()
    try:
        session = _Table(data, struct.unpack_from("<I", data, 0)[0])
        graph = session.table(SESSION_MODEL).table(MODEL_GRAPH)
        _collect(graph, found)
    except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
        raise WeightsError(f"{path}: cannot be read ({type(error).__name__}: {error})") from error
    return found


class _Table:
    """One table of a FlatBuffer: fields by their number, absent ones empty."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - struct.unpack_from("<i", data, place)[0]
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    def _at(self, number: int) -> int:
        """Where the field lies; 0 = absent."""
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return 0
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0]
        return self._place + offset if offset else 0

    def _reference(self, number: int) -> int:
        place = self._at(number)
        return place + struct.unpack_from("<I", self._data, place)[0] if place else 0

    def table(self, number: int) -> _Table:
        place = self._reference(number)
        if not place:
            raise ValueError(f"field {number} is missing")
        return _Table(self._data, place)

    def has(self, number: int) -> bool:
        return bool(self._at(number))

    def integer(self, number: int) -> int:
        place = self._at(number)
        return int(struct.unpack_from("<i", self._data, place)[0]) if place else 0

    def text(self, number: int) -> str:
        place = self._reference(number)
        return _text(self._data, place) if place else ""

    def raw(self, number: int) -> memoryview:
        start, num = self._vector(number)
        if start + num > len(self._data):
            raise ValueError("a vector is longer than the file")
        return memoryview(self._data)[start : start + num]

    def longs(self, number: int) -> tuple[int, ...]:
        start, num = self._vector(number)
        return struct.unpack_from(f"<{num}q", self._data, start) if num else ()

    def tables(self, number: int) -> Iterator[_Table]:
        return self._elements(number, lambda place: _Table(self._data, place))

    def texts(self, number: int) -> Iterator[str]:
        return self._elements(number, lambda place: _text(self._data, place))

    def _elements(self, number: int, read: Callable[[int], T]) -> Iterator[T]:
        start, num = self._vector(number)
        for place in range(start, start + 4 * num, 4):
            yield read(place + struct.unpack_from("<I", self._data, place)[0])

    def _vector(self, number: int) -> tuple[int, int]:
        """(first element, how many)"""
        place = self._reference(number)
        return (place + 4, struct.unpack_from("<I", self._data, place)[0]) if place else (0, 0)


def _text(data: bytes, place: int) -> str:
    length = struct.unpack_from("<I", data, place)[0]
    return data[place + 4 : place + 4 + length].decode()


def _collect(graph: _Table, found: OrtGraph) -> None:
    import numpy as np

    for tensor in graph.tables(GRAPH_INITIALISERS):
        dtype = DTYPES.get(tensor.integer(TENSOR_TYPE))
        if dtype is not None:
            values = np.frombuffer(tensor.raw(TENSOR_RAW), dtype=dtype)
            found.tensors[tensor.text(TENSOR_NAME)] = values.reshape(tensor.longs(TENSOR_DIMS))
    for node in graph.tables(GRAPH_NODES):
        found.nodes.append(
            Node(name=node.text(NODE_NAME), kind=node.text(NODE_TYPE), inputs=tuple(node.texts(NODE_INPUTS)))
        )
        for attribute in node.tables(NODE_ATTRIBUTES):
            if attribute.has(ATTRIBUTE_GRAPH):
                _collect(attribute.table(ATTRIBUTE_GRAPH), found)
