"""The invoke collection: the words of CI and the verbs of the command."""

from __future__ import annotations

import subprocess
import sys

from e2e_project import ROOT

from vibeserve.cli.table import VERBS


def test_invoke_lists_the_chores_and_every_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--list"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    listed = {line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")}
    assert {"lint", "typecheck", "test", "build"} <= listed
    assert {name for name, *_ in VERBS} <= listed
