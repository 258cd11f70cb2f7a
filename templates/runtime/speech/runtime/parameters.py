"""Parameters of this assembly. Written by the assembler; the values are this runtime's only source of defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """One value per declared parameter of the scaffold and its components."""

    max_sessions: int = 64
    """most clients that speak at the same time; beyond it the server answers 503"""
    max_audio_s: float = 80.0
    """longest audio of one transcript, by the model's positions; a client commits before it"""
