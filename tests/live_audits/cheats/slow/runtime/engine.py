"""Slow and honest: the control."""

from __future__ import annotations

from .costs import SlowEngine as Engine

__all__ = ["Engine"]
