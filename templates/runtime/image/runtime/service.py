"""What the HTTP module is given: the engine, and what the API says about it."""

from __future__ import annotations

from dataclasses import dataclass

from .api import Api
from .engine import Engine
from .metrics import Metrics
from .spans import Spans


@dataclass(frozen=True, kw_only=True)
class Service:
    """Everything behind the API."""

    engine: Engine
    api: Api
    metrics: Metrics
    spans: Spans
    model_name: str
    api_key: str | None = None
