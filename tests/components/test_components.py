"""Every shipped component: its card, and the tests that travel with it, in assemblies that are really built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from image_samples import tiny_image_dir, tiny_janus_dir
from speech_samples import tiny_speech_dir

from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import Skill, assemble, compose_scaffold, resolve, write_scaffold
from vibeserve.skills.resolve import card_of
from vibeserve.spec import Modality, Model

COMPONENTS = sorted(path.parent.name for path in data_dir("skills").glob("*/component.yaml"))
EVERYTHING_NATIVE = ("batched-sampling", "continuous-batching", "native-forward", "predicted-outputs")
STOCK_PARTS = ("chunked-prefill", "packed-linears")
HYBRID = ("batched-delta-rule", "hybrid-prefix-cache")
EIGHT_BITS = ("continuous-batching", "int8-groupwise-linears", "native-forward")
ON_A_DEVICE = ("batched-sampling", "cuda-graph-decode", "cuda-paged-kv")


def run_tests(workspace: Path, model_dir: Path, *selection: str) -> None:
    environment = {
        **os.environ, "VIBESERVE_MODEL_DIR": str(model_dir), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "120", *selection]
    finished = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert finished.returncode == 0, finished.stdout[-4000:]


@pytest.mark.parametrize("names", [EVERYTHING_NATIVE, STOCK_PARTS, EIGHT_BITS, HYBRID], ids="+".join)
def test_an_assembly_passes_its_own_tests(built_workspace, model_dir_for, names: tuple[str, ...]) -> None:
    run_tests(built_workspace(*names), model_dir_for(*names), "tests")


@pytest.mark.slow
def test_what_is_for_a_gpu_passes_its_own_tests_on_a_cpu(built_workspace, tiny_model_dir: Path) -> None:
    run_tests(built_workspace(*ON_A_DEVICE), tiny_model_dir, "tests")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_alone_passes_the_tests(built_workspace, model_dir_for, name: str) -> None:
    workspace = built_workspace(name)
    run_tests(workspace, own_model_dir(workspace) or model_dir_for(name), "tests")


def own_model_dir(workspace: Path) -> Path | None:
    """The tiny model of a workspace that listens or draws."""
    models = {"encoder": tiny_speech_dir, "codes": tiny_janus_dir, "png": tiny_image_dir}
    return next((model() for module, model in models.items() if (workspace / f"runtime/{module}.py").is_file()), None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modality", "architecture"), [("speech", "moonshine_streaming"), ("image", "show_o2"), ("image", "janus")]
)
def test_a_scaffold_passes_its_own_tests(tmp_path: Path, modality: str, architecture: str) -> None:
    composition = compose_scaffold(Model(architecture=architecture, modality=Modality(modality)))
    assemble(write_scaffold(composition, tmp_path / "scaffold"), [], {}, tmp_path / "workspace")
    model_dir = own_model_dir(tmp_path / "workspace")
    assert model_dir is not None
    run_tests(tmp_path / "workspace", model_dir, "tests")


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_ships_tests_and_names_what_it_relieves(shipped_skills: list[Skill], name: str) -> None:
    card = card_of(next(skill for skill in shipped_skills if skill.name == name))
    assert card.seams or card.extends
    assert card.relieves
    assert card.expected_factor > 1
    assert any(target.startswith("tests/test_") for target in card.files.values())
    assert all(parameter.doc for parameter in card.parameters.values())


@pytest.mark.parametrize("name", COMPONENTS)
def test_no_asset_is_left_out_of_the_card(shipped_skills: list[Skill], name: str) -> None:
    skill = next(skill for skill in shipped_skills if skill.name == name)
    present = {
        path.relative_to(skill.path).as_posix()
        for path in skill.path.glob("assets/**/*")
        if path.is_file() and path.suffix in (".py", ".cpp", ".h")
    }
    assert present == set(card_of(skill).files)


def test_two_that_fill_one_seam_are_refused_together(shipped_skills: list[Skill]) -> None:
    with pytest.raises(SpecError, match="fill seam 'linear'"):
        resolve(["packed-linears", "widened-bf16-linears"], shipped_skills)


def test_the_native_forward_brings_what_it_is_built_from(shipped_skills: list[Skill]) -> None:
    names = [skill.name for skill in resolve(["native-forward"], shipped_skills)]
    assert names == ["widened-bf16-linears", "batched-decode-attention", "native-forward"]


def test_what_is_for_a_gpu_says_that_it_is_unproven(shipped_skills: list[Skill]) -> None:
    cards = [skill.card for skill in shipped_skills if skill.card is not None]
    on_cuda = {card.name: card.status for card in cards if "cuda" in card.conditions.hardware}
    assert on_cuda == dict.fromkeys(("cuda-decoder", "cuda-graph-decode", "cuda-paged-kv"), "unproven")
    assert {card.status for card in cards if card.name not in on_cuda} == {"proven"}


def test_only_bits_that_the_target_admits(shipped_skills: list[Skill]) -> None:
    for skill in shipped_skills:
        if skill.card is not None and 0 < skill.card.weight_bits < 16:
            assert skill.card.conditions.precision == ("any",)


@pytest.mark.parametrize("architecture", ["-march=x86-64", "-march=haswell"])
@pytest.mark.parametrize("names", [EVERYTHING_NATIVE, EIGHT_BITS], ids="+".join)
def test_native_sources_compile_for_processors_without_avx512(
    built_workspace, names: tuple[str, ...], architecture: str
) -> None:
    sources = sorted(built_workspace(*names).glob("runtime/native/*.cpp"))
    assert sources
    for source in sources:
        command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", architecture, str(source)]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
