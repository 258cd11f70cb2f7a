"""Rule on a runtime's own tests: they may use any tool, but not decide how the test run ends.

Own tests run in one process with what they test, and their status is what the judge reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vibeserve.audit.names import Names

Found = tuple[int, str, str]
_ENDS = frozenset(
    {"os._exit", "os.abort", "os.kill", "sys.exit", "exit", "quit", "SystemExit", "atexit.register"}
    | {"os.execv", "os.execve", "os.execvp", "os.execl", "os.execlp", "_pytest.outcomes.Exit"}
)
_HOOK = "pytest_"


def check_own_tests(tree: ast.AST, names: Names) -> Iterator[Found]:
    """Findings of class `exit_status` in one file below tests/."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(_HOOK):
            yield node.lineno, "exit_status", f"{node.name} is a hook of pytest: it can rewrite outcomes"
        elif isinstance(node, ast.Call) and names.dotted(node.func) == "pytest.exit":
            # by itself it is a failure, with a status it may be anything
            statuses = [*node.args[1:], *(item.value for item in node.keywords if item.arg == "returncode")]
            if not all(isinstance(each, ast.Constant) and each.value for each in statuses):
                yield node.lineno, "exit_status", "pytest.exit with a status that may be 0"
        elif isinstance(node, ast.Attribute | ast.Name):
            dotted = names.dotted(node)
            if dotted in _ENDS:
                yield node.lineno, "exit_status", f"{dotted} ends the test run with a status of its own"
            elif isinstance(node, ast.Attribute) and node.attr.startswith(_HOOK):
                yield node.lineno, "exit_status", f"{node.attr} is a hook of pytest"
