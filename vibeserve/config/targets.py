"""Where targets and groups lie: the user's repository first, then what the package ships."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class TargetFile:
    """One target: `<root>/<name>.yaml`, or `<root>/<name>/target.yaml` where it brings files of its own."""

    name: str
    path: Path
    origin: str
    """repository or package"""

    @property
    def root(self) -> Path:
        return self.path.parent.parent if self.path.name == "target.yaml" else self.path.parent


def repository_root(cwd: Path) -> Path | None:
    """The nearest folder at or above `cwd` that holds `targets/`; the search ends at a `.git`."""
    for folder in (cwd, *cwd.parents):
        if (folder / "targets").is_dir():
            return folder
        if (folder / ".git").exists():
            return None
    return None


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


def locate(root: Path, name: str) -> Path | None:
    """File of target `name` under `root`, or None. Names that start with an underscore are parts, not targets."""
    stem = name.removesuffix(".yaml")
    if not stem or stem.startswith("_"):
        return None
    return next((path for path in (root / stem / "target.yaml", root / f"{stem}.yaml") if path.is_file()), None)


def names_in(root: Path) -> list[str]:
    """Names of the targets directly under `root`."""
    if not root.is_dir():
        return []
    stems = {path.stem if path.suffix == ".yaml" else path.name for path in root.iterdir()}
    return sorted(stem for stem in stems if locate(root, stem))


def list_targets(cwd: Path | None = None) -> list[TargetFile]:
    """Every target that a command started in `cwd` can name, by name; a repository's hides the package's namesake."""
    found: dict[str, TargetFile] = {}
    for origin, root in target_roots(cwd or Path.cwd()):
        for name in names_in(root):
            path = locate(root, name)
            if path is not None and name not in found:
                found[name] = TargetFile(name=name, path=path, origin=origin)
    return [found[name] for name in sorted(found)]


def find_target(name: str, *, cwd: Path | None = None) -> TargetFile:
    """The target called `name`; SpecError lists the ones there are."""
    targets = list_targets(cwd)
    for target in targets:
        if target.name == name:
            return target
    names = [target.name for target in targets]
    roots = ", ".join(str(root) for _, root in target_roots(cwd or Path.cwd()))
    raise SpecError(
        f"no target '{name}'{suggest(name, names)}",
        problems=[f"valid: {', '.join(names) or '(none)'}", f"searched: {roots}"],
        hint="vibeserve list",
    )
