"""Tools on files: what they show, what they cut, and what lies beyond their reach."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from vibeserve.agents.openai_loop import files
from vibeserve.agents.openai_loop.reach import MAX_FILE_BYTES, Reach, reach_of
from vibeserve.agents.openai_loop.toolbox import ToolError, cut


@pytest.fixture
def reach(workspace: Path, tmp_path: Path) -> Reach:
    """Writable, with one folder beside it that may be read."""
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "notes.txt").write_text("notes\n")
    (tmp_path / "secret.txt").write_text("golden\n")
    return reach_of(workspace, is_writable=True, read_only=(tmp_path / "given",))


def refused(action: Callable[[], str]) -> str:
    with pytest.raises(ToolError) as caught:
        action()
    return str(caught.value)


def test_lines_with_their_numbers(reach: Reach, workspace: Path) -> None:
    (workspace / "many").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
    text = files.read_file(reach, "many", offset=10, limit=2)
    assert text == "    10\tline 10\n    11\tline 11\n[lines 10-11 of 1000; go on with offset=12]"
    assert files.read_file(reach, "many", offset=999) == "   999\tline 999\n  1000\tline 1000"
    assert "'many' has 1000 lines; offset 1001" in refused(lambda: files.read_file(reach, "many", offset=1001))


def test_long_files_and_long_lines_are_shown_in_part(reach: Reach, workspace: Path) -> None:
    (workspace / "wide").write_text(("x" * 3000 + "\n") * 20)
    text = files.read_file(reach, "wide")
    assert "[... 3000 characters]" in text and text.endswith("go on with offset=10]")
    assert len(text) < 20_000
    (workspace / "empty").write_text("")
    assert files.read_file(reach, "empty") == "['empty' is empty]"


def test_read_only_folders_are_read_by_their_absolute_path(reach: Reach, tmp_path: Path, workspace: Path) -> None:
    assert files.read_file(reach, str(tmp_path / "given" / "notes.txt")) == "     1\tnotes"
    assert files.read_file(reach, str(workspace / "README.md")) == "     1\ta runtime"
    assert "lies outside" in refused(lambda: files.write_file(reach, str(tmp_path / "given" / "x"), ""))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.txt", "runtime/../../secret.txt", "", "a\0b", "/", "/proc/self/environ"]
)
def test_other_paths_are_refused(reach: Reach, path: str) -> None:
    for tool in (files.read_file, files.list_files, lambda reach, path: files.search(reach, "x", path)):
        text = refused(lambda tool=tool: tool(reach, path))
        assert "lies outside; paths are relative to the workspace" in text or "must not" in text
    assert refused(lambda: files.write_file(reach, path, "x"))


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.txt", "/proc/self/environ"])
def test_a_planted_link_leads_nowhere(reach: Reach, workspace: Path, tmp_path: Path, target: str) -> None:
    (workspace / "link").symlink_to(target)
    (workspace / "folder").symlink_to(tmp_path)
    for path in ("link", "folder/secret.txt"):
        assert "is a link that leads outside" in refused(lambda path=path: files.read_file(reach, path))
        assert "is a link that leads outside" in refused(lambda path=path: files.write_file(reach, path, "x"))
        assert "is a link that leads outside" in refused(lambda path=path: files.search(reach, "x", path))
    assert (tmp_path / "secret.txt").read_text() == "golden\n"
    assert "root" not in files.search(reach, "root|golden") and "golden" not in files.search(reach, "root|golden")
    assert "link  [a link]" in files.list_files(reach)


def test_a_link_inside_is_followed(reach: Reach, workspace: Path) -> None:
    (workspace / "inside").symlink_to("README.md")
    assert files.read_file(reach, "inside") == "     1\ta runtime"
    files.write_file(reach, "inside", "new\n")
    assert (workspace / "README.md").read_text() == "new\n" and (workspace / "inside").is_symlink()


def test_a_loop_of_links(reach: Reach, workspace: Path) -> None:
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    assert "'a' cannot be followed" in refused(lambda: files.read_file(reach, "a"))


def test_a_pipe_does_not_hold_anybody(reach: Reach, workspace: Path) -> None:
    os.mkfifo(workspace / "pipe")
    assert refused(lambda: files.read_file(reach, "pipe")) == "'pipe' is a pipe, not a file"
    assert refused(lambda: files.write_file(reach, "pipe", "x")) == "'pipe' is a pipe, not a file"
    assert files.search(reach, "x", "pipe") == "no match in 1 files"
    assert "pipe  [a pipe]" in files.list_files(reach)


def test_what_is_no_text_is_refused(reach: Reach, workspace: Path) -> None:
    (workspace / "weights").write_bytes(b"\x00\x01" * 100)
    (workspace / "latin").write_bytes("é".encode("latin-1"))
    with (workspace / "huge").open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    assert refused(lambda: files.read_file(reach, "weights")) == "'weights' is binary (200 bytes)"
    assert "'latin' is not UTF-8 text" in refused(lambda: files.read_file(reach, "latin"))
    assert "'huge' has 16 MiB; at most 16 MiB are read: use run_command" in refused(
        lambda: files.read_file(reach, "huge")
    )
    assert refused(lambda: files.read_file(reach, "runtime")) == "'runtime' is a folder, not a file"


def test_a_wrong_name_is_told_the_right_one(reach: Reach) -> None:
    assert refused(lambda: files.read_file(reach, "model.py")) == (
        "there is no 'model.py'; did you mean runtime/model.py?"
    )
    assert refused(lambda: files.list_files(reach, "README.md")) == "'README.md' is not a folder"
    assert refused(lambda: files.search(reach, "x", "zzz")) == "there is no 'zzz'"


def test_files_are_listed_and_folders_of_caches_are_not(reach: Reach, workspace: Path) -> None:
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("x")
    listed = files.list_files(reach).splitlines()
    assert listed == [".git/  [not listed]", "README.md  10", "runtime/", "runtime/model.py  33"]
    for number in range(500):
        (workspace / "runtime" / f"{number}.py").touch()
    assert files.list_files(reach, "runtime").splitlines()[-1] == "[more than 400 entries; list a folder below]"


def test_search_finds_lines(reach: Reach, workspace: Path) -> None:
    (workspace / "blob").write_bytes(b"forward\0")
    assert files.search(reach, r"def \w+\(x\)") == "runtime/model.py:1: def forward(x):"
    assert files.search(reach, "forward", "runtime/model.py") == "runtime/model.py:1: def forward(x):"
    assert files.search(reach, "nowhere") == "no match in 3 files"
    (workspace / "many").write_text("forward\n" * 1000)
    lines = files.search(reach, "forward").splitlines()
    assert len(lines) == 201 and lines[-1].startswith("[only the first 200 matches")


def test_a_pattern_that_is_none_or_takes_for_ever(reach: Reach, workspace: Path, monkeypatch) -> None:
    assert "pattern '(' is no regular expression: missing )" in refused(lambda: files.search(reach, "("))
    (workspace / "a").write_text("a" * 60 + "!\n")
    monkeypatch.setattr(files, "SEARCH_TIMEOUT_S", 1.0)
    assert "took more than 1 s; use a simpler pattern" in refused(lambda: files.search(reach, "(a+)+$"))


def test_files_are_written_with_the_folders_above(reach: Reach, workspace: Path) -> None:
    assert files.write_file(reach, "a/b/c.py", "1\n2\n") == "created a/b/c.py (2 lines)"
    script = workspace / "run.sh"
    script.write_text("old")
    script.chmod(0o4755)
    assert files.write_file(reach, "run.sh", "new\n") == "replaced run.sh (1 lines)"
    assert script.stat().st_mode & 0o7777 == 0o755
    assert "cannot make the folder" in refused(lambda: files.write_file(reach, "README.md/x", ""))
    assert "holds control characters" in refused(lambda: files.write_file(reach, "a\nb", ""))
    assert "is a folder, not a file" in refused(lambda: files.write_file(reach, "runtime", ""))


def test_nothing_is_written_through_a_hard_link(reach: Reach, workspace: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "secret.txt", workspace / "hard")
    files.write_file(reach, "hard", "mine\n")
    assert (tmp_path / "secret.txt").read_text() == "golden\n"


def test_a_reader_writes_nothing(workspace: Path) -> None:
    reader = reach_of(workspace, is_writable=False, read_only=())
    text = refused(lambda: files.write_file(reader, "README.md", "x"))
    assert text == "the workspace is read-only in this task"


def test_a_long_result_keeps_its_ends() -> None:
    text = cut("a" * 15_000 + "b" * 15_000)
    assert len(text) <= 20_000
    assert text.startswith("aaa") and text.endswith("bbb") and "\n[... 10064 characters left out ...]\n" in text
    assert cut("x" * 20_000) == "x" * 20_000
