"""The list `defaults` of a target file: the options that it selects, and the target that it inherits from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibeserve.config.faults import Fault, Place
from vibeserve.config.schema import COMPOSABLE
from vibeserve.config.targets import GROUPS
from vibeserve.config.words import suggest, unknown
from vibeserve.config.yaml_text import YamlFile

if TYPE_CHECKING:
    import yaml

SELF = "_self_"
SELECTION = re.compile(r"(?:override +)?/([\w-]+)")


@dataclass(kw_only=True)
class Defaults:
    """`selected` holds an option, or the options of a composable group, by group; `base` is a target's name or empty.

    `places` tells where each group is selected, and under `base` where the target is named.
    """

    selected: dict[str, Any] = field(default_factory=dict)
    base: str = ""
    places: dict[str, Place] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def read_defaults(file: YamlFile, *, options: dict[str, list[str]]) -> Defaults:
    """The `defaults` of a target file; `options` are the valid ones by group. Faults are collected, none is raised."""
    import yaml

    defaults = Defaults()
    node = value_of(file.root, "defaults")
    if node is None:
        return defaults
    if not isinstance(node, yaml.SequenceNode):
        defaults.faults.append(file.fault("defaults: expected a list, such as - override /model: NAME", node))
        return defaults
    self_node: yaml.Node | None = None
    for entry in node.value:
        if isinstance(entry, yaml.ScalarNode) and entry.value == SELF:
            if self_node is not None:
                defaults.faults.append(file.fault(f"defaults: {SELF} is stated twice", entry))
            self_node = entry
        elif isinstance(entry, yaml.ScalarNode):
            defaults.faults += _read_name(entry, file, defaults, is_after_self=self_node is not None)
        elif isinstance(entry, yaml.MappingNode):
            defaults.faults += _read_selection(entry, file, defaults, options)
        else:
            text = "defaults: expected - override /GROUP: OPTION, or the name of a target, got a list"
            defaults.faults.append(file.fault(text, entry))
    return defaults


def value_of(root: yaml.Node | None, key: str) -> yaml.Node | None:
    """Node of the value of `key` in a mapping node."""
    import yaml

    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for name, value in root.value if name.value == key), None)


def _read_name(node: yaml.ScalarNode, file: YamlFile, defaults: Defaults, *, is_after_self: bool) -> Iterator[Fault]:
    name = str(node.value)
    group = re.fullmatch(r"(?:override +)?/?([\w-]+)[/ =]+([\w.-]+)", name)
    if group and group.group(1) in GROUPS:
        text = f"'{name}' is no entry; an option is selected as - override /{group.group(1)}: {group.group(2)}"
        yield file.fault(f"defaults: {text}", node)
    elif group and group.group(1) == "target":
        yield file.fault(f"defaults: a target is inherited by its name alone: - {group.group(2)}", node)
    elif not node.tag.endswith(":str"):
        what = "an entry is empty" if not name else f"{name} is not text; a target of that name is written '{name}'"
        yield file.fault(f"defaults: {what}", node)
    elif defaults.base:
        line = defaults.places["base"].line
        text = f"'{name}' is a second target, '{defaults.base}' in line {line} is the first; a target inherits from one"
        yield file.fault(f"defaults: {text}", node)
    elif is_after_self:
        yield file.fault(f"defaults: '{name}' comes after {SELF}; a target's own values win over inherited ones", node)
    else:
        defaults.base = name
        defaults.places["base"] = file.place(node)


def _read_selection(
    node: yaml.MappingNode, file: YamlFile, defaults: Defaults, options: dict[str, list[str]]
) -> Iterator[Fault]:
    if len(node.value) != 1:
        yield file.fault(f"defaults: an entry selects one option, this one has {len(node.value)} keys", node)
        return
    ((key, value),) = node.value
    fault = _key_fault(str(key.value), value)
    if fault:
        yield file.fault(f"defaults: {fault}", key)
        return
    group = SELECTION.fullmatch(key.value)
    name = group.group(1) if group else ""
    if name in defaults.selected:
        line = defaults.places[name].line
        yield file.fault(f"defaults: /{name} is selected twice, first in line {line}", key)
        return
    faults = list(_option_faults(name, value, file, options[name]))
    yield from faults
    defaults.places[name] = file.place(key)
    if not faults:
        many = isinstance(value.value, list)
        defaults.selected[name] = [str(item.value) for item in value.value] if many else str(value.value)


def _key_fault(key: str, value: yaml.Node) -> str:
    option = value.value if isinstance(value.value, str) else "OPTION"
    found = SELECTION.fullmatch(key)
    if found and found.group(1) in GROUPS:
        return ""
    bare = re.sub(r"^(override|optional) +", "", key).lstrip("/").split("@")[0]
    if bare == "target":
        return f"a target is inherited by its name alone: - {option}"
    if bare in GROUPS:
        return f"'{key}' is no entry; an option is selected as - override /{bare}: {option}"
    guess = suggest(bare, GROUPS)
    return f"unknown group '/{bare}'{guess}{' ' if guess else '; '}valid: {', '.join(sorted(GROUPS))}"


def _option_faults(group: str, value: yaml.Node, file: YamlFile, valid: list[str]) -> Iterator[Fault]:
    import yaml

    if isinstance(value, yaml.SequenceNode) and group not in COMPOSABLE:
        yield file.fault(f"defaults: /{group} takes one option, not a list", value)
        return
    for item in value.value if isinstance(value, yaml.SequenceNode) else [value]:
        if not isinstance(item, yaml.ScalarNode) or item.tag.endswith(":null"):
            what = "names no option" if isinstance(item, yaml.ScalarNode) else "takes the name of an option"
            yield file.fault(f"defaults: /{group} {what}; valid: {', '.join(valid)}", item)
        elif item.value not in valid:
            yield file.fault(f"defaults: {unknown(group, item.value, valid)}", item)
