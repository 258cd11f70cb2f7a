"""Rules on code that is named by a text: templates, import strings of libraries, settings that are resolved as names.

A text is nothing to the other rules; these libraries turn one into a module, a function or a look-up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vibeserve.audit import policy
from vibeserve.audit.imports import ImportPolicy
from vibeserve.audit.names import Names, fold

Found = tuple[int, str, str]
_SERVERS = frozenset({"uvicorn.run", "uvicorn.Config", "uvicorn.config.Config", "uvicorn.main.run"})
_RESOLVED = frozenset({"loop", "http", "ws", "lifespan"})
"""settings of uvicorn that are short names, or import strings"""
_OF_TEMPLATES = frozenset({"globals", "filters", "tests"})
_IMPORT_STRING = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def check_texts(tree: ast.AST, names: Names, rules: ImportPolicy) -> Iterator[Found]:
    """Findings in one file of the runtime."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            yield from _check_template_name(node.lineno, names.written(node), names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                yield from _judge_template_name(node.lineno, f"{node.module}.{alias.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in policy.SANDBOX_RULES:
            yield node.lineno, "dynamic_code", f"{node.name} changes what a template may reach"
        elif isinstance(node, ast.Call):
            yield from _check_call(node, names, rules)
        elif isinstance(node, ast.Assign):
            yield from _check_template_values(node, names)
        elif isinstance(node, ast.Dict) and any(fold(key) == "()" for key in node.keys if key is not None):
            yield node.lineno, "dynamic_code", "names a factory by text (the key '()')"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _check_address(node.lineno, node.value)


def _check_template_name(line: int, written: str | None, names: Names) -> Iterator[Found]:
    if written is not None and names.is_module("jinja2"):
        yield from _judge_template_name(line, written)


def _judge_template_name(line: int, written: str) -> Iterator[Found]:
    if not written.startswith("jinja2."):
        return
    is_allowed = any(written == name or written.startswith(name + ".") for name in policy.TEMPLATES)
    if not is_allowed and not any(name.startswith(written + ".") for name in policy.TEMPLATES):
        yield line, "dynamic_code", f"{written} reaches the interpreter from a template; jinja2.sandbox does not"


def _check_call(node: ast.Call, names: Names, rules: ImportPolicy) -> Iterator[Found]:
    dotted = names.dotted(node.func) or ""
    given = {item.arg: item.value for item in node.keywords if item.arg}
    if dotted in _SERVERS:
        yield from _check_server(node, given, rules)
    if "allow_pickle" in given and not _is_false(given["allow_pickle"]):
        yield node.lineno, "dynamic_code", "allow_pickle loads objects that may be code"
    if "extensions" in given and any(fold(item) is not None for item in _items(given["extensions"])):
        yield node.lineno, "dynamic_code", "names a template's extension by text"
    if not isinstance(node.func, ast.Attribute):
        return
    is_update = node.func.attr == "update" and _is_of_templates(node.func.value)
    if is_update or node.func.attr in ("render", "render_async", "generate", "stream"):
        values = [*given.values(), *(value for each in node.args for value in _items(each))]
        yield from (found for value in values for found in _check_handed(value, names, is_any=is_update))
    if node.func.attr == "add_extension" and node.args and fold(node.args[0]) is not None:
        yield node.lineno, "dynamic_code", "names a template's extension by text"


def _check_server(node: ast.Call, given: dict[str, ast.expr], rules: ImportPolicy) -> Iterator[Found]:
    app = node.args[0] if node.args else given.get("app")
    for setting, value in (("app", app), *((name, given.get(name)) for name in sorted(_RESOLVED))):
        text = fold(value)
        if text is not None and (setting == "app" or _IMPORT_STRING.fullmatch(text)):
            verdict = rules.judge(text.partition(":")[0])
            if verdict is not None:
                yield node.lineno, verdict[0], f"uvicorn's {setting} {verdict[1]}"
    for setting in ("workers", "reload"):
        if setting in given and not _is_one_process(given[setting]):
            yield node.lineno, "process", f"uvicorn's {setting} starts other processes"
    if fold(given.get("log_config")) is not None:
        yield node.lineno, "dynamic_code", "uvicorn's log_config names a file of settings, which may name code"


def _check_template_values(node: ast.Assign, names: Names) -> Iterator[Found]:
    if any(isinstance(each, ast.Subscript) and _is_of_templates(each.value) for each in node.targets):
        yield from _check_handed(node.value, names, is_any=True)


def _check_handed(value: ast.expr, names: Names, *, is_any: bool) -> Iterator[Found]:
    """A template calls what it is given. `is_any`: anything imported; else whole modules."""
    dotted = names.dotted(value)
    if dotted is None or not names.is_module(dotted.split(".")[0]):
        return
    if is_any or dotted in names.modules:
        yield value.lineno, "dynamic_code", f"hands {dotted} to templates; write a function of the runtime for it"


def _check_address(line: int, text: str) -> Iterator[Found]:
    if text.startswith(("tcp://", "ext://", "cfg://")):
        what = "an address to connect to" if text.startswith("tcp") else "an object by text"
        yield line, "outbound_connection" if text.startswith("tcp") else "dynamic_code", f"names {what} ({text[:40]!r})"


def _is_of_templates(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _OF_TEMPLATES


def _items(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.Dict):
        return list(node.values)
    return list(node.elts) if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_one_process(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (None, False, 0, 1)
