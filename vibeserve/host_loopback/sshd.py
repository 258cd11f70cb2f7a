"""A real sshd of this user on loopback, and a client configuration that reaches it by the name `loopback-host`."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve import spec
from vibeserve.errors import InfraError

NAME = "loopback-host"
NOT_INSTALLED = "sshd is not installed\nnext: apt-get install openssh-server"
START_S = 30.0
SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
AllowTcpForwarding no
MaxStartups 100
MaxSessions 100
"""
CLIENT = """\
Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def find_sshd() -> str | None:
    """The daemon's program; it is in no user's PATH as a rule."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


@dataclass
class Sshd:
    """One that runs."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    def declared(self, root: Path, **changes: str) -> spec.Host:
        """A host of this daemon, with this interpreter and its files below `root`."""
        values: dict[str, Any] = {
            "kind": "ssh", "address": NAME, "ssh_config": str(self.folder / "config"), "root": str(root),
            "python": sys.executable,
        }  # fmt: skip
        return spec.Host(**(values | changes))

    def kill(self) -> None:
        """The daemon and every connection of it, as a machine that goes away."""
        for pid in [*children_of(self.process.pid), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        """Again, at the same port."""
        self.process = _started(self.folder, self.port)


def children_of(pid: int) -> list[int]:
    """Processes that sshd forked for connections, not what they run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(")")
            if int(rest.split()[1]) == pid and "sshd" in name:
                child = int(stat.parent.name)
                found += [child, *children_of(child)]
    return found


@contextlib.contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    """A daemon whose keys and configuration lie in the new `folder`. InfraError where there is none, or it does not
    start."""
    if find_sshd() is None:
        raise InfraError(NOT_INSTALLED)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    for name in ("host_key", "user_key"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True)
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "sshd_config").write_text(SERVER.format(port=port, folder=folder))
    (folder / "config").write_text(CLIENT.format(name=NAME, port=port, folder=folder, user=getpass.getuser()))
    sshd = Sshd(folder=folder, port=port, process=_started(folder, port))
    try:
        yield sshd
    finally:
        sshd.kill()


def _started(folder: Path, port: int) -> subprocess.Popen[bytes]:
    with (folder / "sshd.log").open("ab") as log:
        argv = [str(find_sshd()), "-D", "-e", "-f", str(folder / "sshd_config")]
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    deadline_s = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return process
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise InfraError(f"sshd does not start: {(folder / 'sshd.log').read_text().strip()}")
        time.sleep(0.05)
