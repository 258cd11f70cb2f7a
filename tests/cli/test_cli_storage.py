"""Folders that cannot be written to end as one message and exit 5; every other OSError keeps its traceback."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from vibeserve.cli.boundary import within_boundary
from vibeserve.cli.main import main


def ended(error: OSError, *argv: str) -> int:
    def command(words: list[str]) -> int:
        raise error

    return within_boundary(command, list(argv))


def os_error(code: int, path: Path | None) -> OSError:
    return OSError(code, os.strerror(code), *([str(path)] if path else []))


@pytest.mark.parametrize("code", [errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_takes_nothing_names_folder_and_file(
    code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(os_error(code, tmp_path / ".vibeserve" / "runs" / "journal.jsonl")) == 5
    first, step = capsys.readouterr().err.splitlines()
    assert first.startswith(f"vibeserve: {tmp_path}: {tmp_path}/.vibeserve/runs/journal.jsonl could not be written: ")
    assert step == f"next: make {tmp_path} writable and free its disk, or start from another folder"
    assert ended(os_error(errno.ENOSPC, None), "--json") == 5
    assert json.loads(capsys.readouterr().out)["error"]["class"] == "InfraError"


def test_a_folder_closed_to_this_user_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    denied = os_error(errno.EACCES, tmp_path / "targets" / "neu.yaml")
    with pytest.raises(PermissionError):  # the folder is open: why ever it was denied, it is a bug
        ended(denied)
    # the superuser may write everywhere, so the answer is given
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert ended(denied) == 5
    assert f"{tmp_path}/targets/neu.yaml could not be written: Permission denied" in capsys.readouterr().err


def test_a_cache_that_cannot_be_made_names_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for cache in (tmp_path / "file" / "cache", Path("/proc/vibeserve_no_cache/deeper")):
        monkeypatch.setenv("VIBESERVE_CACHE", str(cache))
        with pytest.raises(OSError) as raised:
            cache.mkdir(parents=True)
        assert ended(raised.value) == 5
        told = capsys.readouterr().err
        assert told.startswith(f"vibeserve: {cache}: models, peers and builds could not be written (")
        assert "next: name a folder that can be written to: VIBESERVE_CACHE=FOLDER" in told


def test_a_file_that_is_missing_is_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    for path in (tmp_path / "elsewhere", tmp_path / "cache" / "weights" / "x"):
        with pytest.raises(FileNotFoundError):
            ended(os_error(errno.ENOENT, path))


def test_init_in_a_repository_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Path.mkdir

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if path.is_relative_to(tmp_path):
            raise os_error(errno.EROFS, path)
        make(path, mode, parents, exist_ok)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert main(["init", "neu", "--model", "tiny_llama"]) == 5
    first, step = capsys.readouterr().err.splitlines()
    assert first.startswith(f"vibeserve: {tmp_path}: {tmp_path}/targets")
    assert first.endswith("could not be written: Read-only file system") and step.startswith("next: make ")
