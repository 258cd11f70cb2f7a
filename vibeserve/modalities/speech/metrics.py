"""From recordings to the metrics of windows.

- Time to partial: from the moment a chunk was sent to the first transcript, partial or final, of audio that includes
  it. Whoever waits for more audio makes the earlier chunks wait; one transcript may answer several chunks.
- Time to final: from the client's word that nothing follows to the final transcript.
- Real-time sessions: seconds of audio, per second, whose transcript came before the next chunk was due. A server that
  falls behind holds none of it.
- Partial throughput: transcripts that came per second. It tells servers apart that are too slow for their load.
- A chunk belongs to the window in which its transcript came. What a failed recording left unanswered is infinitely
  late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vibeserve.contract import CUT, MIN_SAMPLES, Direction, Metric, Window, percentile
from vibeserve.core.nouns import METRICS
from vibeserve.modalities.speech.wire import SpeechRecord
from vibeserve.spec import Slo

MEASURED: tuple[Metric, ...] = (
    *(METRICS[f"time_to_partial_p{percent}"] for percent in MIN_SAMPLES),
    *(Metric(name=f"time_to_final_p{percent}", unit="s", direction=Direction.MIN) for percent in MIN_SAMPLES),
    METRICS["realtime_sessions"],
    Metric(name="partial_throughput", unit="partials/s", direction=Direction.MAX),
    METRICS["goodput"],
)
"""goodput is speech's own: a recording counts where every chunk met the SLO's time to the first output"""
EDGE_MS = 5000
"""of a recording, for the means of its beginning and its end"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A chunk and when the transcript of it came; infinite where a failed recording has none."""

    end_ms: int
    chunk_ms: int
    sent_s: float
    answered_s: float

    @property
    def latency_s(self) -> float:
        return self.answered_s - self.sent_s


def measure_speech(
    records: Sequence[SpeechRecord], windows: Sequence[Window], *, chunk_s: float, slo: Slo
) -> dict[str, float]:
    """`MEASURED` and diagnostics over the union of disjoint windows.

    Always there: realtime_sessions, partial_throughput, goodput, num_chunks, num_late_chunks. With enough samples:
    time_to_{partial,final}_{p50,p99}. mean_partial_{first,last}_5s: of the first and the last 5 s of longer recordings.
    """
    answered = [(record, list(answers_of(record))) for record in records]
    chunks = [answer for _, answers in answered for answer in answers if _inside(answer, windows)]
    finals = [final_s for record in records if (final_s := _final_s(record, windows)) is not None]
    in_time = [answer for answer in chunks if answer.latency_s <= chunk_s]
    duration_s = sum(window.end_s - window.start_s for window in windows)
    met = [
        record for record, answers in answered
        if record.error is None and _any_holds(windows, record.end_s)
        and all(answer.latency_s <= slo.ttft_s for answer in answers)
    ]  # fmt: skip
    metrics = {
        "realtime_sessions": sum(answer.chunk_ms for answer in in_time) / 1000 / duration_s,
        "partial_throughput": _num_transcripts(records, windows) / duration_s,
        "goodput": len(met) / duration_s,
        "num_chunks": float(len(chunks)),
        "num_late_chunks": float(len(chunks) - len(in_time)),
    }
    for name, values in (("time_to_partial", [each.latency_s for each in chunks]), ("time_to_final", finals)):
        for percent in MIN_SAMPLES:
            value = percentile(values, percent)
            if value is not None:
                metrics[f"{name}_p{percent}"] = value
    return metrics | dict(_edges(answered, windows))


def _num_transcripts(records: Sequence[SpeechRecord], windows: Sequence[Window]) -> int:
    """That came, partial or final, whatever they answer."""
    return sum(_any_holds(windows, at_s) for record in records for at_s, _ in record.marks)


def answers_of(record: SpeechRecord) -> Iterator[Answer]:
    """Every chunk that has its transcript; of a failed recording all chunks."""
    covered = [(at_s, int(next(iter(mark.values())))) for at_s, mark in record.marks]
    is_failed = record.error not in (None, CUT)
    before_ms = place = 0
    for sent_s, end_ms in record.chunks:
        while place < len(covered) and covered[place][1] < end_ms:
            place += 1
        if place < len(covered) or is_failed:
            answered_s = covered[place][0] if place < len(covered) else math.inf
            yield Answer(end_ms=end_ms, chunk_ms=end_ms - before_ms, sent_s=sent_s, answered_s=answered_s)
        before_ms = end_ms


def _inside(answer: Answer, windows: Sequence[Window]) -> bool:
    """An answer that never came belongs to where it was waited for."""
    at_s = answer.answered_s if math.isfinite(answer.answered_s) else answer.sent_s
    return _any_holds(windows, at_s)


def _any_holds(windows: Sequence[Window], at_s: float) -> bool:
    return any(window.holds(at_s) for window in windows)


def _final_s(record: SpeechRecord, windows: Sequence[Window]) -> float | None:
    """Seconds to the final transcript; infinite for a recording that failed, None for one beside the windows."""
    if record.error == CUT or not _any_holds(windows, record.end_s):
        return None
    at_s = [at_s for at_s, mark in record.marks if "final_ms" in mark]
    if record.error is not None or record.committed_s is None or not at_s:
        return math.inf
    return at_s[-1] - record.committed_s


def _edges(
    answered: Sequence[tuple[SpeechRecord, Sequence[Answer]]], windows: Sequence[Window]
) -> Iterator[tuple[str, float]]:
    first, last = [], []
    for record, answers in answered:
        duration_ms = record.request.payload["duration_ms"]
        for answer in answers if duration_ms >= 2 * EDGE_MS else ():
            if _inside(answer, windows) and math.isfinite(answer.latency_s):
                if answer.end_ms <= EDGE_MS:
                    first.append(answer.latency_s)
                elif answer.end_ms > duration_ms - EDGE_MS:
                    last.append(answer.latency_s)
    for name, values in (("first", first), ("last", last)):
        if values:
            yield f"mean_partial_{name}_5s", sum(values) / len(values)
