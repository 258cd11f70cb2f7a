"""Files of the selected options: read and checked before Hydra merges them, in the order in which it does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.chain import data_faults
from vibeserve.config.defaults import SELF, value_of
from vibeserve.config.faults import Fault, Place, shown
from vibeserve.config.schema import group_schema
from vibeserve.config.targets import GROUPS, conf_roots
from vibeserve.config.words import unknown
from vibeserve.config.yaml_text import YamlFile, read_yaml

if TYPE_CHECKING:
    import yaml

HEADER = "# @package"


@dataclass(kw_only=True)
class GroupFiles:
    """`files` holds (group, file) of every option that is merged, weakest first."""

    files: list[tuple[str, YamlFile]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


@cache
def usual_options(conf: Path) -> dict[str, str]:
    """The option of each group that is selected where nothing else is said: `config.yaml` of the package's `conf`."""
    import yaml

    primary = yaml.safe_load((conf / "config.yaml").read_text(encoding="utf-8"))
    entries = [entry for entry in primary["defaults"] if isinstance(entry, dict)]
    return {group: option for entry in entries for group, option in entry.items() if group in GROUPS and option}


def read_groups(selected: dict[str, Any], *, cwd: Path) -> GroupFiles:
    """The files of `selected` (option or options by group), and what they start from.

    Options that do not exist are somebody else's fault to tell; they are left out.
    """
    found = GroupFiles()
    for group in GROUPS:
        chosen = selected.get(group)
        options = [str(option) for option in (chosen if isinstance(chosen, list) else [chosen]) if option is not None]
        for option in options:
            _read(group, option, (), found, cwd=cwd)
    return found


def _read(group: str, option: str, above: tuple[str, ...], found: GroupFiles, *, cwd: Path) -> None:
    paths = [path for root in conf_roots(cwd) if (path := root / group / f"{option}.yaml").is_file()]
    if not paths:
        return
    file = read_yaml(paths[0], shown=shown(paths[0], cwd))
    found.faults += file.faults
    found.faults += _hidden(group, option, paths, cwd=cwd)
    if file.root is not None:
        found.faults += data_faults(file, file.data, schema=group_schema(group))
    if not file.faults and HEADER in paths[0].read_text(encoding="utf-8-sig"):
        found.faults.append(file.fault(f"an option fills its own group; remove the line '{HEADER}'"))
    is_merged = False
    for node in _entries(file):
        name = str(node.value)
        if name == SELF:
            found.files.append((group, file))
            is_merged = True
            continue
        fault = _entry_fault(group, name, (*above, option), cwd=cwd)
        if fault:
            found.faults.append(file.fault(f"defaults: {fault}", node))
        else:
            _read(group, name, (*above, option), found, cwd=cwd)
    if not is_merged:
        found.files.append((group, file))


def _hidden(group: str, option: str, paths: Sequence[Path], *, cwd: Path) -> Iterator[Fault]:
    """Files that the first of `paths` keeps from being read. One that says the same, as in a checkout of VibeServe
    where the installed one runs, loses nothing."""
    for path in paths[1:]:
        if path.read_bytes() != paths[0].read_bytes():
            text = f"{group} '{option}' ships with VibeServe and hides this file; give it another name"
            yield Fault(place=Place(file=shown(path, cwd)), text=text)


def _entries(file: YamlFile) -> Iterator[yaml.Node]:
    import yaml

    node = value_of(file.root, "defaults")
    if isinstance(node, yaml.SequenceNode):
        yield from (entry for entry in node.value if isinstance(entry, yaml.ScalarNode))


def _entry_fault(group: str, name: str, walked: tuple[str, ...], *, cwd: Path) -> str:
    if name in walked:
        return f"'{name}' starts from itself: {' -> '.join([*walked[walked.index(name) :], name])}"
    options = sorted({path.stem for root in conf_roots(cwd) for path in (root / group).glob("*.yaml")})
    return "" if name in options else unknown(group, name, options)
