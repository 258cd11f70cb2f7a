"""Moonshine's own files: FlatBuffers of ONNX Runtime, 8-bit matrices, and a list of token pieces."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from vibeserve.errors import WeightsError
from vibeserve.weights.moonshine_files import read_moonshine
from vibeserve.weights.ort_files import read_ort


class Builder:
    """Tables and vectors of a FlatBuffer, written one behind the other; references point ahead."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0\0ORTM")

    def table(self, fields: dict[int, int | tuple[str, int]]) -> int:
        """Fields by number: an int is stored as one, a reference is empty until `link` fills it. Returns the place."""
        size = 4 + 2 * (max(fields, default=-1) + 1)
        vtable = len(self.data)
        offsets = [0] * (max(fields, default=-1) + 1)
        for slot, number in enumerate(sorted(fields)):
            offsets[number] = 4 + 4 * slot
        self.data += struct.pack(f"<HH{len(offsets)}H", size, 4 + 4 * len(fields), *offsets)
        place = len(self.data)
        self.data += struct.pack("<i", place - vtable)
        for number in sorted(fields):
            value = fields[number]
            self.data += struct.pack("<i", value if isinstance(value, int) else 0)
        return place

    def link(self, table: int, number: int, target: int) -> None:
        """Let a field of `table` point to `target`, which lies behind it."""
        vtable = table - struct.unpack_from("<i", self.data, table)[0]
        slot = table + struct.unpack_from("<H", self.data, vtable + 4 + 2 * number)[0]
        struct.pack_into("<I", self.data, slot, target - slot)

    def text(self, text: str) -> int:
        place = len(self.data)
        self.data += struct.pack("<I", len(text)) + text.encode() + b"\0"
        return place

    def longs(self, values: list[int]) -> int:
        place = len(self.data)
        self.data += struct.pack(f"<I{len(values)}q", len(values), *values)
        return place

    def raw(self, values: bytes) -> int:
        place = len(self.data)
        self.data += struct.pack("<I", len(values)) + values
        return place

    def vector(self, num: int) -> int:
        place = len(self.data)
        self.data += struct.pack("<I", num) + bytes(4 * num)
        return place

    def point(self, vector: int, number: int, target: int) -> None:
        slot = vector + 4 + 4 * number
        struct.pack_into("<I", self.data, slot, target - slot)


def one_tensor() -> bytes:
    """A session with one graph, of one f32 tensor [2] and no nodes."""
    built = Builder()
    session = built.table({1: ("ref", 0)})
    model = built.table({7: ("ref", 0)})
    graph = built.table({0: ("ref", 0)})
    tensors = built.vector(1)
    tensor = built.table({0: ("ref", 0), 2: ("ref", 0), 3: 1, 4: ("ref", 0)})
    struct.pack_into("<I", built.data, 0, session)
    built.link(session, 1, model)
    built.link(model, 7, graph)
    built.link(graph, 0, tensors)
    built.point(tensors, 0, tensor)
    built.link(tensor, 0, built.text("conv1.weight"))
    built.link(tensor, 2, built.longs([2]))
    built.link(tensor, 4, built.raw(np.array([1.5, -2.0], dtype="<f4").tobytes()))
    return bytes(built.data)


def test_a_tensor_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(one_tensor())
    graph = read_ort(path)
    assert graph.tensors["conv1.weight"].tolist() == [1.5, -2.0] and not graph.nodes


@pytest.mark.parametrize(
    ("data", "told"),
    [(b"", "is no model"), (b"\0\0\0\0GGUF" * 9, "is no model"), (b"\xff\xff\xff\0ORTM", "cannot be read")],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(data)
    with pytest.raises(WeightsError, match=told):
        read_ort(path)


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.ort"
    path.write_bytes(one_tensor()[:-4])
    with pytest.raises(WeightsError, match="longer than the file"):
        read_ort(path)


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"encoder_model\.ort: missing"):
        read_moonshine(tmp_path)


def test_pieces_of_a_tokenizer_are_spelt_out(tmp_path: Path) -> None:
    from vibeserve.weights.moonshine_model import read_pieces, tokenizer_of

    pieces = [
        b"<unk>",
        b"<s>",
        b"</s>",
        *(bytes([number]) for number in range(256)),
        "\u2581hi".encode(),
        b"x" * 200,
        b"A",
    ]
    data = b"".join(
        bytes([len(piece)]) + piece if len(piece) < 128 else bytes([128 + len(piece) % 128, len(piece) // 128]) + piece
        for piece in pieces
    )
    path = tmp_path / "tokenizer.bin"
    path.write_bytes(data)
    assert read_pieces(path) == pieces
    tokenizer = tokenizer_of(pieces)
    assert tokenizer.decode([1, 259, 3 + ord("!"), 261, 2]) == "hi!A"
    assert tokenizer.decode([3 + 0xC3, 3 + 0xA9]) == "\u00e9"
    path.write_bytes(data[:-1])
    with pytest.raises(WeightsError, match="no list of token pieces"):
        read_pieces(path)
