"""Parameters of this assembly. Written by the assembler; the values are this runtime's only source of defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """One value per declared parameter of the scaffold and its components."""

    max_waiting: int = 64
    """most requests that wait for the model; beyond it the server answers 429"""
    max_steps: int = 200
    """most denoising steps of one image"""
    default_steps: int = 20
    """steps of a request that says none"""
    default_guidance: float = 5.0
    """guidance of a request that says none"""
