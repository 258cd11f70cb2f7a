"""Where round 0 comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scaffold_samples import write_target

from vibeserve.core.documents import digest_tree
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.seeds import get_seed, scaffold_settings
from vibeserve.skills import compose_scaffold, write_scaffold
from vibeserve.spec import Hardware, Load, Modality, Model, Seed, Spec, Workload

TEXT = data_dir("templates") / "runtime/text"


def spec_of(*, longest: int, kind: str = "cpu") -> Spec:
    return Spec(
        model=Model(id="a", architecture="llama"), hardware=Hardware(name="h", kind=kind),
        workload=Workload(
            kind="chat", prompt_tokens_max=longest - 10, output_tokens_max=10, loads={"c1": Load(concurrency=1)}
        ),
    )  # fmt: skip


def parameters_of(workspace: Path) -> dict[str, object]:
    values: dict[str, object] = json.loads((workspace / "runtime/assembly.json").read_text())["parameters"]
    return values


def test_the_scaffold_is_a_whole_workspace_and_always_the_same(tmp_path: Path) -> None:
    seed = get_seed(Seed(), scaffold=TEXT, settings={})
    assert seed.origin == "scaffold"
    for name in ("one", "two"):
        seed.materialise(tmp_path / name)
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")
    assert {"service.yaml", "README.md", "requirements.lock", "runtime", "tests"} <= {
        path.name for path in (tmp_path / "one").iterdir()
    }
    assembly = json.loads((tmp_path / "one/runtime/assembly.json").read_text())
    assert assembly["components"] == []
    assert set(assembly["seams"].values()) == {"scaffold"}


def test_an_unknown_seed_is_refused_with_the_kinds() -> None:
    with pytest.raises(SpecError, match=r"seed\.kind: unknown seed 'nano'\n  valid: artifact, git, path, scaffold"):
        get_seed(Seed(kind="nano"), scaffold=TEXT, settings={})


@pytest.mark.parametrize(("longest", "expected"), [(600, 2048), (5000, 5000)])
def test_the_context_holds_the_longest_declared_sequence(longest: int, expected: int, tmp_path: Path) -> None:
    settings = scaffold_settings(spec_of(longest=longest), scaffold=TEXT)
    assert settings == {"max_context_tokens": expected}
    get_seed(Seed(), scaffold=TEXT, settings=settings).materialise(tmp_path / "workspace")
    assert parameters_of(tmp_path / "workspace")["max_context_tokens"] == expected


def test_pins_win_over_what_the_spec_implies(tmp_path: Path) -> None:
    settings = scaffold_settings(spec_of(longest=5000), scaffold=TEXT)
    pins = {"max_context_tokens": 8192, "unknown": 1}
    get_seed(Seed(), scaffold=TEXT, settings=settings, pins=pins).materialise(tmp_path / "workspace")
    assert parameters_of(tmp_path / "workspace")["max_context_tokens"] == 8192


def test_a_custom_model_runs_where_the_hardware_says(tmp_path: Path) -> None:
    model = Model(id="c", architecture="letters", modality=Modality.custom)
    target = write_target(tmp_path / "target")
    scaffold = write_scaffold(compose_scaffold(model, folders=[target]), tmp_path / "scaffold")
    settings = scaffold_settings(spec_of(longest=600, kind="cuda"), scaffold=scaffold)
    assert settings == {"device": "cuda"}
    get_seed(Seed(), scaffold=scaffold, settings=settings).materialise(tmp_path / "workspace")
    assert parameters_of(tmp_path / "workspace")["device"] == "cuda"


def test_declared_ranks_come_with_the_component_that_makes_them(tmp_path: Path) -> None:
    spec = spec_of(longest=600)
    spec.parallelism.tensor = 4
    settings = scaffold_settings(spec, scaffold=TEXT)
    assert settings["tensor_parallel_size"] == 4
    get_seed(Seed(), scaffold=TEXT, settings=settings).materialise(tmp_path / "workspace")
    assert parameters_of(tmp_path / "workspace")["tensor_parallel_size"] == 4
    assembly = json.loads((tmp_path / "workspace/runtime/assembly.json").read_text())
    assert [row["name"] for row in assembly["components"]] == ["tensor-parallel"]
    assert "tensor_parallel_size: int = 4" in (tmp_path / "workspace/runtime/parameters.py").read_text()
