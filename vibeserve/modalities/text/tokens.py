"""Re-tokenised counting: how many tokens a reply's text holds and when each was there.

Chunks are never trusted to be tokens and `usage` is never trusted to be a count (measurement hacks 10 to 12). A token
has arrived with the first chunk at which the received text covers the token's end offset in the final text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vibeserve.core.nouns import Reply

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def token_arrivals(replies: Sequence[Reply], *, tokenizer: Tokenizer) -> list[tuple[float, ...]]:
    """For each reply the arrival times of its tokens, ascending, in the reply's own time (active seconds).

    Special tokens are not added; text that the server withheld (such as a skipped EOS) is not counted.
    """
    encodings = tokenizer.encode_batch([reply.text for reply in replies], add_special_tokens=False)
    return [
        _arrivals([end for _, end in encoding.offsets], reply)
        for encoding, reply in zip(encodings, replies, strict=True)
    ]


def count_tokens(reply: Reply, *, tokenizer: Tokenizer) -> int:
    """Tokens of the reply's text."""
    return len(tokenizer.encode(reply.text, add_special_tokens=False).ids)


def _arrivals(ends: Sequence[int], reply: Reply) -> tuple[float, ...]:
    times: list[float] = []
    chunks = iter(reply.chunks)
    covered = 0
    at_s = 0.0
    reached = 0
    for end in ends:
        # a normaliser may report an empty span, or an end below an earlier one; text that is there stays there
        reached = max(reached, end, 1)
        while covered < reached and (chunk := next(chunks, None)) is not None:
            covered += len(chunk.text)
            at_s = max(at_s, chunk.at_s)
        times.append(at_s)
    return tuple(times)
