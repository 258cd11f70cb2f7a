"""Compute threads."""

from __future__ import annotations

import torch


def configure_threads(num_threads: int) -> None:
    """Compute threads of the calling thread; OpenMP keeps their number for each of them. The cores come from the
    affinity that the process was started with."""
    torch.set_num_threads(num_threads)
