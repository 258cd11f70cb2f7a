"""Workspaces assembled from the shipped skills, built once per session."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
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
            assemble(data_dir("templates") / "runtime" / modality_of(components), components, {}, workspace)
            if not (workspace / "runtime/build.py").is_file():
                return built.setdefault(names, workspace)
            finished = subprocess.run(
                [sys.executable, "-m", "runtime.build"], cwd=workspace, capture_output=True, text=True, check=False
            )
            assert finished.returncode == 0, finished.stderr
            built[names] = workspace
        return built[names]

    return build


def modality_of(components: Sequence[Skill]) -> str:
    """The first one's: whose scaffold they go over."""
    return next((name for skill in components for name in card_of(skill).conditions.modalities), "text")
