"""Tier A: the command line that makes bubblewrap build a wall (user, pid, mount, network, ipc, uts namespaces)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from vibeserve.sandbox.layout import (
    ETC_PATHS,
    SYS_PATHS,
    SYSTEM_PATHS,
    gpu_paths,
    interpreter_prefixes,
    site_folders,
    visible_entries,
    wall_python,
)
from vibeserve.sandbox.resources import GIB
from vibeserve.sandbox.wall import Wall

TMP = Path("/tmp")
_OWNER_WRITABLE = ("sys", "irq", "bus", "fs", "driver", "acpi", "scsi", "mtrr", "sysrq-trigger")
"""parts of /proc that uid 0 may write by ownership: a controller that is root is uid 0 inside, capabilities or not"""


def find_bwrap() -> str | None:
    """Absolute path of bubblewrap, or None."""
    return shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")


def bwrap_argv(
    bwrap: str, argv: Sequence[str], *, wall: Wall, info_fd: int, block_fd: int, seccomp_fd: int
) -> list[str]:
    """Command line of the outer process. The descriptors are bwrap's: child pid out, go-ahead in, filter program in."""
    options = [
        bwrap,
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--hostname",
        "vibeserve",
        "--info-fd",
        str(info_fd),
        "--block-fd",
        str(block_fd),
        "--seccomp",
        str(seccomp_fd),
    ]
    if wall.isolate_network:
        options.append("--unshare-net")
    options += _system_mounts(wall)
    for _, mount in sorted(_mounts(wall), key=lambda item: len(item[0].parts)):
        options += mount
    # the root is a tmpfs of bwrap's own; without this the inside could leave files in it
    options += ["--remount-ro", "/", "--chdir", str(wall.workdir), "--", *argv]
    return options


def _system_mounts(wall: Wall) -> list[str]:
    options: list[str] = []
    for path in SYSTEM_PATHS:
        source = Path(path)
        if source.is_symlink():
            options += ["--symlink", str(source.readlink()), path]
        else:
            options += ["--ro-bind-try", path, path]
    # /proc is the namespace's own, which has the drivers' files
    gpu = [path for path in gpu_paths(wall) if not path.startswith("/proc/")]
    for path in (*ETC_PATHS, *SYS_PATHS, *gpu):
        options += ["--ro-bind-try", path, path]
    size = str(int(wall.resources.tmp_gib * GIB))
    options += ["--proc", "/proc"]
    for name in _OWNER_WRITABLE:
        options += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    options += ["--dev", "/dev"]
    for device in wall.resources.devices:
        # before /dev is closed: the mount points are made in it
        options += _bind("--dev-bind", device)
    options += ["--remount-ro", "/dev", "--size", size, "--tmpfs", "/dev/shm"]
    return [*options, "--perms", "1777", "--size", size, "--tmpfs", str(TMP)]


def _mounts(wall: Wall) -> list[tuple[Path, list[str]]]:
    """(where, options) of everything that differs between walls; parents must come before what lies in them."""
    python = wall_python(wall)
    read_only = [*interpreter_prefixes(python), *wall.read_only]
    if not any(wall.workdir.is_relative_to(path) for path in (*read_only, *wall.writable)):
        read_only.append(wall.workdir)
    mounts = [(path, _bind("--ro-bind", path)) for path in (*read_only, *wall.sockets)]
    mounts += [(path, _bind("--bind", path)) for path in wall.writable]
    for site in site_folders(python):
        visible = visible_entries(site, wall.hidden_modules)
        if visible is not None:
            mounts.append((site, _only(site, visible)))
    return mounts


def _bind(option: str, path: Path) -> list[str]:
    return [option, str(path), str(path)]


def _only(site: Path, visible: Sequence[Path]) -> list[str]:
    """Mount over a folder so that exactly `visible` is in it. Masking the others would leave empty folders, which
    import as namespace packages."""
    options = ["--tmpfs", str(site)]
    for entry in visible:
        options += _bind("--ro-bind", entry)
    return [*options, "--remount-ro", str(site)]
