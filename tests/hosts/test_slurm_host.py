"""Allocations of a Slurm cluster: with its commands as scripts, and with a real cluster of one node."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.errors import InfraError
from vibeserve.host_loopback.command import row_of
from vibeserve.host_loopback.slurm import Cluster, missing_programs, running_cluster
from vibeserve.host_loopback.trial import left_after
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.idle import Idle
from vibeserve.hosts.slurm import SlurmHost, SlurmWay

needs_slurm = pytest.mark.skipif(
    bool(missing_programs()), reason="Slurm is not installed (apt-get install slurmctld slurmd slurm-client munge)"
)
SALLOC = """#!/bin/sh
echo "$@" >> {folder}/asked
[ -e {folder}/refuses ] && {{ echo "salloc: error: Job submit/allocate failed: Invalid partition" >&2; exit 1; }}
[ -e {folder}/waits ] && exec sleep 60
while [ "$1" != sh ]; do shift; done
SLURM_JOB_ID=$(wc -l < {folder}/asked) exec "$@"
"""
SQUEUE = '#!/bin/sh\n[ -e {folder}/expired ] || echo RUNNING\n'
SCANCEL = '#!/bin/sh\necho "$@" >> {folder}/cancelled\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Slurm's commands are, and what they were asked."""
    for name, text in (("salloc", SALLOC), ("scancel", SCANCEL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def way_of(*, wait_s: float = 20.0) -> SlurmWay:
    return SlurmWay(options=["--partition=gpu"], wait_s=wait_s, idle_s=0.0)


def test_one_allocation_is_held_for_all_commands_until_it_is_given_back(folder: Path) -> None:
    way = way_of()
    way.named("run-1")
    first = way.argv("true")
    assert first[:2] == ["srun", "--jobid=1"] and first[-3:] == ["/bin/sh", "-c", "true"]
    assert "--overlap" in first and "--export=HOME,PATH" in first, "nothing else of this environment goes along"
    assert way.argv("false")[1] == "--jobid=1" and way.where == "slurm job 1"
    way.release()
    assert way.argv("true")[1] == "--jobid=2" and way.generation == 2
    (folder / "expired").touch()
    assert way.argv("true")[1] == "--jobid=3", "a job that was cancelled is not used, though salloc still lives"
    way.release()
    asked = (folder / "asked").read_text().splitlines()
    assert asked[0].startswith("--partition=gpu --job-name=vibeserve-run-1 sh -c")
    assert (folder / "cancelled").read_text() == "--me --name=vibeserve-run-1\n", "what was left of that run"


def test_an_allocation_that_is_refused_or_does_not_come_says_why(folder: Path) -> None:
    (folder / "refuses").touch()
    with pytest.raises(HostLostError, match=r"no allocation \(refused\): salloc: error: .*Invalid partition") as caught:
        way_of().argv("true")
    assert isinstance(caught.value, InfraError) and "host.options are salloc's" in str(caught.value)
    (folder / "refuses").unlink()
    (folder / "waits").touch()
    with pytest.raises(HostLostError, match=r"no allocation \(still waiting after 0\.5 s\): salloc said nothing"):
        way_of(wait_s=0.5).argv("true")


def test_where_slurm_is_not_there_is_no_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostLostError, match=r"srun was not found\nnext: start this where Slurm's commands are"):
        way_of().argv("true")
    monkeypatch.setattr("vibeserve.host_loopback.slurm.missing_programs", lambda: ["slurmctld", "slurmd"])
    row = row_of("slurm")
    assert (row.available, row.why_not) == (False, "slurmctld, slurmd: not installed")


def test_doctor_says_that_there_is_no_cluster(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    assert main(["doctor", "host=slurm"]) == 5
    assert "missing: salloc, srun, squeue, scancel" in capsys.readouterr().out
    for name in ("srun", "sinfo"):
        (folder / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    assert main(["doctor", "host=slurm"]) == 5
    assert "Unable to contact slurm controller" in capsys.readouterr().out


def test_what_is_held_is_given_back_when_nothing_uses_it() -> None:
    given_back: list[float] = []
    idle = Idle(0.2, lambda: given_back.append(time.monotonic()))
    with idle.busy("serve"):
        pass
    time.sleep(0.6)
    assert given_back == [], "a server lives"
    with idle.busy("stop"):
        pass
    deadline = time.monotonic() + 20
    while not given_back:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_costs_nothing_is_never_given_back() -> None:
    given_back: list[str] = []
    with Idle(0.0, lambda: given_back.append("nothing is held")).busy("probe"):
        pass
    # a timer's thread would have had its time
    time.sleep(0.05)
    assert given_back == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path / "slurm") as running:
        yield running


@needs_slurm
@pytest.mark.slow
def test_a_real_allocation_runs_our_program_and_its_loss_is_infrastructure(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-the-controller")
    host = SlurmHost(cluster.declared(tmp_path / "root", idle_s=2.0))
    assert host.probe().num_cpus == len(os.sched_getaffinity(0))
    (job,) = cluster.jobs()
    hello = host.call("hello")
    assert hello["python"] == sys.executable and host.where == f"slurm job {job}"
    environment = Path(f"/proc/{hello['pid']}/environ").read_bytes()
    assert b"secret-of-the-controller" not in environment and b"SLURM_JOB_ID=" + job.encode() in environment
    cluster.cancel()
    with pytest.raises(HostLostError, match="is lost"):
        host.call("probe")
    assert left_after(str(tmp_path / "root")) == []
    assert host.call("hello")["pid"] != hello["pid"], "the next call has an allocation of its own"
    deadline = time.monotonic() + 60
    while cluster.jobs():
        assert time.monotonic() < deadline, "an allocation that nobody uses is given back"
        time.sleep(0.2)
    host.close()


@needs_slurm
@pytest.mark.audit
def test_the_same_runtime_in_an_allocation_passes_and_its_loss_is_infrastructure() -> None:
    row = row_of("slurm")
    assert (row.available, row.verdict, row.infra_typed, row.orphans) == (True, "pass", True, 0), row
