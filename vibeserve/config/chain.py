"""A target and the targets that it inherits from, as one configuration.

A target names at most one other under `defaults`; that one may name another, and so on. What is nearer wins: values
merge key by key, lists are replaced whole, and the option of a group is the nearest one that is selected. The block
`target:` describes one file and is not inherited. Hydra sees the result and does not know about inheritance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve.config.defaults import Defaults, read_defaults
from vibeserve.config.faults import Fault, Place, shown
from vibeserve.config.schema import body_schema
from vibeserve.config.targets import TargetFile, group_options, known_targets, target_roots
from vibeserve.config.wording import schema_faults, where
from vibeserve.config.words import unknown
from vibeserve.config.yaml_text import YamlFile, locate, read_yaml

if TYPE_CHECKING:
    from omegaconf import DictConfig

EMPTY = "the file is empty; a target selects at least a model, a hardware and a workload"


@dataclass(frozen=True, kw_only=True)
class Link:
    """One file of the chain."""

    target: TargetFile
    file: YamlFile
    defaults: Defaults

    @property
    def folder(self) -> Path:
        return self.target.path.parent


@dataclass(frozen=True, kw_only=True)
class Chain:
    """`links[0]` is the target itself, the last one inherits from none. With `faults` it is not to be composed."""

    links: list[Link]
    faults: list[Fault] = field(default_factory=list)

    @property
    def selected(self) -> dict[str, Any]:
        """Option (or options) by group, of those that a file of the chain selects."""
        return {group: option for link in reversed(self.links) for group, option in link.defaults.selected.items()}

    def place_of(self, group: str) -> Place | None:
        """Where the chain selects the option of `group`."""
        places = (link.defaults.places.get(group) for link in self.links)
        return next((place for place in places if place is not None), None)

    def config(self) -> DictConfig:
        """The values of the whole chain, with `target` filled."""
        from omegaconf import OmegaConf

        own, *inherited = self.links
        bodies = [OmegaConf.create(_body(link.file.data, is_own=link is own)) for link in reversed(self.links)]
        dirs = [str(link.folder) for link in inherited if link.folder != own.folder]
        info = {"name": own.target.name, "dir": str(own.folder), "inherited_dirs": list(dict.fromkeys(dirs))}
        return cast("DictConfig", OmegaConf.merge(*bodies, {"target": info}))


def _body(data: dict[str, Any], *, is_own: bool) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "defaults" and (is_own or key != "target")}


def read_chain(target: TargetFile, *, cwd: Path) -> Chain:
    """The chain that starts at `target`, which may lie anywhere; its neighbours come before all other targets."""
    known = known_targets([("file", target.root), *target_roots(cwd)])
    options = group_options(cwd)
    links: list[Link] = []
    faults: list[Fault] = []
    pending: TargetFile | None = target
    while pending is not None:
        link = read_link(pending, cwd=cwd, options=options)
        links.append(link)
        faults += _link_faults(link)
        pending = None
        if link.defaults.base:
            fault = _base_fault(link.defaults, links, known)
            if fault:
                faults.append(fault)
            else:
                pending = known[link.defaults.base]
    return Chain(links=links, faults=faults)


def read_link(target: TargetFile, *, cwd: Path, options: dict[str, list[str]]) -> Link:
    """One target file, without those that it inherits from."""
    name = shown(target.path, cwd)
    if target.fault:
        file = YamlFile(path=target.path, shown=name, faults=[Fault(place=Place(file=name), text=target.fault)])
    else:
        file = read_yaml(target.path, shown=name)
    return Link(target=target, file=file, defaults=read_defaults(file, options=options))


def _link_faults(link: Link) -> Iterator[Fault]:
    file = link.file
    yield from file.faults
    yield from link.defaults.faults
    if file.root is None:
        if not file.faults:
            yield file.fault(EMPTY)
        return
    body = file.data if not isinstance(file.data, dict) else _body(file.data, is_own=True)
    yield from data_faults(file, body, schema=body_schema())


def data_faults(file: YamlFile, data: Any, *, schema: dict[str, Any]) -> Iterator[Fault]:
    """What is wrong with a file's `data` under a JSON Schema, each fault at its line and column."""
    assert file.root is not None
    if not isinstance(data, dict):
        what = "a list" if isinstance(data, list) else f"{data!r}"
        yield file.fault(f"expected a mapping of keys to values, got {what}")
        return
    told = {fault.place for fault in file.faults}
    for path, what in schema_faults(data, schema):
        place = locate(file, path)
        if place not in told:
            yield Fault(place=place, text=f"{where(path)}: {what}")


def _base_fault(defaults: Defaults, links: Sequence[Link], known: dict[str, TargetFile]) -> Fault | None:
    """Why the target named as base cannot be inherited from."""
    place, base = defaults.places["base"], defaults.base
    names = [link.target.name for link in links]
    if base in names:
        walked = " -> ".join([*names[names.index(base) :], base])
        return Fault(place=place, text=f"defaults: '{base}' inherits from itself: {walked}")
    if base not in known:
        valid = [name for name, target in known.items() if not target.fault and name not in names]
        return Fault(place=place, text=f"defaults: {unknown('target', base, valid)}")
    return None
