"""How far served transcripts are from the reference's for the same audio, and whether they came as transcripts must.

Every partial is held to what the reference writes for exactly the audio that it claims: one of other audio, earlier or
later, is another transcript. What only times can show (`inspect`): a transcript of audio that was not sent yet, the
same audio twice, partials that are kept back until nothing follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from vibeserve.contract import CUT, Context, Distance, Finding, Judgement, Limit, ReplyDistances, Statistic
from vibeserve.modalities.speech.reference import transcripts_of
from vibeserve.modalities.speech.wire import FINAL_MARK, PARTIAL_MARK, SpeechRecord

MARGIN, TEXT = "margin", "text"
FAR_NATS = 0.25
"""as for text: beyond it a token is another one, not a near tie that rounding turned"""
MAX_AFTER_COMMIT_SHARE = 0.25
"""of all partials may come after the client's last word, beside the one of each recording's last chunk. A server that
answers each chunk, or skips to the newest one, has none; one that queues chunks, or keeps its answers back, has many"""
MIN_PARTIALS = 8
"""fewer of them say nothing about shares"""
TOLERANCE_S = 0.002
"""of the clocks: a chunk's time is taken behind its sending"""


def configure(context: Context) -> SpeechCheck:
    return SpeechCheck(context)


class SpeechCheck:
    """See `contract.Check`."""

    def __init__(self, context: Context) -> None:
        tolerances = context.tolerances
        far = float(tolerances["disagreement_margin_max_nats"])
        self.LIMITS: Sequence[Limit] = (
            Limit(distance=MARGIN, statistic=Statistic.mean, bound=float(tolerances["mean_margin_max_nats"]),
                  reason_class="wrong_transcript"),
            Limit(distance=MARGIN, statistic=Statistic.share_at_least, at=far, reason_class="wrong_transcript",
                  bound=float(tolerances["far_disagreement_share_max"])),
            Limit(distance=TEXT, statistic=Statistic.max, bound=0.0, reason_class="wrong_text"),
        )  # fmt: skip

    def compare(self, expected: Any, record: SpeechRecord) -> Sequence[Distance]:
        scored, served = expected["transcripts"], transcripts_of(record.output)
        problems = sorted({each["problem"] for each in scored if each["problem"]})
        if problems:
            return [Distance(name=MARGIN, values=(), missing="; ".join(problems))]
        margins = [margin for each in scored for margin in each["margins"]]
        unlike = [float(each["text"] != own["text"]) for each, own in zip(scored, served, strict=True)]
        return [
            Distance(name=MARGIN, values=tuple(margins), unit="nats", missing="" if margins else "no transcript"),
            Distance(name=TEXT, values=tuple(unlike), missing="" if unlike else "no transcript"),
        ]

    def inspect(self, records: Sequence[SpeechRecord]) -> Sequence[Finding]:
        """What the events and their times show without a reference."""
        return [*_order_findings(records), *_absent_findings(records), *_late_findings(records)]

    def judge(self, replies: Sequence[ReplyDistances]) -> Judgement:
        """Figures alone; the limits decide."""
        margins = [margin for reply in replies for margin in reply.values(MARGIN)]
        if not margins:
            return Judgement()
        return Judgement(
            figures={"num_tokens": float(len(margins)), "top1": sum(margin <= 0 for margin in margins) / len(margins)}
        )

    def same(self, first: SpeechRecord, again: SpeechRecord) -> Sequence[Distance]:
        """Two records of one recording: the same words for the same audio."""
        said = {each["audio_end_ms"]: each["text"] for each in transcripts_of(first.output)}
        unlike = [
            float(said[each["audio_end_ms"]] != each["text"])
            for each in transcripts_of(again.output) if each["audio_end_ms"] in said
        ]  # fmt: skip
        return [Distance(name=TEXT, values=tuple(unlike), missing="" if unlike else "no transcript of the same audio")]


def _order_findings(records: Sequence[SpeechRecord]) -> Iterator[Finding]:
    repeated = unsent = odd = 0
    for record in records:
        if record.output is None:
            continue
        ends = [each["audio_end_ms"] for each in record.output["partials"]]
        repeated += sum(later <= earlier for earlier, later in pairwise(ends))
        payload = record.request.payload
        chunk_ms, duration_ms = payload["chunk_ms"], payload["duration_ms"]
        final = record.output["final"]
        odd += sum(end_ms % chunk_ms != 0 and end_ms != duration_ms for end_ms in ends)
        odd += final is not None and final["audio_end_ms"] != duration_ms
        unsent += _num_unsent(record)
    for reason_class, count, what in (
        ("repeated_partial", repeated, "are of audio that had its partial already"),
        ("unsent_audio", unsent, "are of audio that was not sent yet when they came"),
        ("odd_partial", odd, "are of audio that ends where no chunk ends, or a final one of less than all of it"),
    ):
        if count:
            yield Finding(reason_class=reason_class, text=f"{count} transcripts {what}")


def _num_unsent(record: SpeechRecord) -> int:
    """Where nobody knows when chunks were sent (a planted fault), none."""
    if not record.chunks:
        return 0
    num = 0
    for at_s, mark in record.marks:
        sent_ms = max((end_ms for sent_s, end_ms in record.chunks if sent_s <= at_s + TOLERANCE_S), default=0)
        num += next(iter(mark.values())) > sent_ms
    return num


def _absent_findings(records: Sequence[SpeechRecord]) -> Iterator[Finding]:
    """A finished recording of several chunks has a partial, and a final transcript."""
    whole = [record for record in records if record.error is None and record.output is not None]
    silent = [
        record for record in whole
        if not record.output["partials"] and record.request.payload["duration_ms"] > record.request.payload["chunk_ms"]
    ]  # fmt: skip
    if silent:
        yield Finding(reason_class="missing_partials", text=f"{len(silent)} of {len(whole)} recordings have no partial")
    endless = [record for record in whole if record.output["final"] is None]
    if endless:
        yield Finding(reason_class="missing_final", text=f"{len(endless)} of {len(whole)} recordings have no final one")


def _late_findings(records: Sequence[SpeechRecord]) -> Iterator[Finding]:
    """Partials that came when nothing followed any more, of recordings that have been spoken to their end."""
    spoken = [record for record in records if record.committed_s is not None and record.error in (None, CUT)]
    behind = sum(_is_behind_final(record) for record in spoken)
    if behind:
        yield Finding(reason_class="late_partials", text=f"{behind} recordings have partials behind their final one")
    num = sum(PARTIAL_MARK in mark for record in spoken for _, mark in record.marks)
    late = sum(_num_late(record) for record in spoken)
    if num >= MIN_PARTIALS and late > MAX_AFTER_COMMIT_SHARE * num:
        text = f"{late} of {num} partials came after the client's last word; a quarter is allowed"
        yield Finding(reason_class="late_partials", text=text)


def _num_late(record: SpeechRecord) -> int:
    """Partials after the last word but for one: that of the last chunk cannot come before."""
    last_s = (record.committed_s or 0.0) + TOLERANCE_S
    return max(0, sum(at_s > last_s for at_s, mark in record.marks if PARTIAL_MARK in mark) - 1)


def _is_behind_final(record: SpeechRecord) -> bool:
    kinds = [next(iter(mark)) for _, mark in record.marks]
    return FINAL_MARK in kinds and PARTIAL_MARK in kinds[kinds.index(FINAL_MARK) :]
