"""Rules on names that are not written down where they are used: `getattr` and its like, a module's `__dict__`, a
module that is reached through another one or kept where its uses cannot be followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from vibeserve.audit import forbidden
from vibeserve.audit.names import Names, fold
from vibeserve.audit.policy import HOPS, NO_HOPS

Found = tuple[int, str, str]
_REACHES = frozenset(
    {
        "getattr", "setattr", "delattr", "__import__", "operator.attrgetter", "operator.methodcaller",
        "importlib.import_module", "importlib.__import__", "pkgutil.resolve_name",
    }
)  # fmt: skip
_GETTERS = frozenset({"operator.attrgetter", "operator.methodcaller"})
_OWN_WORDS = frozenset({"signal", "socket"})
"""hops that a module of the workspace may well call something of its own"""
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


def check_hops(node: ast.Attribute, names: Names) -> Iterator[Found]:
    """`logging.os`, `build.subprocess`: what another module imported for itself."""
    written = names.written(node)
    if written is None or node.attr not in HOPS:
        return
    is_relative = isinstance(node.value, ast.Name) and node.value.id in names.relative
    is_known = names.is_module(written.split(".")[0]) or (is_relative and node.attr not in _OWN_WORDS)
    if is_known and written not in NO_HOPS:
        yield node.lineno, "dynamic_code", f"reaches {node.attr} through {written.removesuffix('.' + node.attr)}"


def check_kept(node: ast.Name, parents: Mapping[int, ast.AST], names: Names) -> Iterator[Found]:
    """A module in a list, an attribute or an argument: what is taken from it there is not written down."""
    dotted = names.dotted(node)
    if dotted not in forbidden.REFLECTED_MODULES or not names.is_module(dotted) or not isinstance(node.ctx, ast.Load):
        return
    parent = parents.get(id(node))
    outer = parents.get(id(parent)) if isinstance(parent, ast.Tuple) else parent
    if isinstance(parent, ast.Attribute | ast.arguments | ast.Compare) or _is_alias(outer):
        return
    if isinstance(parent, ast.Call) and names.dotted(parent.func) in ("getattr", "setattr", "delattr", "hasattr"):
        return
    yield node.lineno, "dynamic_code", f"hands the module {dotted} on, so that what is used of it is not written down"


def _is_alias(node: ast.AST | None) -> bool:
    """`o = os` and `a, b = os, 1`, which are followed."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    flat = [part for each in targets for part in (each.elts if isinstance(each, ast.Tuple | ast.List) else [each])]
    return all(isinstance(each, ast.Name) for each in flat)


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
