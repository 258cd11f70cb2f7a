"""A project of its own for the real command, ways to kill it, and a library with a card that is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.journal import Event, read_events

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "vibeserve", "conf", "skills", "targets", "templates", "pyproject.toml", "tasks.py", "README.md", "LICENSE",
    "NOTICE",
)  # fmt: skip
NOT_COPIED = (".*", "__pycache__")
COMMAND_TIMEOUT_S = 1200.0
POLL_S = 0.05


@dataclass
class Project:
    """A user's folder and the installation that its commands run."""

    root: Path
    tree: Path
    cache: Path
    seen_trees: set[str] = field(default_factory=set)
    """ids of walled process trees that were seen running"""

    def environment(self, **more: str) -> dict[str, str]:
        paths = {"PYTHONPATH": str(self.tree), "VIBESERVE_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**os.environ, **paths, **more}

    def popen_argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "vibeserve.cli.main", *arguments]

    def popen(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.popen_argv(*arguments), cwd=self.root, env=self.environment(**more),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def command(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, whatever that is."""
        process = self.popen(*arguments, **more)
        try:
            output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
        except BaseException:
            kill_group(process)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    @property
    def run_folder(self) -> Path:
        (folder,) = (self.root / ".vibeserve/runs").iterdir()
        return folder

    @property
    def artifact(self) -> Path:
        return (self.root / "artifacts/tiny_cpu/latest").resolve()

    def events(self, kind: str) -> list[Event]:
        return [event for event in read_events(self.run_folder / "journal.jsonl") if event.kind == kind]

    def manifest(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.artifact / "manifest.json").read_text())
        return document

    def note_trees(self) -> set[str]:
        """Remember the walled process trees that are recorded right now, and return them."""
        found = {json.loads(path.read_text())["tree_id"] for path in self.run_folder.glob("*/*.process.json")}
        self.seen_trees |= found
        return found

    def living(self) -> list[str]:
        """Command lines of live processes that belong to this project's runs."""
        marks = [f"PYTHONPATH={self.tree}".encode(), *(f"VIBESERVE_TREE={tree}".encode() for tree in self.seen_trees)]
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if set(marks) & set((folder / "environ").read_bytes().split(b"\0")):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        return [line for line in found if line]


def copy_tree(destination: Path) -> Path:
    """A checkout without its tests, from which the command can run."""
    destination.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, destination / name, ignore=shutil.ignore_patterns(*NOT_COPIED))
        else:
            shutil.copy(ROOT / name, destination / name)
    return destination


def kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_for(condition: Callable[[], bool], *, what: str, timeout_s: float = 300.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not seen in {timeout_s:g} s: {what}"
        time.sleep(POLL_S)


@dataclass
class Interrupted:
    """A project whose run was killed again and again, and the output of each start."""

    project: Project
    outputs: list[str]
    trees_at_kill: set[str]


def run_until_append(project: Project, *, at: str) -> str:
    """Run until the append `at` (`round:1`: the first one of that kind) of this process has reached the disk."""
    done = project.command("+target=tiny_cpu", VIBESERVE_CRASH_AT=at)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    return done.stdout


def run_until_killed_in_round(project: Project, *, number: int) -> tuple[str, set[str]]:
    """SIGKILL the command's whole process group while candidate and incumbent of the round are up."""
    log = project.root / "killed.log"
    trees: set[str] = set()
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "vibeserve.cli.main", "+target=tiny_cpu"], cwd=project.root, stdout=stream,
            stderr=subprocess.STDOUT, env=project.environment(PYTHONUNBUFFERED="1"), start_new_session=True,
        )  # fmt: skip

        def both_up() -> bool:
            assert process.poll() is None, log.read_text()
            if f" round {number} " not in log.read_text():
                return False
            trees.clear()
            trees.update(project.note_trees())
            return len(trees) >= 2

        try:
            wait_for(both_up, what=f"both servers of round {number}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return log.read_text(), trees


WRONG_CARD = """schema_version: 1
name: sign-weights
seams: [linear]
files: {assets/runtime/linear.py: runtime/linear.py}
relieves: [queue, prefill, decode.linear, decode.attention, decode.other]
expected_factor: 30.0
expected_factor_note: One bit instead of sixteen.
weight_bits: 1
"""

WRONG_LINEAR = '''"""Linear layers over the signs of the weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .parameters import Parameters


class Linear:
    """`y = x W^T` with every weight replaced by its sign times the mean magnitude of its row."""

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        weight = weight.to(torch.float32)
        self.weight = weight.sign() * weight.abs().mean(dim=1, keepdim=True)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)
'''


def add_wrong_skill(tree: Path) -> None:
    """A component that promises most and computes something else."""
    folder = tree / "skills/sign-weights"
    (folder / "assets/runtime").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: sign-weights\ndescription: One bit per weight.\n---\nSigns only.\n")
    (folder / "component.yaml").write_text(WRONG_CARD)
    (folder / "assets/runtime/linear.py").write_text(WRONG_LINEAR)
