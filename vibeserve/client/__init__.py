"""The load generator: sends what a workload asks for, keeps every reply, counts tokens itself."""

from __future__ import annotations

from vibeserve.client.session import LoadSession
from vibeserve.client.tokens import count_tokens, token_arrivals

__all__ = ["LoadSession", "count_tokens", "token_arrivals"]
