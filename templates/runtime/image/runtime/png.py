"""Pixels -> PNG, by the standard library (PNG specification, third edition: https://www.w3.org/TR/png-3/)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
BITS, RGB = 8, 2
LEVEL = 1
"""of compression: the picture leaves for one client at once, and is never stored"""


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """`pixels` [height, width, 3]."""
    height, width, _ = pixels.shape
    unfiltered = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    unfiltered[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, BITS, RGB, 0, 0, 0)
    data = zlib.compress(unfiltered.tobytes(), LEVEL)
    return SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
