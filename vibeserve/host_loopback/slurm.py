"""A real Slurm cluster of one node on loopback, of this user: munged, slurmctld and slurmd with files of their own."""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve import spec
from vibeserve.errors import InfraError

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("salloc", "srun", "sinfo", "squeue", "scancel")
NOT_INSTALLED = "{names}: not installed\nnext: apt-get install slurmctld slurmd slurm-client munge"
START_S, END_S = 60.0, 10.0
CONFIG_VARIABLE = "SLURM_CONF"
CONFIG = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=loopback Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs() -> list[str]:
    """Programs of Slurm that are not here; daemons are in no user's PATH as a rule."""
    return [name for name in (*DAEMONS, *COMMANDS) if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")


@dataclass
class Cluster:
    """One that runs. While it does, this process's own Slurm commands talk to it."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def declared(self, root: Path, *, idle_s: float = 120.0) -> spec.Host:
        """A host of this cluster, with this interpreter and its files below `root`."""
        options = [f"--cpus-per-task={os.cpu_count() or 1}"]
        return spec.Host(
            kind="slurm", root=str(root), python=sys.executable, options=options, wait_s=60.0, idle_s=idle_s
        )

    def jobs(self) -> list[str]:
        """Numbers of the jobs that hold or want something."""
        told = subprocess.run(
            ["squeue", "--noheader", "--format=%i", "--states=PD,R"], capture_output=True, text=True, check=True
        )
        return told.stdout.split()

    def cancel(self) -> None:
        """Every allocation is taken away, as by a time limit or by a node that fails."""
        subprocess.run(["scancel", *self.jobs()], check=False, capture_output=True)

    def start(self, *argv: str, log: str) -> None:
        """One of its daemons."""
        with (self.folder / log).open("ab") as stream:
            words = [str(_program(argv[0])), *argv[1:]]
            self.processes.append(subprocess.Popen(words, stdout=stream, stderr=stream, start_new_session=True))

    def stop(self) -> None:
        """The node first."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def said(self) -> str:
        """The last line of each daemon."""
        tails = [path.read_text(errors="replace").strip().splitlines()[-1:] for path in self.folder.glob("*.log")]
        return "; ".join(line for tail in tails for line in tail)


@contextlib.contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster whose files lie in the new `folder`. InfraError where there is none, or it does not start."""
    missing = missing_programs()
    if missing:
        raise InfraError(NOT_INSTALLED.format(names=", ".join(missing)))
    for part in ("state", "spool"):
        (folder / part).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    port, node_port = _free_ports(2)
    text = CONFIG.format(
        host=socket.gethostname().split(".")[0], port=port, node_port=node_port, user=getpass.getuser(),
        folder=folder, cpus=os.cpu_count() or 1,
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)
    before = os.environ.get(CONFIG_VARIABLE)
    os.environ[CONFIG_VARIABLE] = str(folder / "slurm.conf")
    cluster = Cluster(folder)
    try:
        _start(cluster)
        yield cluster
    finally:
        cluster.stop()
        os.environ.pop(CONFIG_VARIABLE)
        if before is not None:
            os.environ[CONFIG_VARIABLE] = before


def _start(cluster: Cluster) -> None:
    folder = cluster.folder
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed")]
    cluster.start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge, log="munged.log")
    _until(cluster, lambda: (folder / "munge.socket").is_socket())
    cluster.start("slurmctld", "-D", "-i", log="slurmctld.log")
    cluster.start("slurmd", "-D", log="slurmd.log")
    _until(cluster, _is_idle)


def _is_idle() -> bool:
    told = subprocess.run(["sinfo", "--noheader", "--format=%t"], capture_output=True, text=True, check=False)
    return told.stdout.strip() == "idle"


def _until(cluster: Cluster, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + START_S
    while not condition():
        dead = [process for process in cluster.processes if process.poll() is not None]
        if dead or time.monotonic() > deadline_s:
            raise InfraError(f"a Slurm cluster of one node does not start here: {cluster.said()}")
        time.sleep(0.1)


def _free_ports(num: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(num)]
        return [int(probe.getsockname()[1]) for probe in probes]
