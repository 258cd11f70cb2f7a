"""Parameters of this assembly. Written by the assembler; the values are this runtime's only source of defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """One value per declared parameter of the scaffold and its components."""

    device: str = "cpu"
    """where the model runs"""
    dtype: str = "float32"
    """what the model computes in"""
    max_waiting: int = 256
    """most requests that wait for the model; beyond it the server answers 429"""
