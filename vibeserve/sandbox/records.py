"""Process records on disk, so that a resumed run finds and kills what a killed controller left."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import InfraError
from vibeserve.sandbox import tree
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.sandbox.hierarchies import cgroup_of, remove_stale
from vibeserve.sandbox.process import Process

_SUFFIX = ".process.json"
_KILL_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ProcessRecord:
    boot_id: str
    pid: int
    """0 = it was recorded before it was started"""
    start_ticks: int
    tree_id: str
    """value of VIBESERVE_TREE in the environment of everything that was started inside"""
    groups: tuple[str, ...] = ()
    """folders of its control groups, made or not"""
    schema_version: int = 1


def record_start(tree_id: str, run_dir: Path) -> Path:
    """Record a tree that is about to be started, for the controller that is killed right then."""
    groups = _paths(cgroup_of(tree_id))
    return _write(ProcessRecord(boot_id=tree.boot_id(), pid=0, start_ticks=0, tree_id=tree_id, groups=groups), run_dir)


def record_process(process: Process, run_dir: Path) -> Path:
    """Write the record of `process` into `run_dir`; `forget_process` removes it after a clean end."""
    record = ProcessRecord(
        boot_id=tree.boot_id(), pid=process.pid, start_ticks=process.start_ticks, tree_id=process.tree_id,
        groups=_paths(process.cgroup),
    )  # fmt: skip
    return _write(record, run_dir)


def _paths(cgroup: Cgroup) -> tuple[str, ...]:
    return tuple(map(str, cgroup.folders))


def _write(record: ProcessRecord, run_dir: Path) -> Path:
    path = run_dir / f"{record.tree_id}{_SUFFIX}"
    write_document(path, record)
    return path


def forget_process(process: Process, run_dir: Path) -> None:
    """Remove the record of a process that has ended."""
    forget_tree(process.tree_id, run_dir)


def forget_tree(tree_id: str, run_dir: Path) -> None:
    """Remove the record of a tree that did not come up."""
    (run_dir / f"{tree_id}{_SUFFIX}").unlink(missing_ok=True)


def sweep_orphans(run_dir: Path) -> int:
    """Kill every recorded process tree that still lives, drop the records; returns how many processes died.

    Only processes that are provably the recorded ones are touched: same boot, same pid and start time, the record's
    random tree id in their environment, or its control group. Control groups of any controller that has ended go, too.
    """
    killed = 0
    for path in sorted(run_dir.glob(f"*{_SUFFIX}")):
        record = read_document(path, ProcessRecord)
        if record.boot_id == tree.boot_id():
            killed += _sweep(record)
        path.unlink()
    remove_stale()
    return killed


def _sweep(record: ProcessRecord) -> int:
    cgroup = Cgroup.at(map(Path, record.groups))
    killed = cgroup.kill()
    if tree.is_alive(record.pid, start_ticks=record.start_ticks):
        killed += tree.kill_all(record.pid)
        killed += tree.send(record.pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while left := {*tree.marked(record.tree_id), *filter(tree.is_running, cgroup.members())}:
        if time.monotonic() > deadline:
            raise InfraError(f"processes {sorted(left)} of an earlier run survive SIGKILL\nnext: reboot this machine")
        killed += sum(tree.send(pid, signal.SIGKILL) for pid in left)
        time.sleep(0.002)
    cgroup.remove()
    for scratch in Path(tempfile.gettempdir()).glob(f"vibeserve-{record.tree_id}-*"):
        shutil.rmtree(scratch, ignore_errors=True)
    return killed
