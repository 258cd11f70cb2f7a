"""Where a JSON text stands, byte by byte, and what its writer puts between names and values. No grammar, no tensors."""

from __future__ import annotations

from collections import defaultdict
from copy import copy
from dataclasses import dataclass, field
from enum import Enum

SPACE = b" \n\r\t"
MAX_KEPT = 3
"""joints of one place that are remembered; the latest first"""


class Place(Enum):
    """What a joint (quotation marks, commas, brackets, white space) may follow."""

    BEGINNING = "the beginning of a document"
    NAME = "the letters of a name"
    TEXT = "the letters of a text"
    VALUE = "a whole value"
    COLON = "a colon"
    OPENING = "an opening bracket or a comma"


JOINTS: dict[Place, tuple[str, ...]] = {
    Place.BEGINNING: ('{"', "{"),
    Place.NAME: ('":"', '":', '": "', '":["', '":[', '":{"', '":{'),
    Place.TEXT: ('","', '",', '", "', '"]', '"],"', '"}'),
    Place.VALUE: (',"', ",", ', "', "}", "]", "},"),
    Place.COLON: ('"', ' "', "[", "{"),
    Place.OPENING: ('"', ' "'),
}
"""tried in this order where nothing is known of the writer"""


@dataclass
class JsonText:
    """The state after some bytes of one document."""

    in_string: bool = False
    is_name: bool = False
    """of the string that it is in, or was in last"""
    is_escaped: bool = False
    containers: list[int] = field(default_factory=list)
    """opening brackets that are not closed"""
    last: int = 0
    """last byte that is no white space; 0 at the beginning"""
    expects_name: bool = False

    def copied(self) -> JsonText:
        other = copy(self)
        other.containers = list(self.containers)
        return other

    def add(self, text: bytes) -> None:
        for byte in text:
            if self.in_string:
                self._add_to_string(byte)
            elif byte not in SPACE:
                self._add_outside(byte)

    @property
    def place(self) -> Place:
        if self.last == 0:
            return Place.BEGINNING
        if self.in_string:
            return Place.NAME if self.is_name else Place.TEXT
        if self.last in b"{[,":
            return Place.OPENING
        return Place.COLON if self.last in b":" else Place.VALUE

    def _add_to_string(self, byte: int) -> None:
        if self.is_escaped:
            self.is_escaped = False
        elif byte in b"\\":
            self.is_escaped = True
        elif byte in b'"':
            self.in_string = False
        self.last = byte

    def _add_outside(self, byte: int) -> None:
        if byte in b'"':
            self.in_string, self.is_name = True, self.expects_name
        elif byte in b"{[":
            self.containers.append(byte)
        elif byte in b"}]" and self.containers:
            self.containers.pop()
        is_object = bool(self.containers) and self.containers[-1] in b"{"
        self.expects_name = is_object and byte in b"{,"
        self.last = byte


class Joints:
    """How one reply joins its names and values: the next ones will most likely be joined in the same way."""

    def __init__(self, usual: dict[Place, list[int]]) -> None:
        self._usual = usual
        self._seen: dict[Place, list[int]] = defaultdict(list)

    def candidates(self, place: Place) -> list[int]:
        """Token ids, the likeliest first."""
        seen = self._seen[place]
        return [*seen, *(each for each in self._usual.get(place, ()) if each not in seen)]

    def note(self, place: Place, token_id: int) -> None:
        """The reply went on from `place` with this joint."""
        others = [each for each in self._seen[place] if each != token_id]
        self._seen[place] = [token_id, *others][:MAX_KEPT]


def is_joint(text: bytes) -> bool:
    """Whether a token's text is nothing but punctuation and white space of JSON."""
    return bool(text) and all(byte in b'{}[]":, \n' for byte in text)
