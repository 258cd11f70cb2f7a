"""Where targets and groups lie: the user's repository first, then what the package ships."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.config.words import suggest
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError

GROUPS = (
    "model",
    "hardware",
    "workload",
    "agents",
    "budget",
    "search",
    "evaluation",
    "baseline",
    "sandbox",
    "host",
    "seed",
)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""what a target may be called; a part (see `is_part`) has an underscore before it"""


@dataclass(frozen=True, kw_only=True)
class TargetFile:
    """One target: `<root>/<name>.yaml`, or `<root>/<name>/target.yaml` where it brings files of its own."""

    name: str
    path: Path
    origin: str
    """repository or package"""
    fault: str = ""
    """why the entry of the folder is no file that can be read: it is listed all the same"""

    @property
    def root(self) -> Path:
        return self.path.parent.parent if self.path.name == "target.yaml" else self.path.parent

    @property
    def is_part(self) -> bool:
        """A part is inherited by targets and is none itself."""
        return self.name.startswith("_")


def repository_root(cwd: Path) -> Path | None:
    """The nearest folder at or above `cwd` that holds `targets/`; the search ends at a `.git`."""
    for folder in (cwd, *cwd.parents):
        if (folder / "targets").is_dir():
            return folder
        if (folder / ".git").exists():
            return None
    return None


def project_root(cwd: Path | None = None) -> Path:
    """Where `targets/`, `artifacts/` and run state lie for a command: the repository's root, else where it started."""
    here = (cwd or Path.cwd()).resolve()
    return repository_root(here) or here


def target_roots(cwd: Path) -> list[tuple[str, Path]]:
    """Folders of targets as (origin, folder), in the order in which a name is looked up."""
    packaged = data_dir("targets")
    repository = repository_root(cwd)
    if repository is None or (repository / "targets").resolve() == packaged.resolve():
        return [("package", packaged)]
    return [("repository", repository / "targets"), ("package", packaged)]


def conf_roots(cwd: Path) -> list[Path]:
    """Folders of groups in the order in which an option is looked up: the package's, then the user's own `conf/`."""
    packaged = data_dir("conf")
    repository = repository_root(cwd)
    own = repository / "conf" if repository else packaged
    return [packaged] if not own.is_dir() or own.resolve() == packaged.resolve() else [packaged, own]


def group_options(cwd: Path) -> dict[str, list[str]]:
    """Valid options of every group, by name."""
    roots = conf_roots(cwd)
    return {group: sorted({path.stem for root in roots for path in (root / group).glob("*.yaml")}) for group in GROUPS}


def entries(root: Path, *, origin: str) -> list[TargetFile]:
    """Every target and part directly under `root`, by name; what looks like one and cannot be read has a `fault`."""
    if not root.is_dir():
        return []
    try:
        paths = sorted(root.iterdir())
    except OSError as error:
        raise SpecError(f"{root} cannot be listed: {error.strerror}", hint=f"ls -l {root.parent}") from error
    found: dict[str, TargetFile] = {}
    for path in paths:
        entry = _entry(path, origin=origin)
        if entry is None:
            continue
        earlier = found.get(entry.name)
        fault = f"there is {earlier.path.relative_to(root)} too; remove one of them" if earlier else entry.fault
        found[entry.name] = replace(entry, fault=fault)
    return list(found.values())


def _entry(path: Path, *, origin: str) -> TargetFile | None:
    """What `path` is as an entry of a folder of targets; None for other files and for folders without a target."""
    if path.name.startswith("."):
        return None
    if path.suffix in (".yaml", ".yml"):
        name, file = path.stem, path
    elif _is_dangling(path) and not path.suffix:
        name, file = path.name, path
    else:
        inside = [path / f"target{suffix}" for suffix in (".yaml", ".yml")]
        name, file = path.name, next((each for each in inside if each.is_symlink() or each.exists()), path)
        if file == path:
            return None
    return TargetFile(name=name, path=file, origin=origin, fault=_entry_fault(name, file))


def _entry_fault(name: str, file: Path) -> str:
    if _is_dangling(file):
        return f"a link to {file.readlink()}, which leads nowhere"
    if file.suffix == ".yml":
        return f"a target's file ends in .yaml; rename it to {file.stem}.yaml"
    if file.is_dir():
        return "a folder; a target is a file NAME.yaml or a folder NAME with a target.yaml"
    if not file.is_file():
        return "neither a file nor a folder"
    if not NAME.fullmatch(name.removeprefix("_")):
        return f"'{name}' is no name of a target: letters, digits, '_', '-' and '.', a letter or digit first"
    return ""


def _is_dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def known_targets(roots: Sequence[tuple[str, Path]]) -> dict[str, TargetFile]:
    """Targets and parts by name; the first root that has a name hides it in the others."""
    found: dict[str, TargetFile] = {}
    for origin, root in roots:
        for entry in entries(root, origin=origin):
            found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


def list_targets(cwd: Path | None = None) -> list[TargetFile]:
    """Every target that a command started in `cwd` can name, by name; a repository's hides the package's namesake.

    Entries that cannot be read are among them, with their `fault`; parts are not.
    """
    return [entry for entry in known_targets(target_roots(cwd or Path.cwd())).values() if not entry.is_part]


def target_names(cwd: Path | None = None) -> list[str]:
    """Names of the targets that can be read."""
    return [target.name for target in list_targets(cwd) if not target.fault]


def find_target(name: str, *, cwd: Path | None = None) -> TargetFile:
    """The target called `name`; SpecError lists the ones there are."""
    here = cwd or Path.cwd()
    known = known_targets(target_roots(here))
    if name in known and not known[name].is_part:
        return known[name]
    names = target_names(here)
    searched = f"searched: {', '.join(str(root) for _, root in target_roots(here))}"
    valid = f"valid: {', '.join(names) or '(none)'}"
    if name in known:
        message = f"'{name}' is a part: targets inherit it, it is none itself"
        raise SpecError(message, problems=[valid], hint="vibeserve list")
    meant = _name_of_path(name)
    hint = f"name it {meant}" if meant in names else "vibeserve list"
    why = "; a target is named and not a path" if meant else suggest(name, names)
    raise SpecError(f"no target '{name}'{why}", problems=[valid, searched], hint=hint)


def _name_of_path(text: str) -> str:
    """The name of the target whose file or folder `text` is a path of; empty where it is no path."""
    path = Path(text)
    if "/" not in text and path.suffix not in (".yaml", ".yml"):
        return ""
    file = path.parent if path.name == "target.yaml" else path
    return file.stem if file.suffix in (".yaml", ".yml") else file.name


def words_beside_target(words: Sequence[str]) -> list[str]:
    """The words of a command without the one that names its target, as they were typed."""
    return [word for word in words if word.partition("=")[0].lstrip("+~") != "target"]
