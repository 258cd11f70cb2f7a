"""The static scan: every file of a workspace against the rules, before anything of it runs.

It reads and never imports. It refuses what is plain to see and what hides from being read; the sandbox and the gates on
the served replies hold against what it cannot see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from vibeserve.audit import calls, files, native, policy
from vibeserve.audit.caches import check_caches
from vibeserve.audit.findings import Finding
from vibeserve.audit.imports import ImportPolicy, check_imports
from vibeserve.audit.manifest import check_service_file
from vibeserve.audit.names import Names
from vibeserve.audit.own_tests import check_own_tests
from vibeserve.audit.texts import check_texts
from vibeserve.core.nouns import Refusal
from vibeserve.core.paths import data_dir

BUILD_STEP = "runtime/build.py"
"""The one module that may call a compiler and write files (below build/)."""

Found = tuple[int, str, str]


def scan_workspace(workspace: Path, *, allow_engines: Sequence[str]) -> list[Refusal]:
    """Every refusal of the static scan, one per file, line and reason class, sorted by place.

    `workspace` is the folder with `service.yaml` and `runtime/`; its `build/` is not read: it is rebuilt from what is.
    `allow_engines` are the target's declared engines (module names).
    """
    engines = frozenset(allow_engines)
    findings: dict[tuple[str, int, str], Finding] = {}
    for finding in _all_findings(workspace, engines):
        findings.setdefault((finding.file, finding.line, finding.reason_class), finding)
    return [finding.refusal() for finding in sorted(findings.values())]


def _all_findings(workspace: Path, engines: frozenset[str]) -> Iterator[Finding]:
    local = frozenset(
        path.stem if path.suffix == ".py" else path.name
        for path in workspace.iterdir()
        if path.is_dir() or path.suffix == ".py"
    )
    for name, found in files.check_shadowing(workspace):
        yield _finding(name, found)
    total = 0
    for path in files.walk(workspace):
        relative = path.relative_to(workspace).as_posix()
        entry = list(files.check_entry(path, workspace))
        yield from (_finding(relative, found) for found in entry)
        if entry or not path.is_file():
            continue
        total += path.stat().st_size
        text = files.read_source(path)
        if text is None:
            yield _finding(relative, (0, "blob", "is not UTF-8 text"))
            continue
        for found in _check_content(path, relative, text, local, engines):
            yield _finding(relative, found)
    if total > policy.MAX_TREE_BYTES:
        yield _finding(".", (0, "blob", f"the workspace has {total} bytes (at most {policy.MAX_TREE_BYTES})"))


def _finding(file: str, found: Found) -> Finding:
    line, reason_class, what = found
    return Finding(file=file, line=line, reason_class=reason_class, what=what)


def _check_content(
    path: Path, relative: str, text: str, local: frozenset[str], engines: frozenset[str]
) -> Iterator[Found]:
    if _is_shipped(relative, text):
        return
    if path.suffix == ".py":
        yield from _check_python(relative, text, local, engines)
    elif path.suffix in native.NATIVE_SUFFIXES:
        yield from native.check_native(text)
    elif path.suffix in native.SHELL_SUFFIXES or path.name in native.SHELL_NAMES or text.startswith("#!"):
        yield from native.check_shell(text)
    elif relative == "requirements.lock":
        yield from native.check_lock(text, allow_engines=engines)
    elif relative == "service.yaml":
        yield from check_service_file(text)


def _is_shipped(relative: str, text: str) -> bool:
    """Whether it is a module of a shipped component that may do what no candidate's own may, unchanged."""
    source = policy.SHIPPED.get(relative)
    return source is not None and text == (data_dir("skills") / source).read_text(encoding="utf-8")


def _check_python(relative: str, text: str, local: frozenset[str], engines: frozenset[str]) -> Iterator[Found]:
    yield from files.check_encoding(text)
    try:
        tree = ast.parse(text, filename=relative)
    except (SyntaxError, ValueError) as error:
        yield getattr(error, "lineno", 0) or 0, "syntax", f"does not parse: {error}"
        return
    names = Names(tree)
    is_build, is_test = relative == BUILD_STEP, relative.startswith("tests/")
    rules = ImportPolicy(local=local, allow_engines=engines, may_spawn=is_build, is_test=is_test)
    yield from check_imports(tree, names, rules)
    if is_test:
        yield from check_own_tests(tree, names)
        return
    context = calls.FileContext(depth=relative.count("/"), may_write=is_build, may_spawn=is_build)
    yield from calls.check_code(tree, names, context)
    yield from check_texts(tree, names, rules)
    yield from check_caches(tree, names)
