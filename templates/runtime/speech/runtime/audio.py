"""Bytes -> samples: PCM of any usual rate, as it comes or from a WAV file. Samples are f32 in [-1, 1], mono, 16 kHz."""

from __future__ import annotations

import io
import wave
from math import gcd

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

MIN_RATE_HZ, MAX_RATE_HZ = 8000, 48000
HALF_WIDTH = 16
"""input samples to either side of an output that its filter looks at, at equal rates; wider when the rate falls"""
ROLL_OFF = 0.95
"""of the lower of the two Nyquist frequencies"""
KAISER_BETA = 8.0
"""stop band near -80 dB"""


class AudioError(ValueError):
    """What is no audio that can be read; the text is for the client."""


def from_pcm16(data: bytes) -> Samples:
    """16 bit little-endian mono."""
    if len(data) % 2:
        raise AudioError("pcm16 audio has two bytes a sample; the number of bytes is odd")
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768


def read_wav(data: bytes) -> tuple[Samples, int]:
    """Mono samples and sample rate of a WAV file of 8, 16, 24 or 32 bit PCM; channels are averaged."""
    try:
        with wave.open(io.BytesIO(data), "rb") as stream:
            width, channels, rate = stream.getsampwidth(), stream.getnchannels(), stream.getframerate()
            num_bytes = stream.getnframes() * width * channels
            frames = stream.readframes(stream.getnframes())
    except (wave.Error, EOFError) as error:
        raise AudioError(f"the file is no WAV file of PCM audio: {error}") from error
    if len(frames) < num_bytes:
        raise AudioError(f"the file ends after {len(frames)} of the {num_bytes} bytes of audio that it announces")
    values = _integers(frames, width=width) / float(1 << (8 * width - 1))
    return values.reshape(-1, channels).mean(axis=1).astype(np.float32), rate


def _integers(frames: bytes, *, width: int) -> NDArray[np.float64]:
    if width == 1:
        return np.frombuffer(frames, dtype=np.uint8).astype(np.float64) - 128
    if width == 3:
        parts = np.frombuffer(frames, dtype=np.uint8).reshape(-1, 3).astype(np.int32)
        return ((parts[:, 0] << 8 | parts[:, 1] << 16 | parts[:, 2] << 24) >> 8).astype(np.float64)
    if width in (2, 4):
        return np.frombuffer(frames, dtype=f"<i{width}").astype(np.float64)
    raise AudioError(f"samples of {width} bytes are not supported; supported: 1 to 4")


class Resampler:
    """From one rate to another as the audio comes: a windowed sinc by phases. Parts give exactly what the whole gives.

    Outputs lag by half the filter; `finish` gives the rest. At equal rates it passes everything on as it is.
    """

    def __init__(self, rate_hz: int, *, to_hz: int) -> None:
        if not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
            raise AudioError(f"a rate of {rate_hz} Hz is not supported; supported: {MIN_RATE_HZ} to {MAX_RATE_HZ}")
        common = gcd(rate_hz, to_hz)
        self._up, self._down = to_hz // common, rate_hz // common
        self._half = -(-HALF_WIDTH * max(rate_hz, to_hz) // to_hz)
        self._table = _filter_table(self._up, half=self._half, cutoff=ROLL_OFF * min(1.0, to_hz / rate_hz))
        self._kept = np.zeros(self._half, dtype=np.float32)
        self._first = -self._half
        """position of the first kept input sample"""
        self._next = 0
        """number of the next output"""

    def push(self, samples: Samples) -> Samples:
        if self._up == self._down:
            return samples
        self._kept = np.concatenate((self._kept, samples))
        end = self._first + len(self._kept) - self._half
        last = max(self._next, -(-end * self._up // self._down))
        made = self._outputs(last)
        needed = self._next * self._down // self._up - self._half
        self._kept = self._kept[max(0, needed - self._first) :]
        self._first = max(self._first, needed)
        return made

    def finish(self) -> Samples:
        """What silence behind the end brings out."""
        return self.push(np.zeros(self._half, dtype=np.float32)) if self._up != self._down else np.zeros(0, np.float32)

    def _outputs(self, last: int) -> Samples:
        """Those from `_next` to before `last`: each the table's row of its phase over the inputs around it."""
        if last <= self._next:
            return np.zeros(0, dtype=np.float32)
        places = np.arange(self._next, last) * self._down
        base, phase = places // self._up, places % self._up
        taps = base[:, None] + np.arange(-self._half + 1, self._half + 1) - self._first
        self._next = last
        return (self._kept[taps] * self._table[phase]).sum(axis=1, dtype=np.float64).astype(np.float32)


def _filter_table(num_phases: int, *, half: int, cutoff: float) -> NDArray[np.float64]:
    """Weights by phase, [num_phases, 2 * half]; every row sums to one, so that a constant stays what it is."""
    distance = np.arange(-half + 1, half + 1)[None] - (np.arange(num_phases) / num_phases)[:, None]
    inside = np.clip(1 - (distance / half) ** 2, 0, None)
    weights = np.sinc(cutoff * distance) * np.i0(KAISER_BETA * np.sqrt(inside))
    table: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return table
