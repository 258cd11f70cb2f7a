"""`vibeserve skills`: every action through the front, with the texts of its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vibeserve.agents.opened import EVENT, Opened, opened_in, opened_rows
from vibeserve.agents.requests import Turn
from vibeserve.cli.main import main
from vibeserve.core.paths import data_dir
from vibeserve.journal import Journal
from vibeserve.skills import load_skills, write_draft

SHIPPED = [skill.name for skill in load_skills(data_dir("skills"))]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["skills", *argv])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code, out, err = run(capsys, *argv, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_actions_are_told_where_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys)
    assert code == 2 and "action" in err
    code, _, err = run(capsys, "lits")
    assert code == 2 and "'lits' is not valid; did you mean 'list'?" in err


def test_the_list_and_one_skill(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "list")
    assert found["schema_version"] == 1 and [row["name"] for row in found["skills"]] == SHIPPED
    _, out, _ = run(capsys, "list")
    assert "continuous-batching" in out
    shown = document(capsys, "show", "continuous-batching")
    assert shown["component"]["seams"] == ["scheduler"] and shown["note"].lstrip().startswith("# Continuous batching")
    _, out, _ = run(capsys, "show", "continuous-batching")
    assert "component   fills scheduler, expected x3" in out
    code, _, err = run(capsys, "show", "continous-batching")
    assert code == 2 and "unknown skill 'continous-batching'; did you mean 'continuous-batching'?" in err


def test_a_new_skill_is_listed_checked_and_routed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "new", "my-thing", "--dir", "own")
    assert code == 0 and "vibeserve skills check my-thing --path own" in out
    assert "my-thing" in [row["name"] for row in document(capsys, "list", "--path", "own")["skills"]]
    found = document(capsys, "route", "the first thing that somebody sees", "--path", "own")
    assert found["skills"][0]["name"] == "my-thing"
    code, _, err = run(capsys, "list", "--path", "absent")
    assert code == 2 and f"skills: --path absent: there is no folder {tmp_path / 'absent'}" in err


def test_of_a_target_foreign_skills_are_pruned(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "route", "attention grows with the context", "--target", "showo2_cpu")
    assert "batched-decode-attention" in found["pruned"]
    assert "batched-decode-attention" not in [row["name"] for row in found["skills"]]
    _, out, _ = run(capsys, "route", "attention grows with the context", "--target", "showo2_cpu")
    assert "skills are foreign to showo2_cpu" in out
    _, out, _ = run(capsys, "route", "qqqq")
    assert out.startswith("no skill that applies shares a word or a span with that")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("route",), "takes a bottleneck's description or --suite, neither was given"),
        (("route", "slow", "--suite"), "takes a bottleneck's description or --suite, both were given"),
        (("route", "slow", "--span", "decode=1"), "'decode' is not a span; valid: queue"),
        (("route", "slow", "--span", "queue=2"), "a share is a number above 0, up to 1, such as queue=0.4"),
        (("export", "--to", "cursor", "--out", "x"), "no client 'cursor'"),
        (("new", "Bad"), "must be kebab-case"),
        (("check", "absent-skill", "--static"), "unknown skill 'absent-skill'"),
    ],
)
def test_refused_command_lines(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], expected: str) -> None:
    code, _, err = run(capsys, *argv)
    assert code == 2 and expected in err


def test_a_failing_skill_fails_the_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    note = write_draft("my-thing", folder=tmp_path) / "SKILL.md"
    note.write_text(note.read_text().replace("assert sorted(rows) == [1, 2, 3]", "assert not rows"))
    code, out, _ = run(capsys, "check", "my-thing", "--path", str(tmp_path))
    assert code == 3 and "AssertionError" in out
    assert out.endswith("0 of 1 skills are routed and executed; 1 failures\n")
    code, out, _ = run(capsys, "check", "my-thing", "--path", str(tmp_path), "--json")
    found = json.loads(out)
    assert code == 3 and found["count"] == 0 and len(found["failures"]) == 1


def test_a_folder_brings_its_own_descriptions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_draft("my-thing", folder=tmp_path)
    row = {"id": "mine", "text": "the first thing that somebody sees", "expect": [{"skills": ["my-thing"]}]}
    (tmp_path / "routing.yaml").write_text(json.dumps({"bottlenecks": [row]}))
    found = document(capsys, "check", "my-thing", "--path", str(tmp_path))
    assert found["count"] == 1 and found["skills"][0]["routed"] is True
    suite = document(capsys, "route", "--suite", "--path", str(tmp_path))
    assert suite["queries"] % 21 == 0 and suite["hits_in_first_five"] == suite["queries"]


def test_exported_through_the_front(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = document(capsys, "export", "--to", "claude", "--out", str(tmp_path))
    assert found["written"] == SHIPPED and (tmp_path / ".claude/skills/chunked-prefill/SKILL.md").is_file()


# what agents opened


def turns(*calls: tuple[str, str]) -> list[Turn]:
    return [Turn(kind="tool_call", name=name, text=text) for name, text in calls]


def test_opened_skills_are_read_from_either_kind_of_call() -> None:
    found = opened_in(
        turns(
            ("read_skill", '{"name": "a-skill"}'), ("exec_command", "cat /run/skills/b-skill/SKILL.md"),
            ("Read", '{"file_path": "/run/skills/c-skill/references/more.md"}'), ("read_skill", '{"name": "a-skill"}'),
            ("read_skill", "no json"), ("exec_command", "cat notes/d-skills/x"), ("exec_command", "ls /run/skills"),
        ),
        names={"a-skill", "b-skill", "c-skill", "d-skill"},
    )  # fmt: skip
    assert found == ("a-skill", "b-skill", "c-skill")
    said = [Turn(kind="message", text="I read /run/skills/d-skill/SKILL.md")]
    assert opened_in(said, names={"d-skill"}) == () and opened_in(said, names=()) == ()


def test_a_call_stands_beside_the_outcome_of_its_round(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / ".vibeserve" / "runs" / "tiny_cpu-0123"
    folder.mkdir(parents=True)
    with Journal.open(folder / "journal.jsonl") as journal:
        journal.append(EVENT, Opened(key="p01-planner", skills=("chunked-prefill",)))
        journal.append(EVENT, Opened(key="r02a1-implementer", skills=("packed-linears",)))
        journal.append("round", {"record": {"number": 1, "outcome": "accepted"}})
        rows = opened_rows(journal.events())
    assert [(row.round, row.skills, row.outcome) for row in rows] == [
        (1, ("chunked-prefill",), "accepted"), (2, ("packed-linears",), "")
    ]  # fmt: skip
    found = document(capsys, "opened", "tiny_cpu", "--dir", str(tmp_path))
    assert [row["key"] for row in found["calls"]] == ["p01-planner", "r02a1-implementer"]
    _, out, _ = run(capsys, "opened", "--dir", str(tmp_path))
    assert "accepted" in out and "running" in out
