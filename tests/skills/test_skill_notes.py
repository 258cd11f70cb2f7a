"""applies.yaml, snippets, names of libraries, links and sections: what is taken and what is refused, in which words."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vibeserve.errors import SpecError
from vibeserve.skills import check_library, load_skills, write_draft
from vibeserve.skills.apis import name_problems, named_in, version_problems
from vibeserve.skills.loader import Skill, load_skill
from vibeserve.skills.snippets import find_snippets, run_snippet


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    return write_draft("paged-thing", folder=tmp_path / "own")


def with_applies(draft: Path, **changes: Any) -> Skill:
    path = draft / "applies.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))
    return load_skill(draft)


def with_note(draft: Path, old: str, new: str) -> Skill:
    path = draft / "SKILL.md"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return load_skill(draft)


def failures_of(skill: Skill, *, is_run: bool = False) -> tuple[str, ...]:
    return check_library([skill], routed=frozenset(), is_run=is_run).failures


def test_a_new_skill_is_valid_and_its_snippet_runs(draft: Path) -> None:
    found = check_library([load_skill(draft)], routed=frozenset({"paged-thing"}))
    assert found.failures == () and found.count == 1
    (row,) = found.skills
    assert (row.executed, row.num_snippets, row.effect) == ("snippet", 1, "not measured")


def test_what_is_not_routed_or_not_run_does_not_count(draft: Path) -> None:
    assert check_library([load_skill(draft)], routed=frozenset()).count == 0
    assert check_library([load_skill(draft)], routed=frozenset({"paged-thing"}), is_run=False).count == 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"schema_version": 2}, "schema_version: 2 is unknown; valid: 1"),
        ({"speed": 3}, "speed: unknown key; valid: schema_version, conditions, relieves, symptoms, fallback"),
        ({"symptoms": ["one"]}, "symptoms: 1; at least 3, each a phrase of its own"),
        ({"symptoms": "one"}, "symptoms: must be a list of strings"),
        ({"relieves": ["decode"]}, "relieves: 'decode' is not a span; valid: queue, prefill"),
        ({"conditions": {"sm": [90]}}, "conditions.sm: unknown key; valid: architectures"),
        ({"versions": {"torch": 2}}, "versions: must map distributions to version specifiers"),
        ({"versions": {"torch": "two"}}, "versions: 'two' of torch is no version specifier"),
        ({"uses": ["torch"]}, "uses: 'torch' is no dotted name"),
        ({"fallback": "yes"}, "fallback: must be true or false"),
    ],
)
def test_refused_applies_files(draft: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_applies(draft, **changes)
    assert expected in str(caught.value) and str(draft / "applies.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("compatibility: " + "x" * 501, "compatibility: must be text of at most 500 characters"),
        ("metadata: [a]", "metadata: must map strings to strings"),
        ("metadata: {version: 2}", "metadata: must map strings to strings"),
    ],
)
def test_refused_optional_front_matter(draft: Path, front: str, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_note(draft, "name: paged-thing\n", f"name: paged-thing\n{front}\n")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("## Invariants", "## Rules", "lacks the sections Invariants"),
        ("| what is seen next | what is wrong then |\n", "", "Failure symptoms: a table of at least 3 rows"),
        ("Effect not measured.", "Very fast.", "Effect: neither a figure nor the words 'effect not measured'"),
        ("https://example.org", "a book", "Sources: names no address"),
        ("The mechanism", "[More](references/more.md). The mechanism", "link to references/more.md leads to no file"),
        ("The mechanism", "[More](../other/SKILL.md). The mechanism", "leaves the skill's folder"),
        ("The mechanism", "`torch.nn.functional.no_such_thing(x)`", "torch.nn.functional has no 'no_such_thing'"),
        ("```python run", "```python", "a python block that nothing runs; valid: `python run`"),
        ("```python run", "```python execute", "a python block that nothing runs"),
        ("assert sorted", "sorted", "a snippet that cannot fail; it must hold 'assert'"),
        ("```python run", "```cuda compile", "names no architecture, such as `cuda compile sm_90`"),
        ("```python run", "```cpp run", "a snippet that cannot fail; it must hold 'return'"),
    ],
)
def test_refused_notes(draft: Path, old: str, new: str, expected: str) -> None:
    (failure,) = failures_of(with_note(draft, old, new))
    assert expected in failure and str(draft) in failure


def test_a_reference_is_read_like_the_note(draft: Path) -> None:
    (draft / "references").mkdir()
    (draft / "references" / "more.md").write_text("See `numpy.no_such_thing` and [this](absent.md).\n")
    first, second = sorted(failures_of(load_skill(draft)), key=len)
    assert "more.md: the link to absent.md leads to no file" in first
    assert "more.md:1: `numpy.no_such_thing`: numpy has no 'no_such_thing'" in second


def test_an_index_needs_sources_alone(draft: Path) -> None:
    with_note(draft, "name: paged-thing\n", "name: paged-thing\nmetadata: {kind: reference-index}\n")
    assert failures_of(with_note(draft, "## Invariants", "## Rules")) == ()
    assert "names no address" in failures_of(with_note(draft, "https://example.org", "a book"))[0]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("assert sorted(rows) == [1, 2, 3]", "assert sorted(rows) == [3]", "AssertionError"),
        ("assert sorted(rows) == [1, 2, 3]", "import absent_module; assert 1", "No module named 'absent_module'"),
    ],
)
def test_a_snippet_that_fails_is_told_with_its_place(draft: Path, old: str, new: str, expected: str) -> None:
    (failure,) = failures_of(with_note(draft, old, new), is_run=True)
    assert failure.startswith(f"{draft}/SKILL.md:16: ") and expected in failure


def test_a_snippet_that_hangs_is_ended(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.skills.snippets.TIMEOUT_S", 0.5)
    (failure,) = failures_of(with_note(draft, "rows = [3, 1, 2]", "while True: pass"), is_run=True)
    assert "took more than 0.5 s" in failure


def test_names_and_versions_are_held_against_what_is_installed(draft: Path) -> None:
    skill = with_applies(
        draft, versions={"numpy": ">=2", "torch": "<1", "no-such-library": ">=1"},
        uses=["numpy.matmul", "llguidance.LLMatcher.no_such_method", "absent_library.thing"],
    )  # fmt: skip
    second, first = sorted(version_problems(skill), key=len)
    assert "checked with torch <1, installed is 2." in first and "no-such-library is not installed" in second
    problems = name_problems([named_in(skill)])
    assert len(problems) == 2
    assert "uses: `llguidance.LLMatcher.no_such_method`: llguidance.LLMatcher has no 'no_such_method'" in problems[0]
    assert "`absent_library.thing`: absent_library is not installed" in problems[1]


def test_names_in_code_blocks_are_left_to_the_interpreter(draft: Path) -> None:
    skill = with_note(draft, "rows = [3, 1, 2]", "rows = [3, 1, 2]  # `numpy.no_such_thing`")
    assert named_in(skill).places == {}


CPP = "```cpp run -O1\nint main() { return %s; }\n```"


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_is_compiled_and_run(draft: Path) -> None:
    good = with_note(draft, "The mechanism", f"{CPP % 0}\nThe mechanism")
    first, second = find_snippets(good)[0]
    assert (first.language, first.options, second.language) == ("cpp", ("-O1",), "python")
    assert run_snippet(first).state == "passed"
    failed = run_snippet(replace(first, source="int main() { return 3; }\n"))
    assert (failed.state, failed.text) == ("failed", "exit status 3")
    assert "error" in run_snippet(replace(first, source="int main() { return x; }\n")).text
    only = replace(first, verb="compile", source="int f(int a) { return a; }\n")
    assert run_snippet(only).state == "passed"


def test_without_a_compiler_a_snippet_is_skipped_and_said_so(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skill = with_note(draft, "The mechanism", f"{CPP % 0}\nThe mechanism")
    monkeypatch.setattr("shutil.which", lambda name: None)
    (row,) = check_library([skill], routed=frozenset()).skills
    assert row.failures == () and row.num_skipped == 1 and "g++ is not installed" in row.notes[0]


CUDA = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


def test_cuda_is_compiled_for_every_named_architecture(draft: Path) -> None:
    skill = with_note(draft, "The mechanism", f"```cuda compile sm_89 sm_90\n{CUDA}```\nThe mechanism")
    first = find_snippets(skill)[0][0]
    done = run_snippet(first)
    if done.state == "skipped":
        pytest.skip(done.text)
    assert done.state == "passed", done.text
    assert "sm_89: " in run_snippet(replace(first, source="__global__ void f() { undefined_thing(); }\n")).text
    assert run_snippet(replace(first, options=("sm_1",))).state == "failed"


@pytest.mark.parametrize("name", ["Paged", "a_b", "-a", "x" * 65])
def test_a_wrong_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="must be kebab-case with at most 64 characters"):
        write_draft(name, folder=tmp_path)


def test_a_skill_that_is_there_is_not_overwritten(draft: Path) -> None:
    with pytest.raises(SpecError, match="paged-thing is there already"):
        write_draft("paged-thing", folder=draft.parent)


def test_two_skills_of_one_name_are_one_clear_error(draft: Path, tmp_path: Path) -> None:
    write_draft("paged-thing", folder=tmp_path / "other")
    with pytest.raises(SpecError) as caught:
        load_skills(draft.parent, tmp_path / "other")
    text = str(caught.value)
    assert f"skill 'paged-thing' is there more than once: {draft}, {tmp_path / 'other' / 'paged-thing'}" in text
    assert text.endswith("rename one, folder and front matter\nnext: vibeserve skills check")


def test_a_folder_without_skills_is_refused(draft: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"empty: holds no skill, which is a folder NAME with a SKILL\.md"):
        load_skills(draft.parent, tmp_path / "empty")
