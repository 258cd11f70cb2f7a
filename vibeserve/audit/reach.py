"""Rules on names that are not written down where they are used: `getattr` and its like, a module's `__dict__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vibeserve.audit import forbidden
from vibeserve.audit.names import Names, fold

Found = tuple[int, str, str]
_REACHES = frozenset({"getattr", "setattr", "delattr", "__import__", "operator.attrgetter", "operator.methodcaller"})
_GETTERS = frozenset({"operator.attrgetter", "operator.methodcaller"})
_FORBIDDEN_TAILS = frozenset(name.rpartition(".")[2] for name in forbidden.NAMES if "." in name) - {""}


def check_reach(node: ast.Attribute | ast.Name, parent: ast.AST | None, names: Names) -> Iterator[Found]:
    """Ways to a name that is not written down: `getattr` handed on, a module's `__dict__`."""
    dotted = names.dotted(node)
    if isinstance(node, ast.Attribute) and node.attr == "__dict__" and dotted is not None:
        owner = dotted.removesuffix(".__dict__")
        if names.is_module(owner.split(".")[0]):
            yield node.lineno, "dynamic_code", f"reaches into {owner} by {dotted}"
    is_called = isinstance(parent, ast.Call) and parent.func is node
    if dotted in _REACHES and not is_called and isinstance(node.ctx, ast.Load):
        yield node.lineno, "dynamic_code", f"hands {dotted} on, so that what it reaches is not written down"


def check_reflection(node: ast.Call, names: Names) -> Iterator[Found]:
    """Calls of `getattr`, `operator.attrgetter` and their like: their name must be plain, and is then judged."""
    dotted = names.dotted(node.func) or ""
    if dotted in ("getattr", "setattr", "delattr", "hasattr"):
        yield from _check_attribute_call(node, names)
    if dotted in _GETTERS and not all(_is_plain_attribute(argument) for argument in node.args[:1]):
        yield node.lineno, "dynamic_code", f"{dotted} of a name that is computed or forbidden"


def _check_attribute_call(node: ast.Call, names: Names) -> Iterator[Found]:
    if len(node.args) < 2:
        return
    dotted, name = names.dotted(node.args[0]), fold(node.args[1])
    call = names.dotted(node.func)
    if dotted is None:
        return
    if (
        call in ("setattr", "delattr")
        and dotted.split(".")[0] in forbidden.PATCH_TARGETS
        and names.is_module(dotted.split(".")[0])
    ):
        yield node.lineno, forbidden.PATCH_TARGETS[dotted.split(".")[0]], f"{call} changes {dotted}"
        return
    if name is None and dotted in forbidden.REFLECTED_MODULES and names.is_module(dotted):
        yield node.lineno, "dynamic_code", f"{call} with a computed name on {dotted}"
    elif name is not None:
        hit = forbidden.NAMES.get(f"{dotted}.{name}") or forbidden.ATTRIBUTES.get(name)
        if hit is not None:
            yield node.lineno, hit[0], f"{dotted}.{name} {hit[1]}"


def _is_plain_attribute(argument: ast.expr) -> bool:
    """Whether `operator.attrgetter(argument)` reaches what a program may name anyway."""
    name = fold(argument)
    parts = (name or "").split(".")
    return (
        name is not None
        and not _FORBIDDEN_TAILS & set(parts)
        and not any(part in forbidden.ATTRIBUTES for part in parts)
    )
