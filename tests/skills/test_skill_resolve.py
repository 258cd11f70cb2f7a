"""Which components go together, in which order, and with which parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vibeserve.errors import SpecError
from vibeserve.skills import declared_parameters, load_scaffold, load_skills, resolve

LIMIT = {"type": "int", "default": 8, "range": [1, 64]}


def names_of(library: Path, *names: str) -> list[str]:
    return [skill.name for skill in resolve(names, load_skills(library))]


def refusal(library: Path, *names: str) -> str:
    with pytest.raises(SpecError) as caught:
        resolve(names, load_skills(library))
    return str(caught.value)


def test_what_is_extended_comes_along_and_first(library: Path, write_skill: Any) -> None:
    write_skill("a-top", seams=("scheduler",), extends=["m-middle"])
    write_skill("m-middle", seams=("scheduler",), extends=["z-base"])
    write_skill("z-base", seams=("scheduler",))
    write_skill("other")
    assert names_of(library, "a-top") == ["z-base", "m-middle", "a-top"]
    assert names_of(library, "other", "a-top") == ["other", "z-base", "m-middle", "a-top"]
    assert names_of(library) == []


def test_two_that_fill_one_seam_conflict(library: Path, write_skill: Any) -> None:
    write_skill("one")
    write_skill("two")
    assert "'one' and 'two' both fill seam 'linear' and neither extends the other" in refusal(library, "one", "two")


def test_two_extensions_of_one_component_conflict(library: Path, write_skill: Any) -> None:
    write_skill("base", seams=("scheduler",))
    write_skill("one", seams=("scheduler",), extends=["base"])
    write_skill("two", seams=("scheduler",), extends=["base"])
    assert "'one' and 'two' both fill seam 'scheduler'" in refusal(library, "one", "two")


def test_declared_conflicts_and_shared_files(library: Path, write_skill: Any) -> None:
    write_skill("one", conflicts=["two"])
    folder = write_skill("two", seams=("model",))
    assert "'one' conflicts with 'two'" in refusal(library, "one", "two")
    for name in ("three", "four"):
        seam = {"three": "sampler", "four": "http"}[name]
        folder = write_skill(
            name, seams=(seam,), files={f"assets/{seam}.py": f"runtime/{seam}.py", "assets/more.py": "runtime/more.py"}
        )
        (folder / "assets/more.py").write_text("")
    assert "'four' and 'three' both bring 'runtime/more.py'" in refusal(library, "three", "four")


def test_unknown_names_and_circles(library: Path, write_skill: Any) -> None:
    write_skill("one", seams=("linear",), extends=["two"])
    write_skill("two", seams=("linear",), extends=["one"])
    assert "there is no component 'three'\n  valid: one, two" in refusal(library, "three")
    assert "extend each other in a circle: one, two" in refusal(library, "one")


def test_a_component_redeclares_what_it_extends(library: Path, write_skill: Any, scaffold: Path) -> None:
    write_skill("base", seams=("scheduler",), parameters={"max_num_seqs": LIMIT})
    write_skill("top", seams=("scheduler",), extends=["base"], parameters={"max_num_seqs": {**LIMIT, "default": 16}})
    skills = load_skills(library)
    base = load_scaffold(scaffold)
    assert declared_parameters(base, ())["max_num_seqs"].default == 1
    assert declared_parameters(base, resolve(["base"], skills))["max_num_seqs"].default == 8
    assert declared_parameters(base, resolve(["top"], skills))["max_num_seqs"].default == 16


def test_unrelated_components_must_agree_on_a_parameter(library: Path, write_skill: Any) -> None:
    write_skill("one", parameters={"max_num_seqs": LIMIT})
    write_skill("two", seams=("model",), parameters={"max_num_seqs": {**LIMIT, "default": 4}})
    write_skill("three", seams=("http",), parameters={"max_num_seqs": LIMIT})
    assert names_of(library, "one", "three") == ["one", "three"]
    assert "'one' and 'two' declare parameter 'max_num_seqs' differently" in refusal(library, "one", "two")
