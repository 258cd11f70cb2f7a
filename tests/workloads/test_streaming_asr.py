"""Recordings: a pure function of seed and pool, no chunk twice, and chunks that are the whole."""

from __future__ import annotations

import numpy as np
import pytest
from speech_samples import WORKLOAD, recordings

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads import Pool
from vibeserve.workloads.streaming_asr import (
    SAMPLES_PER_MS,
    chunk_of,
    num_chunks_of,
    rendered,
    speech_ms,
    streaming_asr_stream,
)


def test_the_same_arguments_give_the_same_recordings_and_others_do_not() -> None:
    first = recordings(8)
    assert recordings(8) == first
    noises = {request.payload["noise_seed"] for request in first}
    for other in (recordings(8, seed=2), recordings(8, pool=Pool.certification), recordings(8, pool=Pool.selection)):
        assert not noises & {request.payload["noise_seed"] for request in other}


def test_lengths_are_whole_chunks_of_the_declared_range() -> None:
    lengths = {request.payload["duration_ms"] for request in recordings(40)}
    assert lengths == {1000, 1500, 2000}
    assert all(sum(length for _, length, _ in request.payload["pieces"]) == request.payload["duration_ms"]
               for request in recordings(40))  # fmt: skip


def test_chunks_together_are_the_recording() -> None:
    for request in recordings(4, Workload(kind="streaming_asr", audio_s_min=1, audio_s_max=2, chunk_s=0.33)):
        payload = request.payload
        whole = rendered(payload, start_ms=0, end_ms=payload["duration_ms"])
        chunks = [chunk_of(payload, number) for number in range(num_chunks_of(payload))]
        assert len(whole) == payload["duration_ms"] * SAMPLES_PER_MS
        np.testing.assert_array_equal(np.concatenate(chunks), whole)


def test_no_chunk_sounds_like_another() -> None:
    chunks = {chunk_of(request.payload, number).tobytes() for request in recordings(20) for number in range(2)}
    assert len(chunks) == 40


def test_recordings_are_quiet_loud_and_clipped_and_have_pauses() -> None:
    requests = recordings(60, Workload(kind="streaming_asr", audio_s_min=4, audio_s_max=4, chunk_s=0.5))
    sounds = [rendered(request.payload, start_ms=0, end_ms=4000) for request in requests]
    assert any((np.abs(sound.astype(int)) >= 32767).any() for sound in sounds)
    assert any(start < 0 for request in requests for start, _, _ in request.payload["pieces"])
    assert all(np.abs(sound).max() > 100 for sound in sounds)


def test_the_read_speech_is_there() -> None:
    assert speech_ms() == 20000


@pytest.mark.parametrize("workload", [
    Workload(kind="streaming_asr", audio_s_min=0, audio_s_max=2),
    Workload(kind="streaming_asr", audio_s_min=3, audio_s_max=2),
    Workload(kind="streaming_asr", audio_s_min=1, audio_s_max=2, chunk_s=5),
])  # fmt: skip
def test_lengths_that_no_recording_has_are_refused(workload: Workload) -> None:
    with pytest.raises(SpecError, match="lengths cannot be met"):
        next(streaming_asr_stream(workload, pool=Pool.visible, seed=1))


def test_a_load_pins_the_length() -> None:
    from vibeserve.spec import Load
    from vibeserve.workloads import at_load

    pinned = at_load(
        Workload(**{**WORKLOAD.__dict__, "loads": {"3s": Load(concurrency=1, audio_s=3)}}), "3s"
    )
    assert {request.payload["duration_ms"] for request in recordings(5, pinned)} == {3000}
