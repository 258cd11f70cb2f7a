"""The incumbent against itself."""

from __future__ import annotations

import math

import pytest

from vibeserve.benchmark import self_log_ratios
from vibeserve.core.nouns import METRICS
from vibeserve.errors import RefusedError


def test_the_windows_of_one_server_are_an_a_a_series_of_their_own() -> None:
    windows = [{"output_throughput": value} for value in (100.0, 110.0, 99.0, 108.9)]
    logs = self_log_ratios(windows, metric=METRICS["output_throughput"])
    assert [round(math.exp(value), 3) for value in logs] == [1.1, 0.9, 1.1]
    with pytest.raises(RefusedError, match="has no usable output_throughput"):
        self_log_ratios([*windows, {}], metric=METRICS["output_throughput"])
