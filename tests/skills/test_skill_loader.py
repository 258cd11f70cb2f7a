"""SKILL.md and component.yaml: what is read and what is refused, with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import SEAMS, SPANS, load_scaffold, load_skills


def problems_of(library: Path) -> str:
    with pytest.raises(SpecError) as caught:
        load_skills(library)
    return str(caught.value)


def change_card(folder: Path, **changes: Any) -> None:
    path = folder / "component.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def test_skills_come_sorted_with_their_cards(library: Path, write_skill: Any) -> None:
    write_skill("two", relieves=["queue"], expected_factor=2, weight_bits=16)
    write_skill("one", seams=("scheduler",))
    (library / "know-how").mkdir()
    (library / "know-how/SKILL.md").write_text("---\nname: know-how\ndescription: Only words.\n---\n")
    skills = load_skills(library)
    assert [skill.name for skill in skills] == ["know-how", "one", "two"]
    assert skills[0].card is None
    assert skills[2].card is not None
    assert (skills[2].card.relieves, skills[2].card.expected_factor) == (("queue",), 2)


def test_the_digest_follows_every_file(library: Path, write_skill: Any) -> None:
    folder = write_skill("one")
    before = load_skills(library)[0].digest
    assert load_skills(library)[0].digest == before
    (folder / "references.md").write_text("more")
    assert load_skills(library)[0].digest != before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no front matter", "must open with YAML front matter that has 'name' and 'description'"),
        ("---\nname: one\n---\n", "must open with YAML front matter"),
        ("---\nname: One\ndescription: x\n---\n", "'One' must be kebab-case"),
        ("---\nname: other\ndescription: x\n---\n", "'other' differs from the folder's name 'one'"),
        ("---\nname: one\ndescription: x\nauthor: y\n---\n", "unknown key 'author'; valid: name, description"),
        (f"---\nname: one\ndescription: {'x' * 1025}\n---\n", "1025 characters; at most 1024"),
        ("---\nname: one\ndescription: x\n---\n" + "line\n" * 500, "500 lines; below 500"),
    ],
)
def test_refused_skill_files(library: Path, write_skill: Any, text: str, expected: str) -> None:
    folder = write_skill("one")
    (folder / "SKILL.md").write_text(text)
    message = problems_of(library)
    assert expected in message
    assert str(folder / "SKILL.md") in message


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seams": ["linears"]}, "seams: 'linears' is not a seam; valid: weights, linear, attention"),
        ({"seams": "linear"}, "seams: must be a list of strings"),
        ({"seams": ["linear", "model"]}, "seams: 'model' is claimed but no file goes to runtime/model.py"),
        ({"seams": []}, "'runtime/linear.py' replaces seam 'linear', which 'seams' does not list"),
        ({"name": "two"}, "name: 'two' differs from the skill's name 'one'"),
        ({"schema_version": 2}, "schema_version: 2 is unknown; valid: 1"),
        ({"speedup": 3}, "speedup: unknown key; valid: schema_version, name, seams"),
        ({"relieves": ["decode"]}, "relieves: 'decode' is not a span; valid: queue, prefill"),
        ({"expected_factor": 0}, "expected_factor: must be above 0"),
        ({"status": "tried once"}, "status: 'tried once' is unknown; valid: proven, unproven"),
        ({"expected_factor": "2x"}, "expected_factor: must be int or float, got '2x'"),
        ({"native": "yes"}, "native: must be bool, got 'yes'"),
        ({"files": {}}, "files: must map paths in the skill to paths in the workspace"),
        ({"files": {"linear.py": "runtime/linear.py"}}, "files: 'linear.py' must lie under assets/"),
        ({"files": {"assets/linear.py": "linear.py"}}, "'linear.py' must lie under runtime/ or tests/"),
        ({"files": {"assets/linear.py": "runtime/../x.py"}}, "'runtime/../x.py' must lie under runtime/ or tests/"),
        ({"files": {"assets/absent.py": "runtime/linear.py"}}, "files: 'assets/absent.py' does not exist"),
        ({"files": {"assets/linear.py": "runtime/native/a.cpp"}, "seams": []}, "is native code, but 'native' is false"),
        ({"extends": ["absent"]}, "extends: there is no component 'absent'; valid: one"),
        ({"conditions": {"sm": [90]}}, "conditions.sm: unknown key; valid: architectures"),
        ({"conditions": {"precision": ["fp8"]}}, "conditions.precision: 'fp8' is unknown; valid: same_bytes, any"),
        ({"conditions": {"hardware": "cpu"}}, "conditions.hardware: must be a list of strings"),
        ({"parameters": {"x": {"type": "int"}}}, "parameters.x: must be a mapping with at least 'type' and 'default'"),
        ({"parameters": {"x": {"type": "number", "default": 1}}}, "type 'number' is unknown; valid: int, float, str"),
        ({"parameters": {"x": {"type": "int", "default": 1.5}}}, "default must be of type int, got 1.5"),
        ({"parameters": {"x": {"type": "int", "default": True}}}, "default must be of type int, got True"),
        ({"parameters": {"x": {"type": "int", "default": 9, "range": [1, 8]}}}, "default must be from 1 to 8, got 9"),
        (
            {"parameters": {"x": {"type": "int", "default": 1, "range": [1, 8], "tune": [2, 16]}}},
            "tune must be from 1 to 8, got 16",
        ),
        ({"parameters": {"x": {"type": "int", "default": 1, "range": [1]}}}, "range must be [low, high]"),
        ({"parameters": {"x": {"type": "str", "default": "a", "choices": ["b"]}}}, "default must be one of 'b'"),
        ({"parameters": {"not-a-name": {"type": "int", "default": 1}}}, "is not a Python identifier"),
    ],
)
def test_refused_cards(library: Path, write_skill: Any, changes: dict[str, Any], expected: str) -> None:
    folder = write_skill("one")
    change_card(folder, **changes)
    message = problems_of(library)
    assert expected in message
    assert str(folder / "component.yaml") in message


def test_all_problems_are_told_at_once(library: Path, write_skill: Any) -> None:
    change_card(write_skill("one"), speedup=1, native=3)
    (write_skill("two") / "SKILL.md").write_text("nothing")
    message = problems_of(library)
    assert message.count("component.yaml") == 2
    assert "two/SKILL.md" in message


def test_a_broken_yaml_names_its_file(library: Path, write_skill: Any) -> None:
    path = write_skill("one") / "component.yaml"
    path.write_text("seams: [")
    assert str(path) in problems_of(library)


def test_the_shipped_library_is_valid() -> None:
    assert all(skill.description for skill in load_skills(data_dir("skills")))


def test_seams_and_spans_are_those_of_the_shipped_scaffold() -> None:
    scaffold = data_dir("templates") / "runtime/text"
    folders = [scaffold, scaffold.with_name("text_hybrid"), scaffold.with_name("speech")]
    assert all(any((folder / f"runtime/{seam}.py").is_file() for folder in folders) for seam in SEAMS)
    assert {seam for seam in SEAMS if (folders[-1] / f"runtime/{seam}.py").is_file()} == {
        "weights", "linear", "encoder", "decoder", "scheduler", "tokenizer", "http", "placement",
    }  # fmt: skip
    assert f"NAMES = {SPANS!r}".replace("'", '"') in (scaffold / "runtime/spans.py").read_text()
    assert set(load_scaffold(scaffold).parameters) >= {"max_num_seqs", "max_context_tokens", "max_waiting"}
