"""Resolving names and constants in a syntax tree, without running anything."""

from __future__ import annotations

import ast


class Names:
    """What the imports of one file bind: `import os as o` makes `o.environ` resolve to `os.environ`."""

    def __init__(self, tree: ast.AST) -> None:
        self.bound: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    self.bound[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    self.bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def dotted(self, node: ast.AST) -> str | None:
        """Full dotted name of a name or attribute chain, or None when its root is an expression."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        return ".".join([self.bound.get(node.id, node.id), *reversed(parts)])

    def is_module(self, name: str) -> bool:
        """Whether `name` is the root of something imported."""
        return any(target == name or target.startswith(name + ".") for target in self.bound.values())


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
