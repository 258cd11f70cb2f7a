"""Activation evidence: did the new path really run? Answered from what the framework's profiler saw, never from what
the candidate counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.nouns import Activation, ActivationState
from vibeserve.profiles.documents import Profile, Structure

QUOTED = re.compile(r"`([^`\n]{2,120})`")
CODE_WORD = re.compile(
    r"(?<![\w/.])(?:[\w.-]+/)*[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)+"  # a.b, a::b, folder/file.py
    r"|(?<![\w.])[A-Za-z]\w*_\w*"  # snake_case
    r"|(?<![\w.])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\w*"  # CamelCase
    r"|(?<![\w.])[A-Za-z_]\w*(?=\()"  # call(
)
NATIVE_FUNCTION = re.compile(
    r"\b([A-Za-z_]\w{1,80})[ \t]{0,4}\([^;{}]{0,400}?\)\s{0,20}(?:const\s{0,20})?(?:noexcept\s{0,20})?\{"
)
"""bounded throughout: a candidate writes what it is matched against"""
NATIVE_SUFFIXES = (".cpp", ".cc", ".h", ".hpp", ".cu")
NOT_FUNCTIONS = frozenset(("if", "for", "while", "switch", "catch", "return", "sizeof"))
MAX_NAMES = 12
MIN_PART_CHARS = 4
"""of a symbol's part: shorter ones are in every library"""


@dataclass(frozen=True)
class Definition:
    """Something in the candidate's sources that a text may name. `name` is empty for the module itself."""

    file: str
    name: str
    is_native: bool = False


def check_activation(
    evidence: str, *, profile: Profile | None, workspace: Path, changed: Collection[str] = (),
    before: Profile | None = None,
) -> Activation:  # fmt: skip
    """Whether what `evidence` names was seen to run.

    `changed`: files of the workspace that differ from the incumbent's. A function of a file that did not change, and a
    library's symbol that ran in the incumbent (`before`) as well, says nothing of the new path. A module counts as seen
    by any of its functions.
    """
    if profile is None or profile.is_own_word:
        return _uncheckable("no profiler of the framework's looked; the server's own counters are no evidence")
    structure = profile.structure
    if not structure.functions and not structure.symbols:
        return _uncheckable("the profiler saw no function of the runtime")
    named = list(dict.fromkeys(_named(evidence, workspace=workspace, structure=structure)))[:MAX_NAMES]
    if not named:
        return _uncheckable("the evidence names no function, module or symbol of the candidate")
    new = [each for each in named if _is_new(each, changed=changed, before=before)]
    if not new:
        told = ", ".join(_told(each) for each in named)
        return _uncheckable(f"{told}: the same code as in the incumbent, so that it runs says nothing of the change")
    return _compared(new, profile)


def _compared(named: Sequence[Definition], profile: Profile) -> Activation:
    seen = tuple(_told(each) for each in named if was_seen(each, profile.structure))
    unseen = tuple(_told(each) for each in named if not was_seen(each, profile.structure))
    state = ActivationState.SEEN if seen else ActivationState.NOT_SEEN
    where = f"in {profile.num_samples} samples of stacks and {profile.num_native_samples} of native code"
    parts = [f"seen {where}: {', '.join(seen)}"] if seen else []
    parts += [f"not seen {where}: {', '.join(unseen)}"] if unseen else []
    return Activation(state=state, text="; ".join(parts), seen=seen, unseen=unseen)


def _uncheckable(why: str) -> Activation:
    return Activation(state=ActivationState.NOT_CHECKABLE, text=why)


def names_in(text: str) -> list[str]:
    """What of a text may be the name of code: quoted in backticks, or written as no English word is."""
    quoted = [part for group in QUOTED.findall(text) for part in re.split(r"[\s,()]+", group)]
    return list(dict.fromkeys(name.strip(".:") for name in (*quoted, *CODE_WORD.findall(text)) if name.strip(".:")))


def _named(text: str, *, workspace: Path, structure: Structure) -> Iterator[Definition]:
    known = definitions_of(workspace)
    for name in names_in(text):
        found = [each for each in known if _is_meant(name, each)]
        yield from found
        is_part = not found and len(name) >= MIN_PART_CHARS and "/" not in name
        if is_part and any(_in_symbol(name, symbol.name) for symbol in structure.symbols):
            yield Definition(file="", name=name, is_native=True)


def _is_meant(name: str, definition: Definition) -> bool:
    plain = name.replace("::", ".")
    if not definition.name:
        path = definition.file
        stem = Path(path).stem
        return plain in (path, path.removeprefix("runtime/"), Path(path).name, stem, f"runtime.{stem}")
    own = definition.name
    module = Path(definition.file).stem
    return own == plain or own.endswith(f".{plain}") or plain in (f"{module}.{own}", f"{definition.file}:{own}")


def definitions_of(workspace: Path) -> list[Definition]:
    """Modules, classes' methods and functions of the runtime's Python, and functions of its native sources."""
    found: list[Definition] = []
    for path in sorted((workspace / "runtime").rglob("*")):
        file = path.relative_to(workspace).as_posix()
        if path.is_symlink() or not path.is_file():
            continue
        if path.suffix == ".py":
            found += [Definition(file, ""), *(Definition(file, name) for name in _python_names(path))]
        elif path.suffix in NATIVE_SUFFIXES:
            text = path.read_text(encoding="utf-8", errors="replace")
            names = dict.fromkeys(name for name in NATIVE_FUNCTION.findall(text) if name not in NOT_FUNCTIONS)
            found += [Definition(file, name, is_native=True) for name in names]
    return found


def _python_names(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # a file that no interpreter reads runs nowhere
    pending: list[tuple[str, ast.AST]] = [("", node) for node in tree.body]
    while pending:
        prefix, node = pending.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}"
            pending += [(f"{prefix}{node.name}.", each) for each in node.body]


def _is_new(definition: Definition, *, changed: Collection[str], before: Profile | None) -> bool:
    if definition.file:
        return definition.file in changed
    return before is None or not was_seen(definition, before.structure)


def was_seen(definition: Definition, structure: Structure) -> bool:
    if definition.is_native:
        return any(_in_symbol(definition.name, symbol.name) for symbol in structure.symbols)
    ran = [text.partition(":")[2] for text in structure.functions if text.partition(":")[0] == definition.file]
    if not definition.name:
        return any(name != "<module>" for name in ran)
    return any(name == definition.name or name.startswith(f"{definition.name}.") for name in ran)


def _in_symbol(name: str, symbol: str) -> bool:
    """As a whole word of it, or a part between underscores: `sgemm` of `mkl_blas_def_sgemm_kernel_0`."""
    plain = re.escape(name.replace(".", "::"))
    return re.search(rf"(?<![A-Za-z0-9]){plain}(?![A-Za-z0-9])", symbol) is not None


def _told(definition: Definition) -> str:
    if not definition.name:
        return definition.file
    return f"{definition.file}:{definition.name}" if definition.file else definition.name


def changed_files(patch: str) -> frozenset[str]:
    """Files that a patch of git touches."""
    lines = [line for line in patch.splitlines() if line.startswith("diff --git ")]
    return frozenset(line.rpartition(" b/")[2] for line in lines)
