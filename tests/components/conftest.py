"""Workspaces assembled from the shipped skills, built once per session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir
from vibeserve.skills import Skill, assemble, load_skills, resolve
from vibeserve.skills.resolve import card_of

BuiltWorkspace = Callable[..., Path]


@pytest.fixture(scope="session")
def shipped_skills() -> list[Skill]:
    return load_skills(data_dir("skills"))


@pytest.fixture(scope="session")
def built_workspace(shipped_skills: list[Skill], tmp_path_factory: pytest.TempPathFactory) -> BuiltWorkspace:
    """`built_workspace(*component names)`: the assembled and compiled workspace."""
    built: dict[tuple[str, ...], Path] = {}

    def build(*names: str) -> Path:
        if names not in built:
            workspace = tmp_path_factory.mktemp("components") / "workspace"
            components = resolve(names, shipped_skills)
            # what is for a GPU runs the same code here
            has_device = any("device" in card_of(skill).parameters for skill in components)
            settings = {"device": "cpu"} if has_device else {}
            assemble(data_dir("templates") / "runtime/text", components, settings, workspace)
            finished = subprocess.run(
                [sys.executable, "-m", "runtime.build"], cwd=workspace, capture_output=True, text=True, check=False
            )
            assert finished.returncode == 0, finished.stderr
            built[names] = workspace
        return built[names]

    return build
