"""Disks that take nothing, and kills inside an append: one clear error, every whole event kept."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import write_document
from vibeserve.core.storage import MIN_FREE_MIB, cannot_write, refuse_full_disk, said_storage
from vibeserve.errors import InfraError, StorageError
from vibeserve.journal import CrashPoint, Journal, read_events
from vibeserve.lease import Owner

LIMITED = """
import resource, sys
from pathlib import Path
from vibeserve.errors import StorageError
from vibeserve.journal import Journal
path = Path(sys.argv[1])
with Journal.open(path) as journal:
    journal.append("first", "x" * 100)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 150, resource.RLIM_INFINITY))
    try:
        journal.append("second", "y" * 400)
    except StorageError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    journal.append("third")
"""


def test_a_line_that_does_not_fit_is_taken_back_and_the_next_one_follows(tmp_path: Path) -> None:
    path = tmp_path / "j"
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    told, step = done.stdout.splitlines()
    assert told.startswith(f"the journal {path} could not be written: File too large (")
    assert " bytes needed, " in told and told.endswith(" MiB free on its disk)")
    assert step == "next: its 1 events are whole; free the disk and start the same command again"
    assert [(event.seq, event.kind) for event in read_events(path)] == [(0, "first"), (1, "third")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write until nothing more goes in."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as stream:
        for size in (1 << 16, 1):
            try:
                while True:
                    stream.write(b"\0" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return path


def test_a_full_disk_loses_nothing_and_what_did_not_fit_can_be_repeated(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "run" / "journal.jsonl"
    owner = small_disk / "owner.json"
    write_document(owner, Owner.myself(run="whole"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.bin").write_bytes(os.urandom(1 << 17))
    store = CheckpointStore(small_disk / "checkpoints.git")
    with Journal.open(path) as journal:
        journal.append("round", {"number": 0})
        filler = fill(small_disk)
        with pytest.raises(StorageError, match=r"No space left on device \(\d+ bytes needed, 0 MiB free") as caught:
            journal.append("round", {"number": 1, "pad": "x" * 10000})
        assert "the journal " in str(caught.value) and "its 1 events are whole" in str(caught.value)
        with pytest.raises(OSError, match="No space left") as raised:
            write_document(owner, Owner.myself(run="x" * 10000))
        assert raised.value.filename == str(owner)
        assert '"run": "whole"' in owner.read_text(), "a document is replaced whole or not at all"
        with pytest.raises(StorageError):
            store.commit(workspace, parent=None, message="m", ref="r/c")
        filler.unlink()
        journal.append("round", {"number": 1})
    assert [event.data["number"] for event in read_events(path)] == [0, 1]
    assert [entry.name for entry in small_disk.iterdir() if entry.name.startswith(".owner")] == []
    sha = store.commit(workspace, parent=None, message="m", ref="r/c")
    again = CheckpointStore(tmp_path / "elsewhere.git").commit(workspace, parent=None, message="m", ref="r/c")
    assert sha == again, "what a full disk left half written changes no checkpoint"


def test_a_disk_that_became_read_only_is_named(small_disk: Path) -> None:
    path = small_disk / "journal.jsonl"
    with Journal.open(path) as journal:
        journal.append("round")
    whole = path.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError) as raised:
        Journal.open(path)
    told = cannot_write(path, raised.value)
    assert isinstance(told, StorageError) and str(told) == f"{path} could not be written: Read-only file system"
    assert path.read_bytes() == whole and len(read_events(path)) == 1
    with pytest.raises(StorageError, match=f"the disk of {small_disk} is read-only\nnext: make it writable"):
        refuse_full_disk(small_disk)  # before a round, and where something died of it


def test_a_round_is_not_begun_on_a_disk_that_has_no_room(small_disk: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError) as caught:
        refuse_full_disk(small_disk)
    told, step = str(caught.value).splitlines()
    assert told == f"the disk of {small_disk} is full: 1 MiB are free, a round needs {MIN_FREE_MIB} MiB"
    assert step == "next: free the disk and start the same command again; what is finished is kept"
    refuse_full_disk(tmp_path)


def test_what_is_no_storage_error_is_none() -> None:
    denied = cannot_write(Path("/x/y"), PermissionError(errno.EACCES, "Permission denied"), step="ask")
    assert not isinstance(denied, StorageError)
    assert str(denied) == "/x/y could not be written: Permission denied\nnext: ask"
    assert said_storage("error: unable to write file: No space left on device") and not said_storage("no space")


CRASHER = """
import sys
from pathlib import Path
from vibeserve.journal import Journal
with Journal.open(Path(sys.argv[1])) as journal:
    for number in range(len(journal.events()), 4):
        journal.append("step" if number % 2 else "round", {"number": number}, durable=False)
"""


@pytest.mark.parametrize(
    ("at", "num_kept", "is_torn"),
    [
        ("before:1", 0, False), ("within:1", 0, True), ("after:1", 1, False), ("1", 1, False),
        ("before:step:2", 3, False), ("within:step:2", 3, True), ("step:2", 4, False),
    ],
)  # fmt: skip
def test_a_kill_around_an_append_keeps_what_was_acknowledged(
    tmp_path: Path, at: str, num_kept: int, is_torn: bool
) -> None:
    path = tmp_path / "j"
    argv = [sys.executable, "-c", CRASHER, str(path)]
    done = subprocess.run(argv, env={**os.environ, "VIBESERVE_CRASH_AT": at}, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (len(read_events(path)), not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0) == (
        num_kept, is_torn,
    )  # fmt: skip
    subprocess.run(argv, check=True)
    assert [event.data["number"] for event in read_events(path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["round", "round:", "before:", "until:3:x", "-1"])
def test_a_crash_point_that_names_no_append_is_refused(text: str) -> None:
    with pytest.raises(InfraError, match=r"names no append of the journal\nnext: 3, round:3, or one of both behind"):
        CrashPoint.parse(text)
    assert CrashPoint.parse("") is None
