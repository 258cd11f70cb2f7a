"""Where a reply ends: at its length, at an end token, or at a stop string, and nowhere else.

The ideas are MLPerf's TEST06 (at most one end token, nothing behind it) and TEST09 (lengths as the reference's). A
length is not compared with that of the reference's own text, which parts from a right reply at the first near tie; the
decision to end is, token by token, teacher-forced.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from vibeserve.contract import Distance, Finding
from vibeserve.core.nouns import Reply
from vibeserve.modalities.text.wire import response_format_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "end_margin"
"""per reply that may end by itself: by how much, in nats, the reference disagrees with where it ended or did not"""
MAX_MEAN_END_MARGIN = 0.05
"""an end is decided once a reply, hence a mean above that of all tokens: near ties are where noise decides"""
MIN_ENDS = 8
"""fewer decisions say little; each of them is a token as well, and judged as one"""


def end_distance(reply: Reply, *, margins: Sequence[float], end_margins: Sequence[float]) -> Distance | None:
    """None where the reply could not end by itself. 0 where the reference ends, or goes on, exactly as the reply does.

    `margins` and `end_margins` are the reference's, one per served id. A reply that went on where the reference would
    have ended counts the largest margin of such a place, one that ended itself where the reference would have gone on
    the end token's own.
    """
    if reply.request.ignore_eos or not end_margins or len(end_margins) != len(margins):
        return None
    # where the reference would have ended, the margin of what was served instead is how much later is worse
    late = [margin for margin, end in zip(margins, end_margins, strict=True) if end == 0.0]
    is_ended = reply.error is None and len(reply.token_ids) < reply.request.max_tokens and not reply.request.stop
    early = margins[-1] if is_ended and reply.finish_reason == "stop" else 0.0
    return Distance(name=END, values=(max([early, *late]),), unit="nats")


def end_findings(values: Sequence[float]) -> Iterator[Finding]:
    """Replies that, taken together, end where the reference would not, or go on where it would end."""
    if len(values) < MIN_ENDS:
        return
    mean = sum(values) / len(values)
    if not mean <= MAX_MEAN_END_MARGIN or not math.isfinite(mean):
        text = f"replies end {mean:.3f} nats from where the reference ends in the mean, at most {MAX_MEAN_END_MARGIN:g}"
        yield Finding(gate="lengths", reason_class="wrong_ends", text=f"{text} is allowed ({len(values)} replies)")


def stop_findings(replies: Sequence[Reply], *, tokenizer: Tokenizer, eos_ids: Collection[int]) -> Iterator[Finding]:
    """A 'stop' without an end token or stop string, and text behind a stop string. Replies whose format may end them
    (`response_format`) are left to their schema."""
    ended = [reply for reply in replies if reply.error is None and response_format_of(reply.request) is None]
    for reason_class, find in (("truncated", _find_unjustified), ("padded", _find_missed)):
        found = [text for reply in ended if (text := find(reply, tokenizer, eos_ids))]
        if found:
            text = f"{found[0]} ({len(found)} of {len(ended)} replies)"
            yield Finding(gate="lengths", reason_class=reason_class, text=text)


def _find_unjustified(reply: Reply, tokenizer: Tokenizer, eos_ids: Collection[int]) -> str:
    ids = reply.token_ids
    if reply.finish_reason != "stop" or not ids:
        return ""
    is_end = not reply.request.ignore_eos and ids[-1] in eos_ids
    if is_end or (reply.request.stop and _first_stop(reply, tokenizer, num_ids=len(ids))):
        return ""
    return f"{reply.request.request_id} says 'stop' without an end token or a stop string"


def _find_missed(reply: Reply, tokenizer: Tokenizer, _: Collection[int]) -> str:
    if not reply.request.stop:
        return ""
    if any(stop in reply.text for stop in reply.request.stop):
        return f"{reply.request.request_id} shows its stop string"
    if _first_stop(reply, tokenizer, num_ids=len(reply.token_ids) - 1):
        return f"{reply.request.request_id} goes on after its stop string"
    return ""


def _first_stop(reply: Reply, tokenizer: Tokenizer, *, num_ids: int) -> str:
    """A stop string that the first `num_ids` ids hold; empty for none."""
    text = tokenizer.decode(list(reply.token_ids[: max(0, num_ids)]), skip_special_tokens=True)
    return next((stop for stop in reply.request.stop if stop in text), "")
