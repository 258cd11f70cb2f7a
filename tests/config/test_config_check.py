"""What `check` accepts, and how it reports what it does not; each fault's text is in `error_texts.txt`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.config import check_file, check_target, list_targets

GOOD = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""


def errors_of(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "some.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(check_file(path, cwd=tmp_path).errors)


def test_every_shipped_target_is_valid() -> None:
    checks = [check_target(target) for target in list_targets()]
    assert {check.name: check.errors for check in checks if not check.is_ok} == {}
    assert len(checks) >= 2


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        GOOD.replace("\n", "\r\n"),
        "\ufeff" + GOOD,
        "# a comment\n\n" + GOOD + "# the end\n...\n",
        "# @package _global_\n" + GOOD,
        GOOD.replace("override /", "/"),
        GOOD + "search: {patience: '${budget.rounds}'}\n",
        GOOD + "out_dir: out/${search.policy}-${budget.rounds}\n",
        GOOD + "budget: {wall_s: 1e3, usd: 1_000.5}\n",
        GOOD + "model: {max_context_tokens: &length 512, source: {config: {max_position_embeddings: *length}}}\n",
        GOOD + "target: {description: 'costs \\${5}'}\n",
        GOOD + "workload: {loads: {r0.5: {rate_per_s: 0.5}}}\n",
        GOOD + "model: {revision: '123'}\n",
    ],
    ids=[
        "plain", "CRLF", "BOM", "comments", "header", "without override", "interpolation", "interpolations in text",
        "floats as YAML 1.2 has them", "an alias", "an escaped dollar", "a load with a dot", "a number in quotes",
    ],
)  # fmt: skip
def test_it_is_accepted_wherever_it_lies(tmp_path: Path, text: str) -> None:
    assert errors_of(tmp_path, text) == []


def test_all_faults_are_listed_in_order(tmp_path: Path) -> None:
    text = GOOD + "search: {patiense: 1}\nbudget:\n  usd: x\n  tokens: 1.5\n"
    assert [error.split(": ")[0] for error in errors_of(tmp_path, text)] == [
        "some.yaml:7:10",
        "some.yaml:9:3",
        "some.yaml:10:3",
    ]


def test_interpolated_values_are_resolved_when_the_target_is_composed(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_text(GOOD + "search: {patience: '${budget.rounds}'}\nbudget: {rounds: 7}\n")
    spec = check_file(tmp_path / "some.yaml", cwd=tmp_path).spec
    assert spec is not None
    assert (spec.search.patience, spec.budget.rounds) == (7, 7)


@pytest.mark.parametrize("name", ["nan", "1", "true", "v1.2"])
def test_a_name_that_looks_like_something_else_is_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / f"{name}.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    assert main(["check", name]) == 0
    step = f"next: vibeserve check {name} --deep, or vibeserve plan {name}"
    assert capsys.readouterr().out == f"{name}: ok\n{step}\n"


BROKEN: dict[str, str] = {
    "dangling": "targets/dangling.yaml: a link to gone, which leads nowhere",
    "folder": "targets/folder.yaml: a folder; a target is a file NAME.yaml or a folder NAME with a target.yaml",
    "unreadable": "targets/unreadable.yaml: cannot be read: Input/output error",
    "empty": "targets/empty.yaml:1:1: the file is empty; a target selects at least a model, a hardware and a workload",
    "other": "targets/other.yml: a target's file ends in .yaml; rename it to other.yaml",
    "gone": "targets/gone: a link to nowhere, which leads nowhere",
    "itself": "targets/itself.yaml:1:12: defaults: 'itself' inherits from itself: itself -> itself",
    "alias": "targets/alias.yaml:1:8: an alias of it contains itself",
    "two": "targets/two.yaml: there is two/target.yaml too; remove one of them",
}
"""name -> its only error"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository where one target is right and every other entry is broken in its own way."""
    folder = tmp_path / "targets"
    (folder / "two").mkdir(parents=True)
    for name in ("right", "two", "two/target", "_part"):
        (folder / f"{name}.yaml").write_text(GOOD)
    (folder / "folder.yaml").mkdir()
    (folder / "dangling.yaml").symlink_to("gone")
    (folder / "gone").symlink_to("nowhere")
    (folder / "unreadable.yaml").symlink_to("/proc/self/mem")
    (folder / "empty.yaml").write_text("")
    (folder / "other.yml").write_text(GOOD)
    (folder / "itself.yaml").write_text("defaults: [itself]\n")
    (folder / "alias.yaml").write_text("a: {b: &a [*a]}\n")
    (folder / ".swap.yaml").write_text("{")
    (folder / "data").mkdir()
    (folder / "notes.md").write_text("")
    monkeypatch.chdir(tmp_path)
    return folder


def test_broken_entries_are_reported_and_hide_no_other(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--all", "--json"]) == 2
    found = {target["name"]: target["errors"] for target in json.loads(capsys.readouterr().out)["targets"]}
    assert {name: errors for name, errors in found.items() if errors} == {name: [text] for name, text in BROKEN.items()}
    assert found["right"] == found["tiny_cpu"] == []


def test_broken_entries_are_listed_with_their_reason(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: rows[name]["why_not"] for name in BROKEN} == BROKEN
    assert not any(rows[name]["runnable_here"] for name in BROKEN)
    assert "_part" not in rows and "data" not in rows


def test_a_folder_of_targets_that_cannot_be_listed_is_said(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = Path.iterdir

    def iterdir(self: Path) -> object:
        if self == broken:
            raise PermissionError(13, "Permission denied")
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    assert main(["list"]) == 2
    told = capsys.readouterr().err
    assert told == f"vibeserve: {broken} cannot be listed: Permission denied\nnext: ls -l {broken.parent}\n"


@pytest.mark.parametrize("name", ["dangling", "folder", "unreadable", "empty"])
def test_a_broken_entry_is_checked_by_its_path_too(
    broken: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["check", f"targets/{name}.yaml"]) == 2
    assert capsys.readouterr().out == f"{name}: not valid\n  {BROKEN[name]}\n"


def test_a_folder_of_a_target_may_be_named(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (broken / "whole").mkdir()
    (broken / "whole" / "target.yaml").write_text(GOOD)
    assert main(["check", "targets/whole", "./targets/whole/target.yaml"]) == 0
    step = "next: vibeserve check whole --deep, or vibeserve plan whole"
    assert capsys.readouterr().out == f"whole: ok\nwhole: ok\n{step}\n"


def test_a_part_is_checked_by_its_path(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (broken / "_part.yaml").write_text("budget: {rounds: 3}\n")
    assert main(["check", "targets/_part.yaml"]) == 0
    assert capsys.readouterr().out == "_part: ok\n"
    (broken / "_part.yaml").write_text("budget: {round: 3}\n")
    capsys.readouterr()
    assert main(["check", "targets/_part.yaml"]) == 2
    assert "  targets/_part.yaml:1:10: budget.round: unknown key 'round'" in capsys.readouterr().out


def test_overrides_are_checked_with_the_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "some.yaml"
    path.write_text(GOOD)
    assert check_file(path, cwd=tmp_path, overrides=["budget.rounds=3", "search=random"]).errors == ()
    (error,) = check_file(path, cwd=tmp_path, overrides=["budget.round=3"]).errors
    assert "unknown key under budget 'round'; did you mean 'rounds'?" in error
    assert main(["check", "tiny_cpu", "budget.rounds=3"]) == 0
    assert "vibeserve plan tiny_cpu budget.rounds=3" in capsys.readouterr().out.splitlines()[-1]
    assert main(["check", "search=rndom", "tiny_cpu"]) == 2
    assert "unknown search 'rndom'" in capsys.readouterr().out
