"""From sequences to a step: the flattening that every scheduler shares."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Items

import torch

from .interfaces import Batch, Segment, Sequence, Step

NO_DRAFTS: Mapping[Sequence, Items[int]] = {}


def make_step(rows: Items[tuple[Sequence, int]], *, drafts: Mapping[Sequence, Items[int]] = NO_DRAFTS) -> Step:
    """Flatten (sequence, number of its next rows) into a step; every sequence holds a slot.

    `drafts`: guessed token ids that follow the last known token of a sequence, whose rows go up to that token.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    logits_rows: list[int] = []
    sampled: list[Sequence] = []
    for sequence, num_rows in rows:
        assert sequence.slot is not None
        start, start_row = sequence.num_computed_tokens, len(token_ids)
        draft = drafts.get(sequence, ())
        token_ids += [*sequence.tokens_from(start, num_rows), *draft]
        segments.append(
            Segment(
                slot=sequence.slot, start_row=start_row, num_rows=num_rows + len(draft), start_position=start,
                num_draft_rows=len(draft),
            )
        )
        positions.extend(range(start, start + num_rows + len(draft)))
        if start + num_rows == sequence.num_tokens:
            logits_rows.extend(range(start_row + num_rows - 1, len(token_ids)))
            sampled.extend([sequence] * (1 + len(draft)))
    batch = Batch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
        segments=tuple(segments),
        logits_rows=tuple(logits_rows),
    )
    return Step(batch=batch, sequences=tuple(sequence for sequence, _ in rows), sampled=tuple(sampled))
