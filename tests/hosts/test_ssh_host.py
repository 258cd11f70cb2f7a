"""A host behind a real sshd on loopback: what is sent, what runs there, and what a lost connection leaves."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vibeserve.errors import InfraError
from vibeserve.host_loopback.sshd import Sshd, find_sshd, running_sshd
from vibeserve.host_loopback.trial import left_after
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.ssh import SshHost
from vibeserve.sandbox import Wall
from vibeserve.spec import Tier

WRITES = "import pathlib\npathlib.Path('build/made.so').write_bytes(b'\\0made')\nprint('built')\n"
EVALUATORS = ("reference", "golden", "rescore", "faults", "check_", "secret", "id_ed25519", "user_key", "api_key")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed (apt-get install openssh-server)")
    with running_sshd(tmp_path / "sshd") as running:
        yield running


@pytest.fixture
def host(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshHost]:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-the-controller")
    made = SshHost(sshd.declared(tmp_path / "root"))
    yield made
    made.close()


def workspace_of(folder: Path) -> Path:
    (folder / "build").mkdir(parents=True)
    (folder / "make.py").write_text(WRITES)
    return folder


def build(host: SshHost, workspace: Path, tmp_path: Path, *, timeout_s: float = 60.0) -> object:
    tier = host.resolve_tier(Tier.auto, allow_none=True)
    wall = Wall(
        tier=tier, workdir=workspace, read_only=(workspace,), writable=(workspace / "build",), is_measured=False
    )
    return host.run([sys.executable, "make.py"], wall=wall, log=tmp_path / "log", timeout_s=timeout_s)


def test_a_build_happens_there_and_its_output_comes_back(host: SshHost, tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w")
    done = build(host, workspace, tmp_path)
    assert done.returncode == 0 and "built" in done.log_tail  # type: ignore[attr-defined]
    assert (workspace / "build/made.so").read_bytes() == b"\0made"
    assert (tmp_path / "log").read_text().startswith("built")
    trees = tmp_path / "root/trees"
    assert not list(trees.glob("*/build/*")), "what was made there is gone: the next one begins from sources"


def test_it_is_the_machine_that_is_asked(host: SshHost) -> None:
    facts = host.probe()
    assert facts.num_cpus == len(os.sched_getaffinity(0))
    assert host.call("lack") == []
    assert abs(host.call("hello")["time_s"] - time.time()) < 5


def test_no_key_and_no_evaluator_file_is_on_the_host(host: SshHost, tmp_path: Path) -> None:
    build(host, workspace_of(tmp_path / "w"), tmp_path)
    root = tmp_path / "root"
    names = [path.relative_to(root).as_posix() for path in root.rglob("*")]
    assert [name for name in names for word in EVALUATORS if word in name.rsplit("/", 1)[-1]] == []
    said = [path for path in root.rglob("*") if path.is_file() and b"secret-of-the-controller" in path.read_bytes()]
    assert said == []
    pid = host.call("hello")["pid"]
    assert b"secret-of-the-controller" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_connection_that_is_cut_is_infrastructure_and_the_next_call_connects_anew(
    host: SshHost, sshd: Sshd, tmp_path: Path
) -> None:
    pid = host.call("hello")["pid"]
    sshd.kill()
    with pytest.raises(HostLostError, match="is lost") as caught:
        host.call("probe")
    assert isinstance(caught.value, InfraError) and caught.value.exit_code == 5
    assert left_after(str(tmp_path / "root")) == [], "the program there goes with its connection"
    with pytest.raises(HostLostError, match=r"connect to host 127\.0\.0\.1 port"):
        host.call("probe")
    sshd.start()
    assert host.call("hello")["pid"] != pid and host.num_reconnects == 1


def test_a_cut_in_the_middle_of_a_build_leaves_nothing(host: SshHost, sshd: Sshd, tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path / "w")
    (workspace / "make.py").write_text("import time\ntime.sleep(600)\n")
    host.probe()
    timer = threading.Timer(3.0, sshd.kill)
    timer.start()
    with pytest.raises(HostLostError):
        build(host, workspace, tmp_path, timeout_s=500.0)
    timer.join()
    assert left_after(str(tmp_path / "root")) == []


def test_what_goes_wrong_there_is_raised_here(host: SshHost, sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"host loopback-host: .*no_such"):
        host.call("no_such")
    broken = SshHost(sshd.declared(tmp_path / "other", python="/no/python3"))
    with pytest.raises(HostLostError, match=r"nothing can be sent to host loopback-host: .*/no/python3"):
        broken.probe()
    unknown = SshHost(sshd.declared(tmp_path / "other", address="no-such-host"))
    with pytest.raises(HostLostError, match="nothing can be sent to host no-such-host"):
        unknown.probe()
