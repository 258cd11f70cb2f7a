"""What of a candidate's code differs from its parent's, function by function, and what may act without any of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.skills.assembler import ASSEMBLY_PATH

RUNTIME = "runtime"
NATIVE_SUFFIXES = (".cpp", ".cc", ".c", ".h", ".hpp", ".cu", ".cuh")
SERVICE, BUILD = "service.yaml", "build"
NEVER_RUN = ("README.md", "LICENSE", "NOTICE", "requirements.lock", "sbom.json", ".gitignore")
"""of the workspace's own folder: said of a runtime, not run by it"""
NEVER_RUN_FOLDERS = ("tests", "docs", ".git", "build")
HARMLESS_CALLS = frozenset((
    "frozenset", "set", "tuple", "list", "dict", "field", "dataclass", "namedtuple", "NamedTuple", "TypeVar", "compile",
    "getLogger", "Path", "float", "int", "str", "range", "len", "min", "max", "staticmethod", "classmethod", "property",
))  # fmt: skip
"""by their last name: a module that calls them as it is imported changes nothing but itself"""
SHORT_CALLS = frozenset(("len", "min", "max", "int", "float", "bool", "abs", "isinstance", "getattr"))
LOOPS = (
    ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await, ast.Yield,
    ast.YieldFrom, ast.With, ast.AsyncWith, ast.MatMult,
)  # fmt: skip
AT_START = frozenset(("__init__", "__post_init__", "__new__", "main", "<module>"))
START_FILES = ("runtime/__main__.py", "runtime/weights.py", "runtime/build.py", "runtime/placement.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class ChangedFunction:
    """One that is new, or not as in the parent."""

    file: str
    name: str
    """`Linear.__call__`"""
    is_hidden: bool
    """a sampling profiler may never see it: without a loop and a call that takes time it is over in a microsecond, and
    a decorator may answer in its place"""
    is_at_start: bool
    """by its name or its file it runs as the server starts, before a profiler looks"""

    def __str__(self) -> str:
        return f"{self.file}:{self.name}"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Between two workspaces."""

    functions: tuple[ChangedFunction, ...] = ()
    native: tuple[str, ...] = ()
    """new native sources: only what calls them from Python makes them run"""
    elsewhere: tuple[str, ...] = ()
    """what may act without any of `functions`: constants, settings, native code that is called as before"""


@dataclass(kw_only=True)
class _Found:
    functions: list[ChangedFunction] = field(default_factory=list)
    native: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


def changes_of(workspace: Path, *, parent: Path) -> Changes:
    """What differs. A file that cannot be read as Python counts as a change elsewhere: nothing is known of it."""
    ours, theirs = _files(workspace), _files(parent)
    found = _Found()
    names = set(ours) | set(theirs)
    for name in sorted(each for each in names if ours.get(each) != theirs.get(each)):
        _note(found, name, ours.get(name), theirs.get(name), sources=ours)
    return Changes(
        functions=tuple(found.functions), native=tuple(found.native), elsewhere=tuple(dict.fromkeys(found.elsewhere))
    )


def _files(workspace: Path) -> dict[str, bytes]:
    """path -> content, of everything that may have a part in what runs."""
    found: dict[str, bytes] = {}
    for path in sorted(workspace.rglob("*")):
        relative = path.relative_to(workspace)
        is_left_out = relative.parts[0] in NEVER_RUN_FOLDERS or "__pycache__" in relative.parts
        if not is_left_out and relative.as_posix() not in NEVER_RUN and path.is_file() and not path.is_symlink():
            found[relative.as_posix()] = path.read_bytes()
    return found


def _note(found: _Found, name: str, now: bytes | None, before: bytes | None, *, sources: Mapping[str, bytes]) -> None:
    if name.endswith(".py") and name.startswith(f"{RUNTIME}/"):
        _note_python(found, name, now, before)
    elif name == SERVICE:
        found.elsewhere += _service_changes(now, before)
    elif name == ASSEMBLY_PATH:
        is_read = any(b"assembly.json" in text for path, text in sources.items() if path.endswith(".py"))
        found.elsewhere += [name] if is_read else []
    elif before is not None or not name.startswith(f"{RUNTIME}/"):
        found.elsewhere.append(name)  # who read it before may read it now
    elif name.endswith(NATIVE_SUFFIXES):
        found.native.append(name)


def _service_changes(now: bytes | None, before: bytes | None) -> list[str]:
    """Settings of `service.yaml` that differ. A build where there was none makes only what is new."""
    old, new = _settings(before), _settings(now)
    return [
        f"{SERVICE}: {key}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key) and not (key == BUILD and old.get(key) is None)
    ]


def _settings(text: bytes | None) -> dict[str, Any]:
    import yaml

    try:
        data = yaml.safe_load(text or b"")
    except yaml.YAMLError:
        data = None
    return {str(key): value for key, value in data.items()} if isinstance(data, dict) else {}


def _note_python(found: _Found, name: str, now: bytes | None, before: bytes | None) -> None:
    if now is None:
        return  # a module that is gone runs nowhere; who imported it differs too
    try:
        new, old = ast.parse(now), ast.parse(before or b"")
        functions, earlier = dict(_functions(new)), dict(_functions(old))
        changed = [
            _changed(name, qualified, node)
            for qualified, node in functions.items()
            if qualified not in earlier or _plain(node) != _plain(earlier[qualified])
        ]
        around = [f"{name}: {each}" for each in _around(new, old)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two of what is nested too deeply
        found.elsewhere.append(name)
        return
    found.functions += changed
    found.elsewhere += around


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of modules and methods of classes; what is defined inside of them is a part of them."""
    pending: list[tuple[str, ast.stmt]] = [("", node) for node in tree.body]
    while pending:
        prefix, node = pending.pop(0)
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            pending += [(f"{prefix}{node.name}.", each) for each in node.body]


def _plain(node: ast.AST) -> str:
    """The code without comments, places and docstrings."""
    copied = ast.parse(ast.unparse(node)) if not isinstance(node, ast.Module) else node
    for each in ast.walk(copied):
        if isinstance(each, Function | ast.ClassDef | ast.Module) and each.body and _is_text(each.body[0]):
            each.body = each.body[1:] or [ast.Pass()]
    return ast.dump(copied)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changed(file: str, name: str, node: Function) -> ChangedFunction:
    return ChangedFunction(
        file=file, name=name, is_hidden=not _takes_time(node) or not _is_undecorated(node),
        is_at_start=file in START_FILES or name.rpartition(".")[2] in AT_START,
    )  # fmt: skip


def _takes_time(node: Function) -> bool:
    for each in ast.walk(node):
        if isinstance(each, LOOPS):
            return True
        if isinstance(each, ast.Call) and _last_name(each.func) not in SHORT_CALLS:
            return True
    return False


def _is_undecorated(node: Function) -> bool:
    return all(_last_name(each) in HARMLESS_CALLS for each in node.decorator_list)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# -- what stands around functions


def _around(new: ast.Module, old: ast.Module) -> list[str]:
    """What of a module, outside of functions, may act on code that did not change."""
    problems = list(_statements(new.body, old.body, where=""))
    classes = {node.name: node for node in old.body if isinstance(node, ast.ClassDef)}
    for node in new.body:
        if isinstance(node, ast.ClassDef):
            problems += _of_class(node, classes.get(node.name))
    return problems


def _of_class(new: ast.ClassDef, old: ast.ClassDef | None) -> Iterator[str]:
    yield from _statements(new.body, old.body if old else [], where=f"{new.name}.")
    if old is None:
        return
    if [*map(ast.dump, [*new.bases, *new.decorator_list])] != [*map(ast.dump, [*old.bases, *old.decorator_list])]:
        yield f"class {new.name} is derived otherwise"
    gone = {each.name for each in old.body if isinstance(each, Function)}
    gone -= {each.name for each in new.body if isinstance(each, Function)}
    if gone and (new.bases or new.decorator_list):
        yield f"{new.name}.{min(gone)} is gone: what it hid acts now"


def _statements(new: Iterable[ast.stmt], old: Iterable[ast.stmt], *, where: str) -> Iterator[str]:
    """Statements that bind a name that was bound before to something else, or that do something at import."""
    old = list(old)
    known = set(map(ast.dump, old))
    bound = {name: what for node in old for name, what in _bound(node).items()}
    present = set()
    for node in new:
        text = ast.dump(node)
        present.add(text)
        if text in known or isinstance(node, Function | ast.ClassDef) or _is_text(node):
            continue
        rebound = [name for name, what in _bound(node).items() if bound.get(name, what) != what]
        if rebound:
            yield f"{where}{rebound[0]} is something else"
        elif not _is_quiet(node):
            yield f"runs at import: {where}line {node.lineno}"
    for node in old:
        if ast.dump(node) not in present and not _bound(node) and not _is_text(node):
            yield f"no longer runs at import: {where}line {node.lineno}"


def _bound(node: ast.stmt) -> dict[str, str]:
    """name -> what a statement makes of it: where an import has it from, else the statement itself."""
    if isinstance(node, Function | ast.ClassDef):
        return {node.name: "defined here"}
    if isinstance(node, ast.Import | ast.ImportFrom):
        origin = f"{'.' * node.level}{node.module}" if isinstance(node, ast.ImportFrom) else ""
        return {alias.asname or alias.name.partition(".")[0]: f"{origin}:{alias.name}" for alias in node.names}
    if isinstance(node, ast.Assign):
        names = [each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        return dict.fromkeys(names, ast.dump(node))
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id: ast.dump(node)}
    return {}


def _is_quiet(node: ast.stmt) -> bool:
    """It binds names and does nothing else."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass):
        return True
    if isinstance(node, ast.If):
        return _last_name(node.test) == "TYPE_CHECKING" and not node.orelse
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    is_plain = all(isinstance(target, ast.Name | ast.Tuple) for target in targets)
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    return is_plain and all(_last_name(call.func) in HARMLESS_CALLS for call in calls)
