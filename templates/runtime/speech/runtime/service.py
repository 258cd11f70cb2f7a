"""What the HTTP module is given: the engine, and what the API says about it."""

from __future__ import annotations

from dataclasses import dataclass

from .engine import Engine
from .metrics import Metrics
from .parameters import Parameters
from .spans import Spans


@dataclass(kw_only=True)
class Service:
    """Everything behind the API."""

    engine: Engine
    parameters: Parameters
    sample_rate_hz: int
    metrics: Metrics
    spans: Spans
    model_name: str
    api_key: str | None = None
    num_sessions: int = 0
    """clients that speak now"""
