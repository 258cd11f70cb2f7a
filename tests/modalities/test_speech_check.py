"""Speech's check: every transcript against the reference's of the same audio, and what times alone show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from speech_samples import context, record_of, request_of, transcript

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.judging import refusals_of
from vibeserve.contract import CUT, ReplyDistances
from vibeserve.modalities.speech.check import configure
from vibeserve.modalities.speech.faults import configure as configure_faults
from vibeserve.modalities.speech.wire import SpeechRecord


def scored(*margins: list[float], texts: list[str] | None = None, problem: str = "") -> dict[str, Any]:
    told = texts or [f"t{500 * (number + 1)}" for number in range(len(margins))]
    return {
        "transcripts": [
            {"margins": row, "text": text, "problem": problem} for row, text in zip(margins, told, strict=True)
        ]
    }


def refused(record: SpeechRecord, expected: dict[str, Any]) -> set[str]:
    check = configure(context())
    reply = ReplyDistances(request_id="r", distances=tuple(check.compare(expected, record)))
    refusals, _ = refusals_of(Scores(replies=(reply,), limits=tuple(check.LIMITS), judgement=check.judge([reply])))
    return {refusal.reason_class for refusal in refusals}


def inspected(*records: SpeechRecord) -> set[str]:
    return {finding.reason_class for finding in configure(context()).inspect(records)}


RIGHT = record_of(2, delays=[0.1, 0.1], final_s=None, error=CUT)


def test_right_transcripts_pass() -> None:
    assert not refused(RIGHT, scored([0.0] * 4, [0.0] * 7))
    assert not inspected(RIGHT, record_of(12, delays=[0.2] * 12, final_s=0.3))


def test_near_ties_pass_and_other_words_do_not() -> None:
    assert not refused(RIGHT, scored([0.0] * 99, [0.05, *[0.0] * 99]))
    assert refused(RIGHT, scored([0.0] * 4, [4.0, *[0.0] * 6])) == {"wrong_transcript"}
    assert refused(RIGHT, scored([0.0] * 500, [0.3, 0.3, *[0.0] * 500])) == {"wrong_transcript"}


def test_text_unlike_its_ids_is_refused() -> None:
    assert refused(RIGHT, scored([0.0] * 4, [0.0] * 7, texts=["t500", "other"])) == {"wrong_text"}


def test_what_the_reference_cannot_score_is_refused() -> None:
    assert refused(RIGHT, scored([], [], problem="token ids that no transcript holds")) >= {"missing_margin"}
    nothing = replace(RIGHT, output={"partials": [], "final": None})
    assert refused(nothing, scored()) == {"missing_margin", "missing_text"}


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ([500, 500, 1500, 2000], "repeated_partial"),
        ([1000, 500, 1500, 2000], "repeated_partial"),
        ([500, 1500, 1501, 2000], "odd_partial"),
        ([1000, 1500, 2000, 2500], "unsent_audio"),
    ],
)
def test_partials_come_in_order_at_chunks_that_were_sent(claims: list[int], reason: str) -> None:
    record = record_of(5, delays=[0.1] * 4 + [None], claims=claims, final_s=None, error=CUT)
    assert reason in inspected(record)


def test_a_partial_before_its_chunk_was_sent_is_of_audio_that_nobody_heard() -> None:
    assert inspected(record_of(5, delays=[0.1, 0.1, -0.3, 0.1, 0.1])) == {"unsent_audio"}


def test_partials_that_are_kept_back_to_the_end_are_late() -> None:
    """A server that waits for all the audio, and one that queues chunks until it is far behind."""
    burst = record_of(12, delays=[0.5 * (11 - number) + 0.1 for number in range(12)], final_s=0.2)
    assert inspected(burst) == {"late_partials"}
    behind = record_of(12, delays=[0.5 * number for number in range(12)], final_s=6.5)
    assert inspected(behind) == {"late_partials"}


def test_the_newest_partial_may_come_after_the_last_word() -> None:
    assert not inspected(record_of(12, delays=[0.1] * 11 + [0.4], final_s=0.5))
    assert not inspected(record_of(12, delays=[None] * 5 + [0.3] * 6 + [None], final_s=1.5))


def test_a_partial_behind_the_final_one_is_late() -> None:
    assert "late_partials" in inspected(record_of(4, delays=[0.1, 0.1, 0.1, 0.4], final_s=0.2))


def test_recordings_without_partials_or_without_an_end_are_refused() -> None:
    assert inspected(record_of(3, delays=[None] * 3)) == {"missing_partials"}
    assert inspected(record_of(3, delays=[0.1] * 3, final_s=None)) == {"missing_final"}
    assert not inspected(record_of(1, delays=[None]))
    assert not inspected(record_of(3, delays=[0.1] * 3, final_s=None, error=CUT))


def test_a_final_transcript_of_less_than_everything_is_refused() -> None:
    record = record_of(3, delays=[0.1] * 3)
    cut_short = {**record.output, "final": transcript(1000)}
    assert "odd_partial" in inspected(replace(record, output=cut_short))


def test_two_records_of_one_recording_are_the_same_words() -> None:
    check = configure(context())
    (same,) = check.same(RIGHT, RIGHT)
    assert set(same.values) == {0.0}
    other = replace(RIGHT, output={"partials": [transcript(500, text="x")], "final": None})
    (unlike,) = check.same(RIGHT, other)
    assert unlike.values == (1.0,)


class Exact:
    """A reference of which every transcript says its end: three and a bit tokens to a chunk, all different."""

    def run(self, request: Any) -> dict[str, Any]:
        payload = request.payload
        base = payload["noise_seed"] * 1000
        ends = range(payload["chunk_ms"], payload["duration_ms"] + 1, payload["chunk_ms"])
        partials = [self._one(end, [base + end // 100 + n for n in range(end * 13 // 2000 + 1)]) for end in ends]
        return {"partials": partials, "final": partials[-1]}

    def text_of(self, ids: Any) -> str:
        return " ".join(map(str, ids))

    def _one(self, end_ms: int, ids: list[int]) -> dict[str, Any]:
        return {"audio_end_ms": end_ms, "text": self.text_of(ids), "token_ids": ids}


class References:
    def exact(self) -> Any:
        return Exact()

    rounded = exact


def test_every_fault_changes_something_and_keeps_the_shape() -> None:
    request, other = request_of(5), request_of(5, name="other")
    other.payload["noise_seed"] = 2
    right = Exact().run(request)
    for fault in configure_faults(context()).FAULTS:
        made = fault.make(References(), request, other)
        assert [each["audio_end_ms"] for each in made["partials"]] == [500, 1000, 1500, 2000, 2500], fault.name
        assert (made != right) is fault.is_wrong, fault.name


def test_faults_are_tried_on_short_recordings() -> None:
    assert configure_faults(context()).shortened(request_of(40)).payload["duration_ms"] == 2500
