"""Users' own skills: stacked folders, entry points, exclusion, digests, and export to other agents' folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import (
    CLIENTS,
    export_skills,
    gathered,
    library_digest,
    load_skills,
    target_skills,
    without,
    write_draft,
)

SHIPPED = {skill.name for skill in load_skills(data_dir("skills"))}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a target that names a folder of skills of its own."""
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "mine.yaml").write_text(
        "defaults:\n  - override /model: tiny_llama\n  - override /hardware: cpu\n  - override /workload: chat_short\n"
        "  - override /baseline: scaffold\n"
        "skills: {path: [../own]}\ngoals:\n  - {metric: output_throughput, load: c4, min_ratio: 1.5, against: naive}\n"
    )
    write_draft("own-thing", folder=tmp_path / "own")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(*overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        compose_spec(["+target=mine", *overrides])
    return str(caught.value)


def test_a_targets_own_skills_are_stacked_on_those_that_ship(project: Path) -> None:
    assert {skill.name for skill in target_skills(compose_spec(["+target=mine"]))} == {*SHIPPED, "own-thing"}


def test_the_digest_follows_the_stacked_folders(project: Path) -> None:
    spec = compose_spec(["+target=mine"])
    before = library_digest(spec)
    assert before != library_digest(compose_spec(["+target=tiny_cpu"]))
    (project / "own" / "own-thing" / "references").mkdir()
    (project / "own" / "own-thing" / "references" / "more.md").write_text("more")
    changed = library_digest(spec)
    assert changed != before
    (project / "own").rename(project / "moved")
    assert library_digest(spec) not in (before, changed), "gone is no reason to fail where an artifact is verified"


def test_a_folder_that_is_not_there_is_told_with_its_line(project: Path) -> None:
    (project / "own").rename(project / "moved")
    text = problems()
    assert "mine.yaml:6" in text and f"skills.path: there is no folder {project / 'own'}" in text
    with pytest.raises(SpecError, match="names skills that are not there"):
        target_skills(_unchecked(project))


def _unchecked(project: Path):  # type: ignore[no-untyped-def]
    (project / "own").mkdir()
    (project / "moved" / "own-thing").rename(project / "own" / "own-thing")
    spec = compose_spec(["+target=mine"])
    (project / "own").rename(project / "gone")
    return spec


def test_a_conflicting_skill_is_one_clear_error(project: Path) -> None:
    write_draft("chunked-prefill", folder=project / "own")
    text = problems()
    assert "skills.path: skill 'chunked-prefill' is there more than once" in text and "rename one" in text


def test_an_invalid_skill_is_told_before_anything_is_spent(project: Path) -> None:
    (project / "own" / "own-thing" / "SKILL.md").write_text("no front matter")
    assert "own-thing/SKILL.md: must open with YAML front matter" in problems()


def test_excluded_skills_are_gone_with_what_extends_them(project: Path) -> None:
    spec = compose_spec(["+target=mine", "skills.exclude=[continuous-batching]"])
    names = {skill.name for skill in target_skills(spec)}
    gone = {
        "continuous-batching", "chunked-prefill", "predicted-outputs", "json-jump-forward", "hybrid-prefix-cache",
        "cuda-decoder", "cuda-graph-decode", "cuda-paged-kv",
    }  # fmt: skip
    assert names == SHIPPED - gone | {"own-thing"}
    assert "skills.exclude: there is no skill 'absent'; valid: " in problems("skills.exclude=[absent]")
    with pytest.raises(SpecError, match=r"skills\.exclude names what is not there"):
        without(load_skills(data_dir("skills")), ["absent"])


@pytest.fixture
def package(project: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed distribution with skills, as pip leaves one; its package must not be imported."""
    site = project / "site"
    write_draft("from-package", folder=site / "acme_skills")
    (site / "acme_skills" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    info = site / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vibeserve.skills]\nacme = acme_skills\nodd = json\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    return "package:acme"


def test_skills_of_an_installed_package(project: Path, package: str) -> None:
    assert "from-package" not in {skill.name for skill in target_skills(compose_spec(["+target=mine"]))}
    spec = compose_spec(["+target=mine", f"skills.path=[{package}]"])
    assert {skill.name for skill in target_skills(spec)} == {*SHIPPED, "from-package"}
    assert "no installed package offers skills as 'amce'; valid: acme, odd" in problems("skills.path=['package:amce']")


def test_an_entry_point_that_is_no_package(project: Path, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = project / "site" / "acme-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[vibeserve.skills]\nodd = absent_module_of_nobody\n")
    text = problems("skills.path=['package:odd']")
    assert "entry point 'odd' of group vibeserve.skills names 'absent_module_of_nobody', which is no package" in text


def test_gathered_skills_are_what_agents_read(project: Path, tmp_path: Path) -> None:
    skills = target_skills(compose_spec(["+target=mine", "skills.exclude=[packed-linears]"]))
    folder = gathered(skills, tmp_path / "run" / "skills")
    assert {path.name for path in folder.iterdir()} == {skill.name for skill in skills}
    assert (folder / "own-thing" / "applies.yaml").is_file()
    gathered(skills[:1], folder)
    assert [path.name for path in folder.iterdir()] == [skills[0].name], "what lay there before is gone"


@pytest.mark.parametrize("client", CLIENTS)
def test_an_exported_skill_is_the_same_folder(client: str, tmp_path: Path) -> None:
    skills = load_skills(data_dir("skills"))
    done = export_skills(skills, client=client, out=tmp_path / "home")
    assert set(done.written) == SHIPPED and done.folder == str(tmp_path / "home" / CLIENTS[client][0])
    again = load_skills(Path(done.folder))
    assert {skill.name: skill.digest for skill in again} == {skill.name: skill.digest for skill in skills}
    assert export_skills(skills, client=client, out=tmp_path / "home").written == ()


def test_an_export_overwrites_nothing(tmp_path: Path) -> None:
    skills = load_skills(data_dir("skills"))
    done = export_skills(skills, client="codex", out=tmp_path)
    changed = Path(done.folder) / skills[0].name / "SKILL.md"
    changed.write_text("mine")
    with pytest.raises(SpecError) as caught:
        export_skills(skills, client="codex", out=tmp_path)
    assert f"{changed.parent}: is another skill or another version" in str(caught.value)
    assert changed.read_text() == "mine"


def test_an_export_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no client 'cursor'"):
        export_skills([], client="cursor", out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="file is no folder"):
        export_skills([], client="codex", out=tmp_path / "file")
