"""One YAML file as a node tree with positions and as data, with every fault that the format itself can have.

What YAML allows and a target must not hold is refused here: several documents, merge keys, tags, keys that are no text,
numbers that are none. The scalars are read as OmegaConf reads them, so that a check and a composition agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.faults import Fault, Place
from vibeserve.config.interpolation import interpolation_fault

if TYPE_CHECKING:
    import yaml

MAX_BYTES = 256 * 1024
"""the largest target of the field is some 4 KiB"""
MAX_DEPTH = 32
MAX_VALUES = 20_000
"""values of one file when its aliases are written out"""
MAX_DIGITS = 18
"""of a whole number; what has more fits no machine's integer"""

TAG = "tag:yaml.org,2002:"
TAGS = {f"{TAG}{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}


@dataclass(frozen=True, kw_only=True)
class YamlFile:
    """`root` and `data` are None when the file is empty or no tree; a value at fault is read as empty text."""

    path: Path
    shown: str
    root: yaml.Node | None = None
    data: Any = None
    faults: list[Fault] = field(default_factory=list)

    def place(self, node: yaml.Node | yaml.Event | None = None) -> Place:
        mark = node.start_mark if node is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        return Place(file=self.shown, line=line, column=column)

    def fault(self, text: str, node: yaml.Node | yaml.Event | None = None) -> Fault:
        return Fault(place=self.place(node), text=text)


def read_yaml(path: Path, *, shown: str) -> YamlFile:
    """Read the file at `path`; every fault is in `faults`, none is raised."""
    import yaml

    empty = YamlFile(path=path, shown=shown)
    try:
        raw = path.read_bytes()
    except OSError as error:
        return _faulty(empty, Fault(place=Place(file=shown), text=f"cannot be read: {error.strerror}"))
    if len(raw) > MAX_BYTES:
        size = f"{len(raw) / 1024:.0f} KiB"
        return _faulty(empty, empty.fault(f"the file has {size}; at most {MAX_BYTES // 1024} KiB are read"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _faulty(empty, empty.fault(f"not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8"))
    try:
        faults = list(_event_faults(text, empty))
        root = yaml.compose(text, Loader=_loader()) if not faults else None
        faults += _tree_faults(root, empty) if root is not None else []
        if root is None or faults:
            return YamlFile(path=path, shown=shown, faults=faults)
        faults += _value_faults(root, root, "", empty)
        return YamlFile(path=path, shown=shown, root=root, data=_loader()("").construct_document(root), faults=faults)
    except yaml.YAMLError as error:
        return _faulty(empty, _yaml_fault(error, text, empty))


def _faulty(empty: YamlFile, fault: Fault) -> YamlFile:
    return YamlFile(path=empty.path, shown=empty.shown, faults=[fault])


def _loader() -> Any:
    from omegaconf._utils import get_yaml_loader

    return get_yaml_loader()


def _yaml_fault(error: yaml.YAMLError, text: str, file: YamlFile) -> Fault:
    """The fault that PyYAML words; a tab is named, since one sees no difference to spaces."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:  # the reader's errors count characters
        before = text[: getattr(error, "position", 0)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        what = f"the character U+{getattr(error, 'character', 0):04X} is not allowed"
    else:
        line, column = mark.line + 1, mark.column + 1
        what = " ".join(str(getattr(error, "problem", None) or error).split())
        if "'\\t'" in what:
            what = "a tab; indent with spaces"
    return Fault(place=Place(file=file.shown, line=line, column=column), text=f"YAML: {what}")


def _event_faults(text: str, file: YamlFile) -> Iterator[Fault]:
    """What must be known before a tree is built: the depth, which would exhaust the stack, and further documents."""
    import yaml

    depth, documents = 0, 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents == 2:
                yield file.fault("a second document; a file holds one", event)
                return
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                yield file.fault(f"nested more than {MAX_DEPTH} levels deep", event)
                return
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _tree_faults(root: yaml.Node, file: YamlFile) -> list[Fault]:
    size = _expanded_size(root, file)
    if isinstance(size, Fault):
        return [size]
    if size > MAX_VALUES:
        return [file.fault(f"holds {size} values once its aliases are written out; at most {MAX_VALUES} are read")]
    return list(_faults_below(root, "", file))


def _expanded_size(root: yaml.Node, file: YamlFile) -> int | Fault:
    """Number of values with aliases written out, or the fault of an alias that contains itself."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int | Fault:
        if id(node) in open_nodes:
            return file.fault("an alias of it contains itself", node)
        if id(node) not in sizes:
            open_nodes.add(id(node))
            total = 1
            for child in children(node):
                below = size(child)
                if isinstance(below, Fault):
                    return below
                total += below
            open_nodes.discard(id(node))
            sizes[id(node)] = total
        return sizes[id(node)]

    return size(root)


def children(node: yaml.Node) -> Iterator[yaml.Node]:
    """Nodes directly below a mapping (its keys too) or a sequence."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from (key, value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _faults_below(node: yaml.Node, where: str, file: YamlFile) -> Iterator[Fault]:
    import yaml

    if node.tag not in TAGS:
        yield file.fault(f"{_prefix(where)}the tag {node.tag.replace(TAG, '!!')} is not allowed", node)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            what = _key_fault(key, seen)
            if what:
                yield file.fault(f"{_prefix(where)}{what}", key)
            else:
                seen.add(key.value)
                yield from _faults_below(value, join(where, key.value), file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _faults_below(value, f"{where}[{index}]", file)


def _value_faults(node: yaml.Node, at: yaml.Node, where: str, file: YamlFile) -> Iterator[Fault]:
    """What is wrong with single values, each told at its key; such a value is emptied, so that the rest can be read."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _value_faults(value, key, join(where, key.value), file)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _value_faults(value, value, f"{where}[{index}]", file)
    else:
        what = _scalar_fault(node.tag, str(node.value))
        if what:
            node.tag, node.value = f"{TAG}str", ""
            yield file.fault(f"{_prefix(where)}{what}", at)


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def join(where: str, key: str) -> str:
    """`a.b` of `a` and `b`; a key at the top has no dot."""
    return f"{where}.{key}" if where else key


def _key_fault(key: yaml.Node, seen: set[str]) -> str:
    import yaml

    if key.tag == f"{TAG}merge":
        return "merge keys (<<) are not read; put what is shared into a part such as _common.yaml and inherit it"
    if not isinstance(key, yaml.ScalarNode):
        return "a key must be text"
    if key.tag != f"{TAG}str":
        return f"the key {key.value} is not text; quote it: '{key.value}'"
    return f"key '{key.value}' is stated twice" if key.value in seen else ""


def _scalar_fault(tag: str, text: str) -> str:
    if tag == f"{TAG}int" and len(re.sub(r"\D", "", text)) > MAX_DIGITS:
        return f"a whole number of {len(text)} digits; at most {MAX_DIGITS} are read"
    if tag == f"{TAG}float" and not math.isfinite(_as_float(text)):
        return f"{text} is not a finite number"
    return interpolation_fault(text) if tag == f"{TAG}str" else ""


def _as_float(text: str) -> float:
    plain = text.replace("_", "").lower()
    if plain.lstrip("+-") in (".inf", ".nan"):
        return math.inf
    return 0.0 if ":" in plain else float(plain)


def locate(file: YamlFile, path: Sequence[str | int]) -> Place:
    """Line and column of the deepest node that `path` reaches; of a mapping's entry, its key."""
    import yaml

    node = file.root
    place = file.place(node)
    for part in path:
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            place = file.place(node)
        elif isinstance(node, yaml.MappingNode):
            entry = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if entry is None:
                break
            place, node = file.place(entry[0]), entry[1]
    return place
