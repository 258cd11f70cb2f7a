"""Every place of the package that makes a SpecError, found in its source."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from vibeserve import errors

PACKAGE = Path(errors.__file__).resolve().parent
CLASSES = {name for name, item in vars(errors).items() if isinstance(item, type) and issubclass(item, errors.SpecError)}


@dataclass(frozen=True, kw_only=True)
class Site:
    """One call of SpecError or of a class below it."""

    file: str
    """relative to the package"""
    function: str
    number: int
    """of the calls in that function, from 1"""
    first_line: int
    last_line: int

    @property
    def name(self) -> str:
        """What the table of justifications calls it; lines move, this does not."""
        return f"{self.file}:{self.function}" + (f"#{self.number}" if self.number > 1 else "")

    def holds(self, file: str, line: int) -> bool:
        return Path(file) == PACKAGE / self.file and self.first_line <= line <= self.last_line


def all_sites() -> list[Site]:
    return [site for path in sorted(PACKAGE.rglob("*.py")) for site in sites_of(path)]


def sites_of(path: Path) -> list[Site]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        name = getattr(node, "name", "") if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
        for child in ast.iter_child_nodes(node):
            owners[child] = ".".join(part for part in (owners.get(node, ""), name) if part)
    found: list[Site] = []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) in CLASSES]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        function = owners.get(call, "")
        number = sum(site.function == function for site in found) + 1
        file = path.relative_to(PACKAGE).as_posix()
        last = call.end_lineno or call.lineno
        found.append(Site(file=file, function=function, number=number, first_line=call.lineno, last_line=last))
    return found


def called(node: ast.Call) -> str:
    function = node.func
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
