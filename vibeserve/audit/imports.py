"""Rule: what may be imported, by statement or by name at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.audit.names import Names, fold
from vibeserve.audit.policy import (
    ALLOWED,
    CLIENT_LIBRARIES,
    DYNAMIC_MODULES,
    ENGINES,
    HOPS,
    NO_HOPS,
    PROBE_MODULES,
    PROCESS_MODULES,
    STATE_MODULES,
    STDLIB,
)

IMPORT_CALLS = frozenset(
    {
        "importlib.import_module",
        "importlib.__import__",
        "__import__",
        "builtins.__import__",
        "pkgutil.find_loader",
        "importlib.util.find_spec",
        "importlib.find_loader",
        "pkgutil.resolve_name",
    }
)
_BELOW_OTHERS = frozenset(
    name for name in CLIENT_LIBRARIES | DYNAMIC_MODULES | PROCESS_MODULES if "." in name or name == "multiprocessing"
)
Found = tuple[int, str, str]
"""line, reason class, what"""


@dataclass(frozen=True, kw_only=True)
class ImportPolicy:
    """`local` are the workspace's own top-level names; `may_spawn` holds for the build step; `is_test` for tests/."""

    local: frozenset[str]
    allow_engines: frozenset[str] = frozenset()
    may_spawn: bool = False
    is_test: bool = False

    def judge(self, module: str) -> tuple[str, str] | None:
        """Reason class and text for importing `module`, or None when it may be."""
        top = module.split(".")[0]
        if top == "vibeserve":
            return "engine_import", f"imports the framework that judges it ({module})"
        if top in ENGINES:
            return None if top in self.allow_engines else ("engine_import", f"imports the engine {top}")
        if self.is_test:
            return None
        if top in self.local:
            return (
                ("foreign_import", f"imports {module}, which is not part of the shipped package")
                if top == "tests"
                else None
            )
        return self._judge_outside(module, top)

    def _judge_outside(self, module: str, top: str) -> tuple[str, str] | None:
        if _within(module, CLIENT_LIBRARIES):
            return "outbound_connection", f"imports the client library {module}"
        if _within(module, DYNAMIC_MODULES):
            return "dynamic_code", f"imports {module}, which runs what it reads"
        if _within(module, PROCESS_MODULES):
            return None if self.may_spawn and top == "subprocess" else ("process", f"imports {module}")
        if _within(module, STATE_MODULES):
            return (
                None
                if self.may_spawn and top == "tempfile"
                else ("file_access", f"imports {module}, which keeps state in files")
            )
        if _within(module, PROBE_MODULES):
            return "environment_probe", f"imports {module}"
        if top.startswith("_") and top != "__future__":
            return "system_library", f"imports {top}, an inside of the interpreter"
        if top in STDLIB or top in ALLOWED:
            return None
        return "foreign_import", f"imports {top}, which is neither allowed nor part of the workspace"


def _within(module: str, names: frozenset[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in names)


def check_imports(tree: ast.AST, names: Names, policy: ImportPolicy) -> Iterator[Found]:
    """Findings for import statements and for run-time imports (`importlib`, `__import__`) in one file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _judged(node.lineno, alias.name, policy)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                # `from urllib import request` binds a module that `import urllib` alone does not name
                found = list(_judged(node.lineno, node.module, policy)) or list(
                    _judged(node.lineno, f"{node.module}.{alias.name}", policy)
                )
                yield from found[:1]
            if any(alias.name == "*" for alias in node.names) and node.module.split(".")[0] not in policy.local:
                yield node.lineno, "dynamic_code", f"star import of {node.module} hides what is used"
        elif isinstance(node, ast.Call) and names.dotted(node.func) in IMPORT_CALLS:
            yield from _check_dynamic(node, policy)
        elif isinstance(node, ast.Attribute) and not policy.is_test:
            yield from _check_use(node, names, policy)
        if isinstance(node, ast.ImportFrom) and not policy.is_test:
            yield from _check_taken(node, policy)


def _check_use(node: ast.Attribute, names: Names, policy: ImportPolicy) -> Iterator[Found]:
    """`torch.multiprocessing` after `import torch`: a module that its parent imports is there without a statement."""
    dotted = names.dotted(node)
    if dotted is not None and names.is_module(dotted.split(".")[0]) and dotted in _BELOW_OTHERS | names.reached:
        yield from _judged(node.lineno, dotted, policy)


def _check_taken(node: ast.ImportFrom, policy: ImportPolicy) -> Iterator[Found]:
    """`from logging import os`, `from .build import subprocess`: what another module imported for itself."""
    module = "." * node.level + (node.module or "")
    is_own = not node.module or (node.level == 0 and node.module in policy.local)
    for alias in node.names:
        if alias.name in HOPS and not is_own and f"{module}.{alias.name}" not in NO_HOPS:
            yield node.lineno, "dynamic_code", f"takes {alias.name} from {module}, which imported it for itself"
            yield from _judged(node.lineno, alias.name, policy)


def _check_dynamic(node: ast.Call, policy: ImportPolicy) -> Iterator[Found]:
    target = node.args[0] if node.args else next((item.value for item in node.keywords if item.arg == "name"), None)
    name = fold(target)
    if name is None or isinstance(target, ast.JoinedStr):
        if not policy.is_test:
            yield node.lineno, "dynamic_code", "imports a module whose name is computed"
        return
    yield from _judged(node.lineno, name, policy)


def _judged(line: int, module: str, policy: ImportPolicy) -> Iterator[Found]:
    verdict = policy.judge(module)
    if verdict is not None:
        yield line, *verdict
