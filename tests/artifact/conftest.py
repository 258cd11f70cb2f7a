"""One packaged sample, copied for each test that may change it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import package_sample

from vibeserve.artifact import Packaged
from vibeserve.artifact.pack import point_latest


@pytest.fixture(scope="session")
def packaged_once(tmp_path_factory: pytest.TempPathFactory) -> Packaged:
    return package_sample(tmp_path_factory.mktemp("sample"))


@pytest.fixture
def packaged(packaged_once: Packaged, tmp_path: Path) -> Packaged:
    path = tmp_path / "artifacts" / "sample" / packaged_once.path.name
    shutil.copytree(packaged_once.path, path)
    point_latest(path.parent, path.name)
    return replace(packaged_once, path=path)
