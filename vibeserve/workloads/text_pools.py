"""Real English text that every Python ships, in three disjoint pools.

The source is the standard library's help topics (`pydoc_data.topics`). A paragraph belongs to exactly one pool, by its
digest, so what a candidate's author may see never reappears in selection or certification.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from vibeserve.contract import Pool

MIN_PARAGRAPH_CHARS = 60
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2026": "...",
        "\u2022": "*",
    }
)
"""typographic characters to ASCII: cuts then never fall inside a multi-byte character"""


@lru_cache(maxsize=3)
def paragraphs(pool: Pool) -> tuple[str, ...]:
    """The pool's paragraphs: ASCII, one line each, no duplicates, in the source's order."""
    from pydoc_data.topics import topics

    order = tuple(Pool)
    found: dict[str, None] = {}
    for name in sorted(topics):
        for block in re.split(r"\n\s*\n", topics[name]):
            text = " ".join(block.translate(_PLAIN).split())
            if len(text) < MIN_PARAGRAPH_CHARS or not text.isascii():
                continue
            if order[int(sha256(text.encode()).hexdigest(), 16) % len(order)] is pool:
                found.setdefault(text)
    return tuple(found)
