"""Assembling: a pure function, with a record of where every line came from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vibeserve.core.documents import digest_tree, read_document
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.service import read_service
from vibeserve.skills import Assembly, assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.spec import Modality, Model

SEQS = {"max_num_seqs": {"type": "int", "default": 8, "range": [1, 64], "doc": "rows"}}


def tree(root: Path) -> dict[str, str]:
    return digest_tree(root, ignore=("__pycache__", ".git"))


def test_the_same_inputs_give_the_same_bytes(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    write_skill("one", parameters=SEQS)
    write_skill("two", seams=("model",))
    skills = load_skills(library)
    first = assemble(scaffold, skills, {"max_num_seqs": 4}, tmp_path / "first")
    second = assemble(scaffold, list(reversed(skills)), {"max_num_seqs": 4}, tmp_path / "second")
    assert first == second
    assert tree(tmp_path / "first") == tree(tmp_path / "second")
    assemble(scaffold, skills, {"max_num_seqs": 5}, tmp_path / "third")
    assert tree(tmp_path / "first") != tree(tmp_path / "third")


def test_every_file_has_its_origin(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    write_skill("one", weight_bits=16)
    assembly = assemble(scaffold, load_skills(library), {}, tmp_path / "out")
    origins = {record.path: record for record in assembly.files}
    present = {path for path in tree(tmp_path / "out") if path != "runtime/assembly.json"}
    assert set(origins) == present
    assert origins["runtime/linear.py"].origin == "component:one"
    assert origins["runtime/linear.py"].num_lines == 3
    assert origins["runtime/model.py"].origin == "scaffold"
    assert (assembly.seams["linear"], assembly.seams["model"]) == ("component:one", "scaffold")
    assert assembly.weight_bits == 16
    assert read_document(tmp_path / "out/runtime/assembly.json", Assembly) == assembly
    assert not (tmp_path / "out/scaffold.yaml").exists()


def test_the_extender_fills_the_seam(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    write_skill("a-top", seams=("scheduler",), extends=["base"])
    write_skill("base", seams=("scheduler", "linear"))
    assembly = assemble(scaffold, resolve(["a-top"], load_skills(library)), {}, tmp_path / "out")
    assert "scheduler of a-top" in (tmp_path / "out/runtime/scheduler.py").read_text()
    assert "linear of base" in (tmp_path / "out/runtime/linear.py").read_text()
    assert [component.name for component in assembly.components] == ["base", "a-top"]


def test_what_is_extended_must_be_given(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    write_skill("base", seams=("scheduler",))
    write_skill("top", seams=("scheduler",), extends=["base"])
    top = [skill for skill in load_skills(library) if skill.name == "top"]
    with pytest.raises(SpecError, match="extend base, which is not among them"):
        assemble(scaffold, top, {}, tmp_path / "out")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"max_seqs": 4}, "unknown parameter 'max_seqs'; valid: max_num_seqs"),
        ({"max_num_seqs": 65}, "parameter 'max_num_seqs' must be from 1 to 64, got 65"),
        ({"max_num_seqs": "4"}, "parameter 'max_num_seqs' must be of type int, got '4'"),
    ],
)
def test_refused_parameters(
    library: Path, write_skill: Any, scaffold: Path, tmp_path: Path, parameters: dict[str, Any], expected: str
) -> None:
    write_skill("one", parameters=SEQS)
    with pytest.raises(SpecError) as caught:
        assemble(scaffold, load_skills(library), parameters, tmp_path / "out")
    assert expected in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_generated_parameters_are_importable(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    more = {
        "share": {"type": "float", "default": 1},
        "mode": {"type": "str", "default": "it's", "choices": ["it's", "b"]},
        "is_on": {"type": "bool", "default": False},
    }
    write_skill("one", parameters={**SEQS, **more})
    assemble(scaffold, load_skills(library), {"is_on": True}, tmp_path / "out")
    code = (
        "import dataclasses, json; from runtime.parameters import Parameters;"
        "print(json.dumps(dataclasses.asdict(Parameters())))"
    )
    printed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, check=True).stdout
    assert json.loads(printed) == {"max_num_seqs": 8, "share": 1.0, "mode": "it's", "is_on": True}


def test_an_earlier_assembly_is_replaced_and_git_is_kept(
    library: Path, write_skill: Any, scaffold: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (out / ".git").mkdir(parents=True)
    (out / ".git/HEAD").write_text("ref")
    write_skill("one")
    assemble(scaffold, load_skills(library), {}, out)
    (out / "build").mkdir()
    (out / "left-over.py").write_text("")
    assemble(scaffold, [], {}, out)
    assert not (out / "left-over.py").exists()
    assert not (out / "build").exists()
    assert (out / ".git/HEAD").read_text() == "ref"
    assert "of the scaffold" in (out / "runtime/linear.py").read_text()


def test_a_folder_with_anything_else_is_refused(scaffold: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(SpecError, match="is not empty and no earlier assembly"):
        assemble(scaffold, [], {}, out)
    assert (out / "thesis.tex").read_text() == "years of work"


def test_lock_build_and_readme(library: Path, write_skill: Any, scaffold: Path, tmp_path: Path) -> None:
    folder = write_skill("one", native=True)
    (folder / "assets/linear.cpp").write_text("int one;\n")
    card = folder / "component.yaml"
    card.write_text(card.read_text().replace("files:", "files:\n  assets/linear.cpp: runtime/native/linear.cpp"))
    assemble(scaffold, load_skills(library), {}, tmp_path / "out")
    lock = (tmp_path / "out/requirements.lock").read_text().splitlines()
    assert [line.partition("==")[0] for line in lock] == ["numpy", "torch", "uvloop"]
    assert all("+" not in line for line in lock)
    assert 'build: ["{python}", "-m", "runtime.build"]' in (tmp_path / "out/service.yaml").read_text()
    readme = (tmp_path / "out/README.md").read_text()
    assert "| one | linear | What one is for. |" in readme
    assert "| max_num_seqs | 1 | how many |" in readme


def test_an_import_that_is_not_installed_is_refused(scaffold: Path, tmp_path: Path) -> None:
    (scaffold / "runtime/model.py").write_text("import no_such_distribution\n")
    with pytest.raises(SpecError, match="imports 'no_such_distribution'"):
        assemble(scaffold, [], {}, tmp_path / "out")


def test_the_shipped_scaffold_alone(tmp_path: Path) -> None:
    scaffold = data_dir("templates") / "runtime/text"
    assembly = assemble(scaffold, [], {}, tmp_path / "out")
    generated = (tmp_path / "out/runtime/parameters.py").read_text()
    assert generated == (scaffold / "runtime/parameters.py").read_text(), "parameters.py has drifted from scaffold.yaml"
    assert set(assembly.seams.values()) == {"scaffold"}
    assert assembly.weight_bits == 32
    assert read_service(tmp_path / "out").build is None


def test_every_shipped_component_assembles(tmp_path: Path) -> None:
    skills = load_skills(data_dir("skills"))
    for skill in skills:
        if skill.card is None:
            continue
        out = tmp_path / skill.name
        architecture = next(iter(skill.card.conditions.architectures), "llama")
        modality = next(iter(skill.card.conditions.modalities), "text")
        model = Model(architecture=architecture, modality=Modality(modality))
        scaffold = write_scaffold(compose_scaffold(model), tmp_path / f"{skill.name}.scaffold")
        assembly = assemble(scaffold, resolve([skill.name], skills), {}, out)
        assert all(assembly.seams[seam] == f"component:{skill.name}" for seam in skill.card.seams)
        assert (read_service(out).build is not None) == any(
            card.native for card in (other.card for other in resolve([skill.name], skills)) if card is not None
        )
