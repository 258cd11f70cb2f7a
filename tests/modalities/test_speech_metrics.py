"""Latencies by chunk, whoever answers; real-time sessions; windows."""

from __future__ import annotations

import math

import pytest
from speech_samples import record_of

from vibeserve.contract import CUT, Window
from vibeserve.modalities.speech.metrics import answers_of, measure_speech
from vibeserve.modalities.speech.wire import SpeechRecord
from vibeserve.spec import Slo

ALL = [Window(start_s=0, end_s=100)]


def measured(*records: SpeechRecord, windows: list[Window] | None = None) -> dict[str, float]:
    return measure_speech(records, windows or ALL, chunk_s=0.5, slo=Slo(ttft_s=1.0))


def latencies(record: SpeechRecord) -> list[float]:
    return [round(answer.latency_s, 6) for answer in answers_of(record)]


def test_a_chunk_waits_for_the_first_transcript_that_includes_it() -> None:
    assert latencies(record_of(4, delays=[0.1, 0.2, 0.3, 0.4], final_s=0.5)) == [0.1, 0.2, 0.3, 0.4]


def test_one_transcript_answers_all_chunks_before_it() -> None:
    """Waiting for more audio makes the earlier chunks wait."""
    assert latencies(record_of(4, delays=[None, None, 0.1, 0.2], final_s=0.5)) == [1.1, 0.6, 0.1, 0.2]


def test_the_final_transcript_answers_what_no_partial_did() -> None:
    assert latencies(record_of(2, delays=[None, None], final_s=0.25)) == [0.75, 0.25]


def test_a_transcript_of_earlier_audio_answers_nothing_later() -> None:
    assert latencies(record_of(3, delays=[0.1, 0.1, 0.1], claims=[500, 500, 1500], final_s=None)) == [0.1, 0.6, 0.1]


def test_what_a_failed_recording_left_is_infinitely_late_and_what_was_cut_is_not_counted() -> None:
    failed = record_of(6, delays=[0.1, None, None, None, None, None], final_s=None, error="lost")
    assert latencies(failed)[1:] == [math.inf] * 5
    assert "time_to_partial_p50" not in measured(failed)
    assert measured(failed)["num_late_chunks"] == 5
    cut = record_of(6, delays=[0.1, None, None, None, None, None], final_s=None, error=CUT)
    assert latencies(cut) == [0.1]


def test_percentiles_and_rates() -> None:
    found = measured(record_of(6, delays=[0.1, 0.2, 0.3, 0.4, 0.7, 0.9], final_s=1.5, name="a"))
    assert found["time_to_partial_p50"] == pytest.approx(0.3)
    assert found["realtime_sessions"] == pytest.approx(4 * 0.5 / 100)
    assert found["partial_throughput"] == pytest.approx(7 / 100)
    assert (found["num_chunks"], found["num_late_chunks"]) == (6, 2)
    assert found["goodput"] == pytest.approx(0.01)
    assert "time_to_partial_p99" not in found and "time_to_final_p50" not in found


def test_a_recording_with_one_late_chunk_is_no_goodput() -> None:
    assert measured(record_of(2, delays=[0.1, 1.2], final_s=1.3))["goodput"] == 0


def test_time_to_final_counts_from_the_last_word() -> None:
    records = [record_of(1, delays=[0.1], final_s=0.2 + 0.1 * number, name=str(number)) for number in range(5)]
    assert measured(*records)["time_to_final_p50"] == pytest.approx(0.4)
    broken = record_of(1, delays=[0.1], final_s=None, error="lost")
    assert "time_to_final_p50" not in measured(*records[:2], broken, broken, broken)


def test_a_chunk_belongs_to_the_window_of_its_transcript() -> None:
    record = record_of(4, delays=[0.1, 0.1, 0.1, 0.1], final_s=None, error=CUT)
    assert measured(record, windows=[Window(start_s=10, end_s=11.05)])["num_chunks"] == 1
    assert measured(record, windows=[Window(start_s=11.05, end_s=99)])["num_chunks"] == 3


def test_the_edges_of_long_recordings_are_shown() -> None:
    delays = [0.1] * 10 + [0.2] * 10 + [0.3] * 10
    found = measured(record_of(30, delays=delays, final_s=9.0))
    assert found["mean_partial_first_5s"] == pytest.approx(0.1)
    assert found["mean_partial_last_5s"] == pytest.approx(0.3)
    assert "mean_partial_last_5s" not in measured(record_of(4, delays=[0.1] * 4))


def test_what_a_client_waited_is_what_audits_compare() -> None:
    from vibeserve.live_audits.decisions import block_s, reply_s

    record = record_of(3, delays=[0.1, 0.2, 0.3], final_s=0.4)
    assert record.waited_s == pytest.approx(1.0)
    assert reply_s(record) == pytest.approx(1.0)
    assert block_s([record, record]) == pytest.approx(2.0)
    assert reply_s(record_of(1, delays=[None], final_s=None, error="lost")) == math.inf
