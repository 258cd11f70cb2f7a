"""Workspaces assembled from the shipped skills, built once per session."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir
from vibeserve.skills import Skill, assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.skills.resolve import card_of
from vibeserve.spec import Modality, Model, ModelSource

BuiltWorkspace = Callable[..., Path]
HYBRID = Model(
    id="tiny_olmo_hybrid", architecture="olmo_hybrid", source=ModelSource(config={
        "hidden_size": 64, "vocab_size": 1024, "intermediate_size": 128, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 512, "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
    }),
)  # fmt: skip


def model_of(skills: list[Skill], names: Iterable[str]) -> Model:
    """A small model that all of the components apply to."""
    architectures = [card_of(skill).conditions.architectures for skill in resolve(names, skills)]
    is_llama = all(not each or "llama" in each for each in architectures)
    return Model(architecture="llama") if is_llama else HYBRID


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
            modality = modality_of(components)
            if modality == "text":
                model = model_of(shipped_skills, names)
            else:
                architecture = next(iter(card_of(components[0]).conditions.architectures))
                model = Model(architecture=architecture, modality=Modality(modality))
            scaffold = write_scaffold(compose_scaffold(model), workspace.with_name("scaffold"))
            # what is for a GPU runs the same code here
            has_device = any("device" in card_of(skill).parameters for skill in components)
            assemble(scaffold, components, {"device": "cpu"} if has_device else {}, workspace)
            if not (workspace / "runtime/build.py").is_file():
                return built.setdefault(names, workspace)
            finished = subprocess.run(
                [sys.executable, "-m", "runtime.build"], cwd=workspace, capture_output=True, text=True, check=False
            )
            assert finished.returncode == 0, finished.stderr
            built[names] = workspace
        return built[names]

    return build


@pytest.fixture(scope="session")
def model_dir_for(shipped_skills: list[Skill], tiny_model_dir: Path) -> Callable[..., Path]:
    """`model_dir_for(*component names)`: folder of a small model that they run."""

    def find(*names: str) -> Path:
        model = model_of(shipped_skills, names)
        if model.architecture == "llama":
            return tiny_model_dir
        from vibeserve.weights import materialise

        return materialise(model, cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path

    return find


def modality_of(components: Sequence[Skill]) -> str:
    """The first one's: whose scaffold they go over."""
    return next((name for skill in components for name in card_of(skill).conditions.modalities), "text")
