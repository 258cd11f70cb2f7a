"""Run from the workspace with `VIBESERVE_MODEL_DIR` naming the model's folder: `python -m pytest tests`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_server import LocalServer
from runtime import placement
from runtime.__main__ import build_service
from runtime.parameters import Parameters


@pytest.fixture(scope="session")
def model_dir() -> Path:
    declared = os.environ.get("VIBESERVE_MODEL_DIR")
    if not declared:
        pytest.exit("set VIBESERVE_MODEL_DIR to the model's folder", returncode=2)
    placement.configure_threads(1)
    return Path(declared)


@pytest.fixture(scope="session")
def server(model_dir: Path) -> Iterator[LocalServer]:
    """The runtime with its own parameters."""
    with LocalServer(build_service(model_dir, parameters=Parameters())) as running:
        yield running
