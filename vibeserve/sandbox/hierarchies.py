"""Where a wall's control groups can be made, how they are made, and how those of dead controllers are found.

Below the controller's own group: in version 1 in each hierarchy that is writable, in version 2 where it is delegated; a
freezer and a count of CPU time need no controller there, limits need those that are passed down
(`cgroup.subtree_control`). Sources: cgroups(7), proc(5) (mountinfo), the kernel's admin-guide/cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from vibeserve.sandbox import tree
from vibeserve.sandbox.cgroups import Cgroup, text_of
from vibeserve.sandbox.resources import Resources

_SELF = Path("/proc/self/cgroup")
_MOUNTS = Path("/proc/self/mountinfo")
_PREFIX = "vibeserve"


def _hierarchies() -> dict[str, tuple[Path, str]]:
    """Controller -> (mount point, path of the mounted root in the hierarchy); "" is version 2's."""
    found: dict[str, tuple[Path, str]] = {}
    for line in text_of(_MOUNTS).splitlines():
        before, _, after = line.partition(" - ")
        kind, options = after.split()[0], after.split()[-1]
        root, point = before.split()[3:5]
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            found.setdefault(name, (Path(point), root))
    return found


def _own_folders() -> dict[str, Path]:
    """Controller -> the folder of the group that this process is in; "" is version 2's."""
    mounts = _hierarchies()
    found: dict[str, Path] = {}
    for line in text_of(_SELF).splitlines():
        _, controllers, where = line.split(":", 2)
        for name in controllers.split(","):
            if name not in mounts:
                continue
            point, root = mounts[name]
            if Path(where).is_relative_to(root):
                found[name] = point / Path(where).relative_to(root)
    return found


def _parents() -> dict[str, Path]:
    """Purpose -> the group of ours below which one for it may be made."""
    own = _own_folders()
    unified = own.get("")
    passed_down = text_of(unified / "cgroup.subtree_control").split() if unified is not None else []
    found: dict[str, Path] = {name: own[name] for name in ("pids", "memory") if name in own}
    if unified is not None:
        found |= {name: unified for name in ("pids", "memory") if name not in found and name in passed_down}
    freezers = [folder for folder in (unified, own.get("freezer")) if folder is not None and _can_freeze(folder)]
    if freezers:
        found["freezer"] = freezers[0]
    counted = unified if unified is not None and unified in freezers else own.get("cpuacct")
    return found if counted is None else {**found, "cpu": counted}


@lru_cache(maxsize=8)
def _can_freeze(parent: Path) -> bool:
    """Whether a group below `parent` stops a process, tried with one."""
    folder = parent / f"{_own_name()}-trial-{os.urandom(4).hex()}"
    if not os.access(parent, os.W_OK):
        return False
    try:
        folder.mkdir()
    except OSError:
        return False
    group = Cgroup.at([folder])
    try:
        return group.freezer is not None and _stops(group)
    except OSError:
        return False
    finally:
        group.remove()
        with contextlib.suppress(OSError):
            folder.rmdir()


def _stops(group: Cgroup) -> bool:
    trial = subprocess.Popen(["/bin/sleep", "60"])
    try:
        group.enter(trial.pid)
        group.freeze(timeout_s=1.0)
        return group.is_frozen()
    finally:
        group.thaw()
        trial.kill()
        trial.wait()


def _own_name() -> str:
    """Tells whose groups these are: pid, start time and pid namespace, so that nobody's live ones are removed."""
    stat = tree.read_stat(os.getpid())
    ticks = 0 if stat is None else stat.start_ticks
    return f"{_PREFIX}-{_pid_namespace()}-{os.getpid()}-{ticks}"


def _pid_namespace() -> str:
    """In which pids mean what they mean here."""
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def cgroup_of(tree_id: str) -> Cgroup:
    """Where the groups of that tree are, or would be, as this process makes them."""
    parents = _parents()
    name = f"{_own_name()}-{tree_id}" if parents else ""
    folders = {each: parents[each] / name if each in parents else None for each in ("pids", "memory", "freezer", "cpu")}
    return Cgroup(**folders)


def make_cgroup(tree_id: str, resources: Resources, *, num_outer: int = 0) -> Cgroup:
    """New groups with those limits; without what is not permitted (rlimits, the guard and SIGSTOP remain).
    `num_outer` processes of the wall itself are inside, too."""
    _clean_once()
    wanted = cgroup_of(tree_id)
    return Cgroup(
        freezer=_made(wanted.freezer, {}),
        cpu=_made(wanted.cpu, {}),
        pids=_made(wanted.pids, _pids_files(resources.max_processes + num_outer)),
        memory=_made(wanted.memory, _memory_files(resources)),
    )


def _pids_files(num_processes: int) -> dict[str, tuple[str, bool]]:
    return {"pids.max": (str(num_processes), True)}


def _memory_files(resources: Resources) -> dict[str, tuple[str, bool]]:
    """File -> (value, whether the limit depends on it). Those of the other version are not there and are skipped."""
    size = str(resources.memory_bytes)
    swap = {"memory.memsw.limit_in_bytes": (size, False), "memory.swap.max": ("0", False)}
    return {
        "memory.limit_in_bytes": (size, True), "memory.max": (size, True), **swap, "memory.oom.group": ("1", False)
    }  # fmt: skip


def _made(folder: Path | None, files: dict[str, tuple[str, bool]]) -> Path | None:
    """The folder with its limits written; None where one that matters cannot be."""
    if folder is None or not os.access(folder.parent, os.W_OK):
        return None
    is_new = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        if _write_limits(folder, files) or not files:
            return folder
    except OSError:
        pass
    if is_new:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return None


def _write_limits(folder: Path, files: dict[str, tuple[str, bool]]) -> bool:
    """Whether a limit that matters was written. OSError where one is there and does not take its value."""
    has_limit = False
    for name, (value, matters) in files.items():
        if not (folder / name).exists():
            continue
        try:
            (folder / name).write_text(value, encoding="ascii")
        except OSError:
            if matters:
                raise
        has_limit |= matters
    return has_limit


# -- what dead controllers left


def _left_behind() -> Iterator[list[Path]]:
    """Folders of one tree's groups, beside ours, whose controller has ended."""
    names: dict[str, list[Path]] = {}
    for parent in dict.fromkeys(_own_folders().values()):
        for folder in parent.glob(f"{_PREFIX}-*-*-*-*"):
            with contextlib.suppress(FileNotFoundError):  # another controller removes them, too
                if folder.stat().st_uid == os.getuid():
                    names.setdefault(folder.name, []).append(folder)
    for name, folders in names.items():
        namespace, pid, ticks = name.split("-")[1:4]
        if not (pid.isdigit() and ticks.isdigit() and namespace == _pid_namespace()):
            continue
        if not tree.is_alive(int(pid), start_ticks=int(ticks)):
            yield folders


def remove_stale() -> None:
    """End the trees of controllers that have ended, known by their groups, and remove the groups."""
    for folders in list(_left_behind()):
        group = Cgroup.at(folders)
        group.kill()
        group.remove()
        for folder in folders:  # of a purpose that this version does not know
            with contextlib.suppress(OSError):
                folder.rmdir()


@lru_cache(maxsize=1)
def _clean_once() -> None:
    remove_stale()
