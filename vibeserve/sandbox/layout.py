"""Where an interpreter lies on disk, and which entries of its site-packages a wall may show."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from pathlib import Path

from vibeserve.sandbox.wall import Wall

SYSTEM_PATHS = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
"""read-only; most are links into /usr on a merged system"""

ETC_PATHS = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/ssl/openssl.cnf",
)
"""what the loader, the compilers and the standard library read; no accounts, no keys, no resolver"""

SYS_PATHS = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage")
"""CPU topology for OpenMP, oneDNN and torch"""

GPU_PATHS = (
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/modules",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
    "/sys/module/amdgpu",
    "/sys/bus/pci",
    "/sys/class/drm",
    "/sys/class/kfd",
    "/sys/devices/virtual/kfd",
    "/sys/dev/char",
)
"""what GPU drivers' libraries read, beside /sys/devices/pci*; only for walls with device nodes"""


def gpu_paths(wall: Wall) -> tuple[str, ...]:
    """Paths that a wall with GPUs shows in addition."""
    if not wall.resources.devices:
        return ()
    return (*GPU_PATHS, *sorted(str(path) for path in Path("/sys/devices").glob("pci*")))


def wall_python(wall: Wall) -> Path:
    """The interpreter inside, by the path it is started with (a venv is recognised by that path)."""
    return wall.python if wall.python is not None else Path(sys.executable)


def interpreter_prefixes(python: Path) -> tuple[Path, ...]:
    """Folders that interpreter needs: its own prefix, its base prefix, and the folders these really are.

    Read from the tree (`pyvenv.cfg`), not by running it. Prefixes inside the system paths are left out.
    """
    prefix = python.parent.parent
    found = [prefix, python.resolve().parent.parent]
    config = prefix / "pyvenv.cfg"
    if config.is_file():
        home = re.search(r"^home\s*=\s*(.+?)\s*$", config.read_text(encoding="utf-8"), re.MULTILINE)
        if home is not None:
            found.append(Path(home.group(1)).parent)
    found += [path.resolve() for path in found]
    return tuple(path for path in dict.fromkeys(found) if not is_system(path) and path != Path("/"))


def is_system(path: Path) -> bool:
    """Whether `path` lies in what every wall shows."""
    return any(path.is_relative_to(system) for system in SYSTEM_PATHS)


def site_folders(python: Path) -> tuple[Path, ...]:
    """Every site-packages and dist-packages folder that this interpreter, or a path given to it, could import from."""
    found: list[Path] = []
    for prefix in (*interpreter_prefixes(python), Path("/usr"), Path("/usr/local")):
        for pattern in ("lib*/python3*/site-packages", "lib*/python3*/dist-packages", "lib*/python3/dist-packages"):
            # lib64 is a link to lib in a virtual environment
            found += [path for path in prefix.glob(pattern) if path.is_dir() and path == prefix / _inside(prefix, path)]
    return tuple(dict.fromkeys(found))


def _inside(prefix: Path, path: Path) -> Path:
    """Where below `prefix` the folder really is."""
    real, root = path.resolve(), prefix.resolve()
    return real.relative_to(root) if real.is_relative_to(root) else real


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@lru_cache(maxsize=64)
def _top_levels(metadata: Path, _changed_ns: int) -> frozenset[str]:
    """Importable top-level names of one `*.dist-info` or `*.egg-info` folder, from its file list."""
    names: set[str] = {_normal(re.split(r"-\d", metadata.stem)[0])}
    top_level, record = metadata / "top_level.txt", metadata / "RECORD"
    if top_level.is_file():
        names |= {_normal(line) for line in top_level.read_text(encoding="utf-8", errors="replace").split()}
    elif record.is_file():
        for line in record.read_text(encoding="utf-8", errors="replace").splitlines():
            first = line.split(",")[0].split("/")[0]
            if first and not first.startswith(".") and not first.endswith((".dist-info", ".egg-info")):
                names.add(_normal(first.split(".")[0]))
    return frozenset(names)


def _belongs(entry: Path, hidden: frozenset[str]) -> bool:
    name = entry.name
    if name.endswith((".dist-info", ".egg-info")) and entry.is_dir():
        return bool(_top_levels(entry, entry.stat().st_mtime_ns) & hidden)
    if name.endswith((".pth", ".egg-link")) or name.startswith("__editable__"):
        # editable installs: `_editable_impl_<name>.pth`, `__editable__.<name>-1.0.pth`, `__editable___<name>_finder.py`
        return any(module in _normal(name) for module in hidden)
    return _normal(re.sub(r"\.libs$", "", name).split(".")[0]) in hidden


def visible_entries(site: Path, hidden_modules: tuple[str, ...]) -> tuple[Path, ...] | None:
    """Entries of a site folder without those of hidden modules; None when it holds none of them."""
    if not hidden_modules:
        return None
    return _visible(site, frozenset(_normal(name) for name in hidden_modules), site.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _visible(site: Path, hidden: frozenset[str], _changed_ns: int) -> tuple[Path, ...] | None:
    entries = sorted(site.iterdir())
    visible = tuple(entry for entry in entries if not _belongs(entry, hidden))
    return None if len(visible) == len(entries) else visible
