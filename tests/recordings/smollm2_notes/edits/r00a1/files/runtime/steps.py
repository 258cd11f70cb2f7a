"""From sequences to a step: the flattening that every scheduler shares."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch

from .interfaces import Batch, Segment, Sequence, Step


def make_step(rows: Items[tuple[Sequence, int]]) -> Step:
    """Flatten (sequence, number of its next rows) into a step; every sequence holds a slot."""
    token_ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    logits_rows: list[int] = []
    sampled: list[Sequence] = []
    for sequence, num_rows in rows:
        assert sequence.slot is not None
        start = sequence.num_computed_tokens
        segments.append(
            Segment(slot=sequence.slot, start_row=len(token_ids), num_rows=num_rows, start_position=start)
        )
        token_ids.extend(sequence.tokens_from(start, num_rows))
        positions.extend(range(start, start + num_rows))
        if start + num_rows == sequence.num_tokens:
            logits_rows.append(len(token_ids) - 1)
            sampled.append(sequence)
    batch = Batch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
        segments=tuple(segments),
        logits_rows=tuple(logits_rows),
    )
    return Step(batch=batch, sequences=tuple(sequence for sequence, _ in rows), sampled=tuple(sampled))
