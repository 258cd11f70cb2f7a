"""Resolving names and constants in a syntax tree, without running anything."""

from __future__ import annotations

import ast

from vibeserve.audit.policy import HOPS, NO_HOPS

NUM_ALIAS_PASSES = 3
"""assignments of assignments that are followed; nobody honest renames a module twice"""


class Names:
    """What the imports of one file bind: `import os as o` makes `o.environ` resolve to `os.environ`, and so does
    `o = os` anywhere in the file."""

    def __init__(self, tree: ast.AST) -> None:
        self.bound: dict[str, str] = {}
        self.modules: set[str] = set()
        """what `import` names: modules for certain"""
        self.relative: set[str] = set()
        """names that stand for something of the workspace, imported from `.`"""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    self.bound[alias.asname or top] = alias.name if alias.asname else top
                    self.modules |= {alias.name, top}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    self.bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif isinstance(node, ast.ImportFrom):
                self.relative |= {alias.asname or alias.name for alias in node.names}
        self.reached: set[str] = set()
        """modules that are named only through others: `os` of `logging.os`"""
        self.reached = self._reached(tree)
        for _ in range(NUM_ALIAS_PASSES):
            self._follow_assignments(tree)

    def _reached(self, tree: ast.AST) -> set[str]:
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        names = [self._own_name(name) for name in (*map(self.written, attributes), *self.bound.values()) if name]
        return {name.split(".")[0] for name in names} & HOPS

    def _follow_assignments(self, tree: ast.AST) -> None:
        """Names that stand for something imported, or for a built-in that reaches names at run time."""
        for node in ast.walk(tree):
            if isinstance(node, ast.NamedExpr | ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                pairs = [pair for target in targets for pair in _pairs(target, node.value)]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                pairs = _defaults(node.args)
            else:
                continue
            for name, value in pairs:
                dotted = self.dotted(value) if value is not None else None
                if dotted is not None and dotted != name and self._is_followed(dotted):
                    self.bound.setdefault(name, dotted)

    def _is_followed(self, dotted: str) -> bool:
        root = dotted.split(".")[0]
        return dotted in _REACHING or self.is_module(root)

    def dotted(self, node: ast.AST) -> str | None:
        """Full dotted name of a name or attribute chain, or None when its root is an expression.

        A module that is reached through another one has its own name: `logging.os.system` is `os.system`.
        """
        written = self.written(node)
        return written if written is None or "." not in written else self._own_name(written)

    def _own_name(self, written: str) -> str:
        parts = written.split(".")
        if not self.is_module(parts[0]):
            return written
        for place in range(len(parts) - 1, 0, -1):
            if parts[place] in HOPS and ".".join(parts[: place + 1]) not in NO_HOPS:
                return ".".join(parts[place:])
        return written

    def written(self, node: ast.AST) -> str | None:
        """The dotted name as it is written, with the file's imports put in for its root."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.bound.get(node.id, node.id), *reversed(parts)])

    def is_module(self, name: str) -> bool:
        """Whether `name` is the root of something imported, or of what that imports."""
        return name in self.reached or any(
            target == name or target.startswith(name + ".") for target in self.bound.values()
        )


_REACHING = frozenset({"getattr", "setattr", "delattr", "__import__"})


def _pairs(target: ast.expr, value: ast.expr | None) -> list[tuple[str, ast.expr | None]]:
    """(name, value) of `a = v` and of `a, b = v, w`."""
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        both = zip(target.elts, value.elts, strict=False)
        return [(left.id, right) for left, right in both if isinstance(left, ast.Name)]
    return []


def _defaults(arguments: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """(name, default) of parameters: `def f(o=os)`."""
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(plain), reversed(arguments.defaults), strict=False))
    pairs += [(name, value) for name, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
    return [(name.arg, value) for name, value in pairs]


def fold(node: ast.AST | None) -> str | None:
    """The string a constant expression evaluates to: literals, `+`, f-strings of literals, `"".join([...])`, bytes.

    An f-string with values in it folds to its literal head, so that a path's root is still seen.
    """
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            return node.value
        return node.value.decode("latin-1") if isinstance(node.value, bytes) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = fold(node.left), fold(node.right)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.JoinedStr):
        head = ""
        for value in node.values:
            text = fold(value.value if isinstance(value, ast.FormattedValue) else value)
            if text is None:
                break
            head += text
        return head
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _fold_method(node)
    return None


def _fold_method(node: ast.Call) -> str | None:
    assert isinstance(node.func, ast.Attribute)
    base = fold(node.func.value)
    if base is None:
        return None
    if node.func.attr == "join" and len(node.args) == 1 and isinstance(node.args[0], ast.List | ast.Tuple):
        parts = [fold(item) for item in node.args[0].elts]
        return base.join(part for part in parts if part is not None) if None not in parts else None
    if node.func.attr in ("decode", "encode", "lower", "upper", "strip", "format"):
        return base.lower() if node.func.attr == "lower" else base
    if node.func.attr == "replace" and len(node.args) == 2:
        old, new = fold(node.args[0]), fold(node.args[1])
        return base.replace(old, new) if old is not None and new is not None else None
    return None


def docstrings(tree: ast.AST) -> set[int]:
    """`id` of every docstring node and bare string statement: text for people, which runs nothing."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.add(id(node.value))
    return found
