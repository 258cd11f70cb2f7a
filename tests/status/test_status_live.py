"""The live view: what a terminal shows below the lines of a run, and when a run's folder is read for it."""

from __future__ import annotations

import io
import os
import pty
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from status_samples import long_run, round_data

from vibeserve.cli import building
from vibeserve.core.paths import state_dir
from vibeserve.journal import Journal
from vibeserve.lease import own_run
from vibeserve.progress import JsonProgress, LineProgress, LiveProgress, QuietProgress
from vibeserve.status import read_status
from vibeserve.status.live import MAX_ROUNDS, READ_S, Watching, view
from vibeserve.status.live import own_run as watch_own_run

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def console(*, width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)


def drawn(screen: Console) -> str:
    file = screen.file
    assert isinstance(file, io.StringIO)
    return ESCAPES.sub("", file.getvalue())


def test_the_view_shows_the_newest_rounds_and_fits_a_narrow_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "long-1"
    long_run(folder)
    status = read_status(folder, state=tmp_path)
    screen = console(width=80)
    screen.print(view(status, now_s=time.time()))
    lines = drawn(screen).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("runs/long-1  stopped, ") and lines[1].split()[:2] == ["round", "from"]
    numbers = [line.split()[0] for line in lines[2 : 2 + MAX_ROUNDS]]
    assert numbers == [str(number) for number in range(40 - MAX_ROUNDS, 40)]
    assert any(line.startswith("incumbent round 36") for line in lines)
    assert any(line.startswith("left      search at most") for line in lines)
    assert any(re.match(r"spent     \d+ tokens, 8\.\d+ USD", line) for line in lines)


def test_text_of_a_run_is_no_markup(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    data = round_data(1)
    data["record"]["proposal"]["title"] = "[red]x[/nothing]"
    with Journal.open(folder / "journal.jsonl") as journal:
        journal.append("round", round_data(0))
        journal.append("round", data)
    screen = console()
    screen.print(view(read_status(folder, state=tmp_path), now_s=0.0))
    assert "[red]x[/nothing]" in drawn(screen)


def test_a_folder_is_read_seldom(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    now = [0.0]
    looked: list[int] = []

    def find() -> Path | None:
        looked.append(1)
        return folder if folder.is_dir() else None

    watching = Watching(find=find, state=tmp_path, monotonic=lambda: now[0])
    assert watching() is None and watching() is None and len(looked) == 1
    with Journal.open(folder / "journal.jsonl") as journal:
        journal.append("opened", {"target": "t"})
        now[0] += READ_S
        assert watching() is not None
        journal.append("round", round_data(0))
        assert watching.look() is not None and len(watching.look().rounds) == 0  # type: ignore[union-attr]
        now[0] += READ_S
        assert len(watching.look().rounds) == 1  # type: ignore[union-attr]
        watching.look()
        before = watching._events
    now[0] += READ_S
    assert watching() is not None and watching._events is before, "a journal that did not grow is not read again"
    raw = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(raw.replace(b"opened", b"opaned") + raw)
    now[0] += READ_S
    assert watching.look().state.value == "unreadable"  # type: ignore[union-attr]


def test_a_build_shows_the_run_that_its_own_process_carries_out(tmp_path: Path) -> None:
    runs = state_dir(tmp_path) / "runs"
    long_run(runs / "another")
    watching = watch_own_run(tmp_path)
    assert watching() is None, "nobody carries that one out"
    with own_run(runs / "mine", run="mine", progress=QuietProgress()):
        with Journal.open(runs / "mine" / "journal.jsonl") as journal:
            journal.append("opened", {"target": "mine"})
            watching = watch_own_run(tmp_path)
            assert watching() is not None and watching.status is not None and watching.status.run == "runs/mine"


def test_lines_go_by_above_the_view_which_is_gone_at_the_end() -> None:
    screen = console()
    drawn_twice = threading.Event()
    frames: list[int] = []

    def picture() -> str:
        frames.append(1)
        if len(frames) > 1:
            drawn_twice.set()
        return "THE VIEW"

    progress = LiveProgress(view=picture, console=screen)
    with progress.shown():
        progress.event("round 1", "accepted: x2.0 [1.9, 2.1]", outcome="accepted")
        with progress.busy("certify", "re-scoring [x]"):
            assert drawn_twice.wait(30)
    text = drawn(screen)
    assert "round 1      accepted: x2.0 [1.9, 2.1]\n" in text
    assert re.search(r"certify  re-scoring \[x\], \d+ s\s+THE VIEW", text)
    assert [thread for thread in threading.enumerate() if thread.name == "progress"] == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "stream", "expected"),
    [
        ({"is_json": True, "is_plain": False}, Terminal(), JsonProgress),
        ({"is_json": False, "is_plain": True}, Terminal(), LineProgress),
        ({"is_json": False, "is_plain": False}, io.StringIO(), LineProgress),
        ({"is_json": False, "is_plain": False}, Terminal(), LiveProgress),
    ],
)
def test_only_a_terminal_is_drawn_on(
    words: dict[str, bool], stream: io.StringIO, expected: type[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdout", stream)
    with building._progress(**words) as progress:
        assert type(progress) is expected


@pytest.mark.slow
def test_watch_on_a_real_terminal_ends_with_the_run(tmp_path: Path) -> None:
    """`vibeserve status --watch` on a pseudo-terminal draws the run and prints its page once it is finished."""
    import subprocess
    import sys

    folder = state_dir(tmp_path) / "runs" / "long-0123456789abcdef"
    path = long_run(folder, num_rounds=4)
    control, terminal = pty.openpty()
    command = [sys.executable, "-m", "vibeserve.cli.main", "status", "long", "--watch", "--dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**os.environ, "COLUMNS": "100"})
    os.close(terminal)
    seen, is_finished = "", False
    try:
        while True:
            try:
                seen += os.read(control, 65536).decode()
            except OSError:
                break
            if "from" in seen and not is_finished:
                is_finished = True
                with Journal.open(path) as journal:
                    journal.append("packaged", {"path": "x"})
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        os.close(control)
    text = ESCAPES.sub("", seen)
    assert "stopped, " in text and "finished, " in text and "spent: " in text
