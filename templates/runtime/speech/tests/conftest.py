"""Run from the workspace with `VIBESERVE_MODEL_DIR` naming the model's folder: `python -m pytest tests`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from local_server import LocalServer
from numpy.typing import NDArray
from runtime import placement, weights
from runtime.__main__ import build_service
from runtime.interfaces import ModelConfig
from runtime.parameters import Parameters


@pytest.fixture(scope="session")
def model_dir() -> Path:
    declared = os.environ.get("VIBESERVE_MODEL_DIR")
    if not declared:
        pytest.exit("set VIBESERVE_MODEL_DIR to the folder that holds bf16/", returncode=2)
    placement.configure_threads(1)
    return Path(declared)


@pytest.fixture(scope="session")
def config(model_dir: Path) -> ModelConfig:
    return weights.load_config(model_dir)


@pytest.fixture(scope="session")
def tensors(model_dir: Path) -> dict[str, torch.Tensor]:
    return weights.load_weights(model_dir)


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[LocalServer]:
    """The runtime with its own parameters."""
    with LocalServer(build_service(model_dir, parameters=Parameters())) as running:
        yield running


@pytest.fixture(scope="session")
def speech() -> NDArray[np.float32]:
    """Three seconds with pitch, loudness and pauses as speech has them."""
    return make_speech(3.0, seed=1)


def make_speech(seconds: float, *, seed: int) -> NDArray[np.float32]:
    draw = np.random.default_rng(seed)
    times = np.arange(round(16000 * seconds)) / 16000
    pitch = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 1.7 * times + draw.uniform(0, 6))) / 16000
    voice = sum(np.sin(number * pitch) / number for number in range(1, 12))
    loudness = np.clip(np.sin(2 * np.pi * 2.3 * times + draw.uniform(0, 6)), 0, 1)
    samples: NDArray[np.float32] = (0.2 * voice * loudness + 0.0005 * draw.standard_normal(len(times))).astype(
        np.float32
    )
    return samples
