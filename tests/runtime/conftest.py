"""The shipped text scaffold, assembled without components, and its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_process import RunningServer, serving

from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble


@pytest.fixture(scope="session")
def text_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("scaffold") / "workspace"
    assemble(data_dir("templates") / "runtime/text", [], {}, workspace)
    return workspace


@pytest.fixture(scope="session")
def scaffold_server(
    text_workspace: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    with serving(text_workspace, tiny_model_dir, log=tmp_path_factory.mktemp("log") / "server.log") as running:
        yield running
