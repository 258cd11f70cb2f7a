"""A container as a host, over the docker SDK's own code and a daemon's API that runs commands on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_docker import Daemon

from vibeserve import spec
from vibeserve.cli.main import main
from vibeserve.errors import InfraError
from vibeserve.host_loopback.command import row_of
from vibeserve.host_loopback.trial import left_after
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.container import DockerHost, container_options
from vibeserve.sandbox import Wall
from vibeserve.spec import Tier

IMAGE = "serving:1"
pytest.importorskip("docker", reason="the docker SDK is not installed (pip install 'vibeserve[docker]')")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    running = Daemon(tmp_path / "docker.sock", images=(IMAGE,))
    yield running
    running.close()


def declared(daemon: Daemon, tmp_path: Path, **changes: object) -> spec.Host:
    values = {
        "kind": "docker", "address": daemon.url, "image": IMAGE, "python": sys.executable,
        "root": str(tmp_path / "root"), "options": ["network=none", "shm_size=1g"],
    }  # fmt: skip
    return spec.Host(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def host(daemon: Daemon, tmp_path: Path) -> Iterator[DockerHost]:
    made = DockerHost(declared(daemon, tmp_path))
    yield made
    made.close()


def test_a_command_runs_in_the_container_and_its_files_come_back(
    host: DockerHost, daemon: Daemon, tmp_path: Path
) -> None:
    workspace = tmp_path / "w"
    (workspace / "build").mkdir(parents=True)
    (workspace / "make.py").write_text("import pathlib\npathlib.Path('build/made.so').write_bytes(b'\\0made')\n")
    tier = host.resolve_tier(Tier.auto, allow_none=True)
    wall = Wall(
        tier=tier, workdir=workspace, read_only=(workspace,), writable=(workspace / "build",), is_measured=False
    )
    done = host.run([sys.executable, "make.py"], wall=wall, log=tmp_path / "log", timeout_s=60)
    assert done.returncode == 0, done.log_tail
    assert (workspace / "build/made.so").read_bytes() == b"\0made"
    (container,) = daemon.containers.values()
    assert container["HostConfig"]["NetworkMode"] == "none" and container["HostConfig"]["AutoRemove"] is True
    assert container["StdinOnce"] is True, "it ends with whoever holds its input"
    assert host.where == f"container {container['Id'][:12]} of {IMAGE}"


def test_a_container_that_goes_is_infrastructure_and_the_next_call_starts_another(
    host: DockerHost, daemon: Daemon, tmp_path: Path
) -> None:
    pid = host.call("hello")["pid"]
    daemon.remove(next(iter(daemon.containers)))
    with pytest.raises(HostLostError, match="is lost") as caught:
        host.call("probe")
    assert isinstance(caught.value, InfraError) and caught.value.exit_code == 5
    assert left_after(str(tmp_path / "root")) == []
    assert host.call("hello")["pid"] != pid and host.num_reconnects == 1
    with pytest.raises(HostLostError, match="server candidate-0 is gone: the connection was lost meanwhile"):
        host.call("stop", server="candidate-0", drain_s=0)


def test_a_container_of_the_same_run_that_was_left_is_removed(daemon: Daemon, tmp_path: Path) -> None:
    run_dir = tmp_path / "runs/one"
    first, second = DockerHost(declared(daemon, tmp_path)), DockerHost(declared(daemon, tmp_path))
    other = DockerHost(declared(daemon, tmp_path))
    first.sweep_orphans(run_dir)
    other.sweep_orphans(tmp_path / "runs/two")
    left = dict(daemon.containers)
    second.sweep_orphans(run_dir)
    labels = [each["Labels"]["vibeserve.run"] for each in daemon.containers.values()]
    assert sorted(labels) == ["runs-one", "runs-two"] and len(left) == 2
    for each in (first, second, other):
        each.close()
    assert daemon.containers == {}, "nothing is left when it is closed"


def test_without_a_daemon_or_an_image_it_says_so(daemon: Daemon, tmp_path: Path) -> None:
    missing = DockerHost(declared(daemon, tmp_path, image="other:2"))
    with pytest.raises(HostLostError, match="the docker daemon has no image other:2\nnext: docker pull or build"):
        missing.probe()
    nowhere = DockerHost(declared(daemon, tmp_path, address=f"unix://{tmp_path}/none.sock"))
    with pytest.raises(HostLostError, match=r"no docker daemon answers at unix://.*/none\.sock: ") as caught:
        nowhere.probe()
    assert "next: start one, or name another by host.address" in str(caught.value)


def test_what_is_told_without_the_sdk(monkeypatch: pytest.MonkeyPatch, daemon: Daemon, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "docker.errors", None)
    with pytest.raises(HostLostError, match=r"SDK is not installed\nnext: pip install 'vibeserve\[docker\]'"):
        DockerHost(declared(daemon, tmp_path)).probe()
    row = row_of("docker")
    assert (row.available, row.why_not) == (False, "the docker SDK is not installed")


def test_options_are_the_sdks() -> None:
    of_host, of_container = container_options(
        [
            "gpus=all", "security_opt=seccomp=unconfined", "privileged=true", "volumes=/a:/a:ro", "volumes=/b:/b",
            "network=none", "user=1000",
        ]
    )
    (gpus,) = of_host.pop("device_requests")
    assert gpus["Count"] == -1 and gpus["Capabilities"] == [["gpu"]]
    assert of_host.pop("security_opt") == ["seccomp=unconfined"]
    assert of_host == {"privileged": True, "binds": ["/a:/a:ro", "/b:/b"], "network_mode": "none"}
    assert of_container == {"user": "1000"}


def test_doctor_lists_what_is_missing(daemon: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = f"host.address=unix://{tmp_path}/none.sock"
    assert main(["doctor", "host=docker", nowhere]) == 5
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in told if line and not line.startswith(" ")][:3] == [
        ["sdk", "ok"], ["daemon", "missing"], ["image", "missing"]
    ]  # fmt: skip
    assert any("no docker daemon answers at unix://" in line for line in told)
    there = [f"host.address={daemon.url}", "host.image=other:2"]
    assert main(["doctor", "host=docker", *there]) == 5
    assert "the docker daemon has no image other:2" in capsys.readouterr().out
    there = [f"host.address={daemon.url}", f"host.image={IMAGE}", f"host.python={sys.executable}"]
    assert main(["doctor", "host=docker", *there, f"host.root={tmp_path}/root"]) == 0
    assert f"container c000000000000 of {IMAGE}"[:20] in capsys.readouterr().out
    assert daemon.containers == {}
