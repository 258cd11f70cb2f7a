"""Workload `streaming_asr`: recordings that are spoken in real time, and how they sound.

A request holds a recipe, not samples: pieces of read speech (`speech.wav`) in an order, at a loudness and with pauses
of their own, over faint noise. Whoever needs the sound renders it, chunk by chunk. No two requests share a chunk that
sounds the same: cuts, gains and noise are the request's, and an encoder that normalises every frame hears the noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Pool, Request
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.sampling import seeded_random

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16000
SAMPLES_PER_MS = SAMPLE_RATE_HZ // 1000
PIECE_MS = (250, 1600)
"""shortest and longest piece of speech; words lie within"""
PAUSE_MS = (40, 400)
PAUSE_SHARE = 0.3
"""of the pieces are followed by a pause"""
GAINS = (0.2, 9.0)
"""log-uniform, quiet to clipped: the loudest saturate, as microphones do"""
FADE_MS = 5
NOISE_AMPLITUDE = 12
"""of 32767; -69 dBFS, a quiet room"""
NOISE_BLOCK_MS = 100
SPEECH_FILE = "speech.wav"


def streaming_asr_stream(workload: Workload, *, pool: Pool, seed: int) -> Iterator[Request]:
    """Endless recordings, a pure function of the arguments; lengths are uniform in the declared range, in whole chunks.

    `payload` of each: `duration_ms`, `chunk_ms` and the recipe (`noise_seed`, `pieces` of [start, length, gain in
    thousandths]; a negative start is a pause). SpecError for lengths that no recording can have.
    """
    low, high, chunk_ms = (round(1000 * s) for s in (workload.audio_s_min, workload.audio_s_max, workload.chunk_s))
    if not 0 < chunk_ms <= high or not 0 < low <= high:
        raise SpecError(
            "the streaming_asr workload's lengths cannot be met",
            problems=[f"audio_s {low / 1000:g} to {high / 1000:g}, chunk_s {chunk_ms / 1000:g}: need 0 < min <= max"],
        )
    return _stream(low, high, chunk_ms, kind=workload, pool=pool, seed=seed)


def _stream(low_ms: int, high_ms: int, chunk_ms: int, *, kind: Workload, pool: Pool, seed: int) -> Iterator[Request]:
    generator = seeded_random(kind, pool=pool, seed=seed)
    number = 0
    while True:
        num_chunks = generator.randint(max(1, -(-low_ms // chunk_ms)), max(1, high_ms // chunk_ms))
        payload = {"chunk_ms": chunk_ms, **recording(generator, duration_ms=num_chunks * chunk_ms)}
        yield Request(request_id=f"{pool.value}-{seed}-{number}", payload=payload)
        number += 1


def recording(generator: random.Random, *, duration_ms: int) -> dict[str, Any]:
    """The recipe of one recording."""
    pieces: list[list[int]] = []
    left_ms = duration_ms
    while left_ms > 0:
        length = min(generator.randint(*PIECE_MS), left_ms)
        start = generator.randint(0, speech_ms() - length)
        pieces.append([start, length, round(1000 * math.exp(generator.uniform(*map(math.log, GAINS))))])
        left_ms -= length
        if left_ms > 0 and generator.random() < PAUSE_SHARE:
            pause = min(generator.randint(*PAUSE_MS), left_ms)
            pieces.append([-1, pause, 0])
            left_ms -= pause
    return {"duration_ms": duration_ms, "noise_seed": generator.getrandbits(48), "pieces": pieces}


def num_chunks_of(payload: Mapping[str, Any]) -> int:
    return int(-(-payload["duration_ms"] // payload["chunk_ms"]))


def chunk_of(payload: Mapping[str, Any], number: int) -> NDArray[np.int16]:
    """Samples of the chunk of that number, at 16 kHz, [num_samples]."""
    start_ms = number * payload["chunk_ms"]
    return rendered(payload, start_ms=start_ms, end_ms=min(start_ms + payload["chunk_ms"], payload["duration_ms"]))


def rendered(payload: Mapping[str, Any], *, start_ms: int, end_ms: int) -> NDArray[np.int16]:
    """Samples of [start_ms, end_ms) of a recording, [num_samples]; parts are exactly those of the whole."""
    import numpy as np

    mixed = np.zeros((end_ms - start_ms) * SAMPLES_PER_MS, dtype=np.float64)
    piece_ms = 0
    for start, length, gain in payload["pieces"]:
        first, last = max(piece_ms, start_ms), min(piece_ms + length, end_ms)
        if start >= 0 and first < last:
            sound = _piece(start, length)[(first - piece_ms) * SAMPLES_PER_MS : (last - piece_ms) * SAMPLES_PER_MS]
            mixed[(first - start_ms) * SAMPLES_PER_MS : (last - start_ms) * SAMPLES_PER_MS] = sound * (gain / 1000)
        piece_ms += length
    mixed += _noise(payload["noise_seed"], start_ms=start_ms, end_ms=end_ms)
    return np.clip(np.rint(mixed), -32768, 32767).astype(np.int16)


def _piece(start_ms: int, length_ms: int) -> NDArray[np.float64]:
    """A piece of the speech with its ends faded, so that a cut is no click."""
    import numpy as np

    sound = _speech()[start_ms * SAMPLES_PER_MS : (start_ms + length_ms) * SAMPLES_PER_MS].astype(np.float64)
    ramp = np.arange(len(sound)) / (FADE_MS * SAMPLES_PER_MS)
    return sound * np.minimum(1.0, np.minimum(ramp, ramp[::-1]))


def _noise(seed: int, *, start_ms: int, end_ms: int) -> NDArray[np.int64]:
    """By blocks with a generator each, so that a chunk needs nothing of what came before."""
    import numpy as np

    first, last = start_ms // NOISE_BLOCK_MS, -(-end_ms // NOISE_BLOCK_MS)
    size = NOISE_BLOCK_MS * SAMPLES_PER_MS
    blocks = [
        np.random.Generator(np.random.Philox(key=[seed, number])).integers(-NOISE_AMPLITUDE, NOISE_AMPLITUDE + 1, size)
        for number in range(first, last)
    ]
    skipped = (start_ms - first * NOISE_BLOCK_MS) * SAMPLES_PER_MS
    return np.concatenate(blocks)[skipped : skipped + (end_ms - start_ms) * SAMPLES_PER_MS]


def speech_ms() -> int:
    """Length of the read speech."""
    return len(_speech()) // SAMPLES_PER_MS


@lru_cache(maxsize=1)
def _speech() -> NDArray[np.int16]:
    """Read speech, 16 kHz mono; its source and licence are in NOTICE."""
    import wave

    import numpy as np

    with wave.open(str(Path(__file__).with_name(SPEECH_FILE)), "rb") as stream:
        frames = stream.readframes(stream.getnframes())
    return np.frombuffer(frames, dtype="<i2").astype(np.int16)
