"""Run from the workspace with `VIBESERVE_MODEL_DIR` naming the model's folder: `python -m pytest tests`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from local_server import LocalServer
from runtime import placement, weights
from runtime.__main__ import build_service
from runtime.interfaces import ModelConfig, Request
from runtime.model import Model
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
def model(tensors: dict[str, torch.Tensor], config: ModelConfig) -> Model:
    return Model(tensors, config=config, parameters=Parameters())


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[LocalServer]:
    """The runtime with its own parameters."""
    with LocalServer(build_service(model_dir, parameters=Parameters())) as running:
        yield running


def asked(**changes: object) -> Request:
    fields = {
        "request_id": "test", "token_ids": (300, 301, 302, 303), "guidance": 3.0, "temperature": 1.0, "seed": 5,
    }  # fmt: skip
    return Request(**(fields | changes))  # type: ignore[arg-type]
