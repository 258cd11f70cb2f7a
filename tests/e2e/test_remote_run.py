"""The real command with its servers behind a real sshd on loopback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from e2e_project import Project

from vibeserve.host_loopback.sshd import find_sshd, running_sshd
from vibeserve.host_loopback.trial import left_after

pytestmark = [
    pytest.mark.audit, pytest.mark.timeout(1200),
    pytest.mark.skipif(find_sshd() is None, reason="sshd is not installed (apt-get install openssh-server)"),
]  # fmt: skip
KEPT_HERE = ("reference", "golden", "rescore", "faults", "check_", "journal", "user_key", "api_key")


def test_a_run_behind_ssh_is_certified_and_nothing_of_the_judges_lies_there(
    make_project: Callable[[str], Project], tmp_path: Path
) -> None:
    project, root = make_project("remote"), tmp_path / "root"
    with running_sshd(tmp_path / "sshd") as sshd:
        declared = sshd.declared(root)
        keys = ("address", "ssh_config", "root", "python")
        words = ["host=ssh", *(f"host.{key}={getattr(declared, key)}" for key in keys)]
        done = project.command("+target=tiny_cpu", "budget.rounds=1", *words, OPENAI_API_KEY="secret-of-the-controller")
        assert done.returncode == 0, done.stdout + done.stderr
        assert left_after(str(root)) == [], "the programs there end with the run"
    manifest = project.manifest()
    assert manifest["status"] == "certified"
    assert [entry["outcome"] for entry in manifest["rounds"]] == ["baseline", "accepted"]
    files = [path for path in root.rglob("*") if path.is_file()]
    assert [path for path in files for word in KEPT_HERE if word in path.name] == []
    assert [path for path in files if b"secret-of-the-controller" in path.read_bytes()] == []
    assert any("models" not in path.parts and path.name == "weights.json" for path in files), "weights are cached there"
