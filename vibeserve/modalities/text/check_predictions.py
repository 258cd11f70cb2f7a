"""What a server says of a prediction, against the prediction and the reply: counts that cannot be are refused.

`accepted_prediction_tokens` are tokens of the prediction that are in the completion, `rejected_prediction_tokens` all
its others, as the OpenAI API defines them. Servers that say nothing of predictions, as stock engines do, are not
refused here: the probes ask a candidate for the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vibeserve.contract import Finding
from vibeserve.core.nouns import Reply
from vibeserve.workloads.predictions import predicted_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

GATE, REASON = "usage", "prediction_usage"


def prediction_findings(replies: Sequence[Reply], *, tokenizer: Tokenizer) -> list[Finding]:
    """At most one, with the first reply's fault and how many have one. Replies that failed or were cut are left out."""
    complete = [reply for reply in replies if reply.error is None]
    faults = [
        f"{reply.request.request_id} {fault}"
        for reply in complete
        if (fault := next(_faults(reply, tokenizer=tokenizer), ""))
    ]
    if not faults:
        return []
    return [Finding(gate=GATE, reason_class=REASON, text=f"{faults[0]} ({len(faults)} of {len(complete)} replies)")]


def _faults(reply: Reply, *, tokenizer: Tokenizer) -> Iterator[str]:
    usage, predicted = reply.usage, predicted_text(reply.request)
    accepted = None if usage is None else usage.accepted_prediction_tokens
    rejected = None if usage is None else usage.rejected_prediction_tokens
    if accepted is None and rejected is None:
        return
    yield from count_faults(accepted or 0, rejected or 0, predicted or "", reply.token_ids, tokenizer=tokenizer)


def count_faults(
    accepted: int, rejected: int, predicted: str, token_ids: Sequence[int], *, tokenizer: Tokenizer
) -> Iterator[str]:
    """What is wrong with the counts of one reply, without its content."""
    # a server may put special tokens before the text, as the model's own post-processor does
    ids = tokenizer.encode(predicted).ids if predicted else []
    if accepted < 0 or rejected < 0:
        yield f"reports {accepted} accepted and {rejected} rejected prediction tokens"
    if accepted + rejected > len(ids):
        yield f"reports {accepted} + {rejected} prediction tokens, the prediction has {len(ids)}"
    num_common = sum((Counter(ids) & Counter(token_ids)).values())
    if accepted > num_common:
        yield f"reports {accepted} accepted prediction tokens, {num_common} of the prediction are in the reply"
