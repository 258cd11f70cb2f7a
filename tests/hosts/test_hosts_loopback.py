"""`invoke hosts-loopback`, `doctor` of a host, and a whole run whose servers are behind ssh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.host_loopback import command
from vibeserve.host_loopback.command import HostRow, is_good, row_of
from vibeserve.host_loopback.sshd import find_sshd, running_sshd

needs_sshd = pytest.mark.skipif(find_sshd() is None, reason="sshd is not installed (apt-get install openssh-server)")


@pytest.mark.audit
@needs_sshd
def test_the_same_runtime_behind_ssh_passes_and_a_cut_connection_is_infrastructure() -> None:
    row = row_of("ssh")
    assert (row.available, row.verdict, row.infra_typed, row.orphans) == (True, "pass", True, 0), row
    assert row.ci_low is not None and row.ratio is not None and row.ci_high is not None
    assert row.ci_low <= row.ratio <= row.ci_high


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (HostRow(kind="slurm", available=False, why_not="no"), True),
        (HostRow(kind="local", available=True, verdict="pass"), True),
        (HostRow(kind="ssh", available=True, verdict="pass", infra_typed=True), True),
        (HostRow(kind="ssh", available=True, verdict="accuracy/x: y", infra_typed=True), False),
        (HostRow(kind="ssh", available=True, verdict="pass", infra_typed=False), False),
        (HostRow(kind="ssh", available=True, verdict="pass", infra_typed=True, orphans=1), False),
    ],
)
def test_what_is_lost_or_refused_ends_it_with_3(
    row: HostRow, expected: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_good(row) is expected
    monkeypatch.setattr(command, "row_of", lambda kind: row)
    assert command.main(["--only", "ssh", "--json"]) == (0 if expected else 3)
    hosts = json.loads(capsys.readouterr().out)["hosts"]
    assert [each["kind"] for each in hosts] == [row.kind]
    assert command.main(["--only", "ssh"]) == (0 if expected else 3)
    assert capsys.readouterr().out.startswith("host ")


@needs_sshd
def test_doctor_says_what_a_host_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_sshd(tmp_path / "sshd") as sshd:
        declared = sshd.declared(tmp_path / "root")
        keys = ("address", "ssh_config", "root", "python")
        words = ["host=ssh", *(f"host.{key}={getattr(declared, key)}" for key in keys)]
        assert main(["doctor", *words, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        checks = {check["name"]: check for check in found["checks"]}
        assert found["ok"] is True and found["hardware"]["cpu_model"]
        assert {"connection", "clock", "python", "modules", "wall", "cpu", "memory", "gpu"} == set(checks)
        sshd.kill()
        assert main(["doctor", *words]) == 5
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("connection  missing  nothing can be sent to host loopback-host")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["host=ssh"], "host.address: a host of kind ssh needs one"),
        (["host=moon"], "host=moon: "),
        (["host=local", "budget=small"], "budget: only host and its keys say where to look"),
        (["nothing"], "an override is KEY=VALUE or GROUP=OPTION"),
    ],
)
def test_doctor_refuses_what_is_no_host(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert told in capsys.readouterr().err
