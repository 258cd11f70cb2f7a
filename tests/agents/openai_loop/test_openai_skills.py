"""What the skill tools show, with components and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_model import ScriptedModel, call, submit

from vibeserve.agents.openai_loop import SkillShelf
from vibeserve.agents.openai_loop.toolbox import ToolError
from vibeserve.core.paths import data_dir
from vibeserve.skills import load_skills

SKILL = """---
name: {name}
description: About {name}.
---
# Notes on {name}
"""
CARD = "schema_version: 1\nname: fast\nseams: [linear]\nfiles:\n  assets/linear.py: runtime/linear.py\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("fast", "plain"):
        folder = tmp_path / "skills" / name
        (folder / "references").mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name=name))
        (folder / "references" / "more.md").write_text(f"more on {name}\n")
    (tmp_path / "skills" / "fast" / "assets").mkdir()
    (tmp_path / "skills" / "fast" / "assets" / "linear.py").write_text("x = 'the component'\n")
    (tmp_path / "skills" / "fast" / "component.yaml").write_text(CARD)
    return tmp_path / "skills"


def shelf_of(root: Path, *, has_components: bool = True) -> SkillShelf:
    return SkillShelf(skills=tuple(load_skills(root)), has_components=has_components)


def test_skills_are_listed(root: Path) -> None:
    assert shelf_of(root).listing() == "fast [component]: About fast.\nplain: About plain."
    assert shelf_of(root, has_components=False).listing() == "fast: About fast.\nplain: About plain."
    assert SkillShelf().listing() == "[no skills]"


def test_notes_name_the_other_files(root: Path) -> None:
    text = shelf_of(root).read("fast")
    assert "# Notes on fast" in text
    assert text.endswith("\n[files of this skill: assets/linear.py, component.yaml, references/more.md]")
    assert shelf_of(root).read("fast", "assets/linear.py") == "x = 'the component'\n"


def test_without_components_there_are_notes_alone(root: Path) -> None:
    shelf = shelf_of(root, has_components=False)
    assert shelf.read("fast").endswith("\n[files of this skill: references/more.md]")
    assert shelf.read("fast", "references/more.md") == "more on fast\n"
    for file in ("assets/linear.py", "component.yaml"):
        with pytest.raises(ToolError) as caught:
            shelf.read("fast", file)
        assert str(caught.value) == f"skill 'fast' has no file '{file}'; valid: SKILL.md, references/more.md"
    shown = [root / name / part for name in ("fast", "plain") for part in ("SKILL.md", "references")]
    assert list(shelf.paths()) == shown


@pytest.mark.parametrize("file", ["../plain/SKILL.md", "/etc/passwd", "link", "references"])
def test_no_other_file_is_read(root: Path, file: str) -> None:
    (root / "fast" / "link").symlink_to("/etc/passwd")
    with pytest.raises(ToolError, match="skill 'fast' has no file"):
        shelf_of(root).read("fast", file)


def test_an_unknown_skill_is_told_the_names(root: Path) -> None:
    with pytest.raises(ToolError, match=r"there is no skill 'fats'; valid: fast$"):
        shelf_of(root).read("fats")
    with pytest.raises(ToolError, match="valid: none, there are no skills"):
        SkillShelf().read("fast")


def test_commands_and_files_see_what_the_shelf_shows(make_backend, make_request, root: Path) -> None:
    def results(has_components: bool) -> list[str]:
        calls = [
            call("list_skills"), call("read_skill", name="plain", file="references/more.md"),
            call("run_command", command=f"cat {root}/fast/SKILL.md {root}/fast/assets/linear.py"),
            call("read_file", path=f"{root}/fast/assets/linear.py"),
            call("search", pattern="the component", path=f"{root}/fast/assets"),
        ]  # fmt: skip
        model = ScriptedModel(replies=[*calls, submit()])
        make_backend(model, skills=shelf_of(root, has_components=has_components)).run(make_request())
        return model.results()

    listed, more, *seen = results(True)
    assert listed.startswith("fast [component]") and more == "more on plain\n"
    assert all("the component" in text and "error" not in text for text in seen), seen
    listed, more, *seen = results(False)
    assert "component" not in listed and more == "more on plain\n"
    assert "# Notes on fast" in seen[0] and not any("x = 'the component'" in text for text in seen), seen


def test_the_shipped_skills_can_all_be_read() -> None:
    shelf = SkillShelf(skills=tuple(load_skills(data_dir("skills"))))
    for skill in shelf.skills:
        assert skill.description in shelf.listing()
        for file in shelf.files(skill):
            assert shelf.read(skill.name, file)
