"""The load generator: sends what a workload asks for, and keeps what came back and when."""

from __future__ import annotations

from vibeserve.client.session import LoadSession

__all__ = ["LoadSession"]
