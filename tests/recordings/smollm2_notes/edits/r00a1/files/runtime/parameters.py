"""Parameters of this assembly. Written by the assembler; the values are this runtime's only source of defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """One value per declared parameter of the scaffold and its components."""

    max_context_tokens: int = 2048
    """most tokens of a sequence, prompt and output together"""
    max_num_seqs: int = 1
    """most sequences with a slot in the KV cache"""
    max_waiting: int = 256
    """most requests that wait for a slot; beyond it the server answers 429"""
    prefill_chunk_tokens: int = 0
    """most prompt tokens per step; 0 = a whole prompt at once"""
