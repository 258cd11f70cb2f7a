"""What a run tells: plain lines for pipes, JSON lines for programs, and nothing that markup could break."""

from __future__ import annotations

import io
import json
import re
import threading

import pytest

from vibeserve.progress import JsonProgress, LineProgress, LiveProgress, QuietProgress, make_progress


def test_plain_lines_carry_time_stage_and_text() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.event("round 1", "accepted: x2.0", seconds=3.0)
    with progress.busy("certify", "re-scoring"):
        pass
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d round 1      accepted: x2\.0", first)
    assert second.endswith(" certify      re-scoring")


def test_json_lines_carry_the_facts() -> None:
    stream = io.StringIO()
    JsonProgress(stream).event("weights", "ran in 1.0 s", state="ran", seconds=1.0)
    (line,) = stream.getvalue().splitlines()
    document = json.loads(line)
    assert document.pop("at_s") >= 0
    assert document == {
        "schema_version": 1, "kind": "step", "stage": "weights", "text": "ran in 1.0 s", "state": "ran", "seconds": 1.0
    }  # fmt: skip


def test_the_way_of_telling_follows_the_flag_and_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_progress(is_json=True), JsonProgress)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(make_progress(is_json=False), LineProgress)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", terminal)
    assert isinstance(make_progress(is_json=False), LiveProgress)


def test_a_terminal_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    progress = LiveProgress()
    progress.event("round 1", "output_throughput x3.0 [2.9, 3.1] [/red]")
    with progress.busy("certify", "[bold]not markup"):
        pass
    assert "x3.0 [2.9, 3.1] [/red]" in capsys.readouterr().out


def test_quiet_keeps_what_was_told() -> None:
    progress = QuietProgress()
    with progress.busy("certify", "re-scoring"):
        progress.event("certify", "done")
    assert progress.events == [("certify", "re-scoring"), ("certify", "done")]


class Watched(io.StringIO):
    """Sets `told` as soon as it holds `word`."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self._word = word
        self.told = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._word in self.getvalue():
            self.told.set()
        return written


@pytest.mark.parametrize("make", [LineProgress, JsonProgress])
def test_work_that_takes_long_says_that_it_goes_on(make: type[LineProgress] | type[JsonProgress]) -> None:
    stream = Watched("still re-scoring 722 replies, ")
    with make(stream, beat_s=0.01).busy("certify", "re-scoring 722 replies"):
        assert stream.told.wait(30)
    lines = stream.getvalue().splitlines()
    assert len(lines) >= 2 and all("re-scoring 722 replies" in line for line in lines)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_nobody_tells_of_work_that_failed() -> None:
    with pytest.raises(ZeroDivisionError), LineProgress(io.StringIO(), beat_s=0.01).busy("a", "b"):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]
