"""The real command, ended by signals and met by a second one: what it says, what is kept, what is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e_project import Project, kill_group, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
KEPT = "next: start the same command again; finished steps and rounds are kept\n"


class Running:
    """A run whose output can be looked at while it works."""

    def __init__(self, project: Project, log: Path) -> None:
        self.project, self._log = project, log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                project.popen_argv("+target=tiny_cpu"), cwd=project.root, stdout=stream, stderr=subprocess.STDOUT,
                env=project.environment(PYTHONUNBUFFERED="1"), start_new_session=True, text=True,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until(self, words: str) -> None:
        wait_for(lambda: words in self.said or self.process.poll() is not None, what=words)
        assert words in self.said, self.said

    def interrupt(self) -> None:
        """As the terminal does: every process of the foreground group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def ended(self) -> int:
        code = self.process.wait(300)
        assert self.project.living() == [], "it left processes behind"
        return code


@pytest.fixture
def start(make_project: Callable[[str], Project]) -> Iterator[Callable[[str], Running]]:
    project, started = make_project("ended"), list[Running]()

    def begin(name: str) -> Running:
        started.append(Running(project, project.root / f"{name}.log"))
        return started[-1]

    yield begin
    for running in started:
        kill_group(running.process)


def test_signals_end_it_and_a_second_process_is_refused(start: Callable[[str], Running]) -> None:
    first = start("first")
    first.until("trying planted faults")
    first.interrupt()
    assert first.ended() == 130
    assert "vibeserve: stopping behind the step or round under way; once more to stop now\n" in first.said
    assert "reference    ran in" in first.said and "baselines" not in first.said
    assert first.said.endswith(f"vibeserve: interrupted\n{KEPT}")
    second = start("second")
    second.until("synthesize   started")
    assert "reference    up to date" in second.said
    refused = second.project.command("+target=tiny_cpu")
    assert refused.returncode == 5
    assert f"is being carried out by pid {second.process.pid} on {socket.gethostname()}, since " in refused.stderr
    second.interrupt()
    second.until("once more to stop now")
    second.interrupt()
    assert second.ended() == 130
    assert second.said.endswith(f"vibeserve: interrupted\n{KEPT}")
    assert second.project.events("round") == [], "it did not wait for the round"
    assert list(second.project.run_folder.rglob("*.process.json")) == []
