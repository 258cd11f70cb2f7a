"""What the dynamic loader binds in an ELF library (System V gABI, chapter 5): read from its dynamic segment.

Section headers are not used: a library without any loads as well as another, and so may lie in them. Only symbols that
a relocation names are bound when a library is loaded, so those are what counts.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_STRSZ = 1, 2, 5, 6, 7, 8, 10
_DT_RPATH, _DT_REL, _DT_JMPREL, _DT_RUNPATH, _DT_AUDIT, _DT_DEPAUDIT = 15, 17, 23, 29, 0x6FFFFEFC, 0x6FFFFEFB
_DT_FILTER, _DT_AUXILIARY = 0x7FFFFFFF, 0x7FFFFFFD
_UNREAD = {
    _DT_RPATH: "DT_RPATH", _DT_RUNPATH: "DT_RUNPATH", _DT_REL: "DT_REL", _DT_AUDIT: "DT_AUDIT",
    _DT_DEPAUDIT: "DT_DEPAUDIT", _DT_FILTER: "DT_FILTER", _DT_AUXILIARY: "DT_AUXILIARY",
}  # fmt: skip
"""entries by which the loader would look elsewhere, or bind in a form that is not read here"""
_ET_DYN = 3


class ElfError(ValueError):
    """The bytes are no 64-bit little-endian library that this can read; the text says what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Library:
    needed: tuple[str, ...]
    """libraries that are loaded with it"""
    undefined: frozenset[str]
    """symbols that it takes from others"""
    rebound: frozenset[str]
    """symbols that it defines and yet looks up by name: another library's of that name would be taken first"""
    entries: tuple[str, ...]
    """dynamic entries that no kernel has, by name: search paths, auditors"""


def read_library(data: bytes) -> Library:
    """The loader's view of one library. Raises ElfError."""
    try:
        return _read(data)
    except ElfError:
        raise
    except (struct.error, ValueError, OverflowError) as error:
        raise ElfError(f"it is a damaged library ({error})") from error


def _read(data: bytes) -> Library:
    loads, tags = _segments(data)
    found: dict[int, int] = dict(tags)
    strings = _at(found.get(_DT_STRTAB, 0), loads)
    symbols = _at(found.get(_DT_SYMTAB, 0), loads)
    undefined: set[str] = set()
    rebound: set[str] = set()
    for index in _bound_symbols(data, found, loads):
        name, info, other, section, _, _ = _SYMBOL.unpack_from(data, symbols + index * _SYMBOL.size)
        text = _text(data, strings + name)
        if section == 0:
            undefined.add(text)
        elif info >> 4 and not other & 3:  # neither local nor hidden
            rebound.add(text)
    return Library(
        needed=tuple(_text(data, strings + value) for tag, value in tags if tag == _DT_NEEDED),
        undefined=frozenset(undefined - {""}),
        rebound=frozenset(rebound - {""}),
        entries=tuple(dict.fromkeys(_UNREAD[tag] for tag, _ in tags if tag in _UNREAD)),
    )


def _segments(data: bytes) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """(address, offset, size) of what is loaded, and the dynamic segment's (tag, value)."""
    if data[:4] != b"\x7fELF":
        raise ElfError("it is no library (no ELF header)")
    header = _HEADER.unpack_from(data)
    if header[1:3] != (2, 1) or header[5] != _ET_DYN:
        raise ElfError("it is no shared library of 64 bits, little-endian")
    start, size, count = header[9], header[13], header[14]
    if size != _SEGMENT.size:
        raise ElfError("its program headers have an unknown size")
    loads: list[tuple[int, int, int]] = []
    tags: list[tuple[int, int]] = []
    for index in range(count):
        kind, _, offset, address, _, file_size, _, _ = _SEGMENT.unpack_from(data, start + index * size)
        if kind == _PT_LOAD:
            loads.append((address, offset, file_size))
        elif kind == _PT_DYNAMIC:
            for position in range(offset, offset + file_size, _DYNAMIC.size):
                tag, value = _DYNAMIC.unpack_from(data, position)
                if tag == 0:
                    break
                tags.append((tag, value))
    if not tags:
        raise ElfError("it has no dynamic segment")
    return loads, tags


def _bound_symbols(data: bytes, found: dict[int, int], loads: list[tuple[int, int, int]]) -> set[int]:
    """Indices of the symbols that its relocations name."""
    indices: set[int] = set()
    for table, size in ((_DT_RELA, _DT_RELASZ), (_DT_JMPREL, _DT_PLTRELSZ)):
        if table not in found:
            continue
        start = _at(found[table], loads)
        for position in range(start, start + found.get(size, 0), _RELA.size):
            _, info, _ = _RELA.unpack_from(data, position)
            indices.add(info >> 32)
    return indices - {0}


def _at(address: int, loads: list[tuple[int, int, int]]) -> int:
    """File offset of a virtual address."""
    for start, offset, size in loads:
        if start <= address < start + size:
            return address - start + offset
    raise ElfError(f"its dynamic segment points outside the file ({address:#x})")


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode("ascii")
