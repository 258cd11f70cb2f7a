"""A packaged runtime, judged and measured again by whoever holds the artifact."""

from __future__ import annotations

from vibeserve.reverification.opponents import Against, Opponents, Predecessor, opponents_of
from vibeserve.reverification.run import Request, measure_again, reverify

__all__ = ["Against", "Opponents", "Predecessor", "Request", "measure_again", "opponents_of", "reverify"]
