"""Code in notes that is run or compiled: fenced blocks whose first line says so.

    ```python run              a program of its own, in a process of its own; it must hold an assert
    ```cpp run -O2             compiled with g++ -std=c++17 and these flags, and run
    ```cpp compile -mamx-bf16  compiled alone: this machine need not have the instructions
    ```cuda compile sm_90      compiled by NVRTC for each named architecture; no GPU is needed

A block in one of these languages without such a word is a fault: what stands in a note is run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vibeserve.skills.loader import Skill, split_front_matter

NOTES = "SKILL.md"
REFERENCES = "references"
VERBS: dict[str, tuple[str, ...]] = {"python": ("run",), "cpp": ("run", "compile"), "cuda": ("compile",)}
ALIASES = {"py": "python", "c++": "cpp", "cu": "cuda"}
TIMEOUT_S = 60.0
COMPILER = ("g++", "-std=c++17")
CHECKS = {"python": "assert", "cpp": "return"}
"""what a block that is run has to hold: a snippet that cannot fail says nothing"""
MAX_TAIL_CHARS = 400
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """One block. `line` is that of its first fence in `path`."""

    path: Path
    line: int
    language: str
    verb: str
    options: tuple[str, ...]
    source: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What became of a snippet. `state`: passed, failed, or skipped where a compiler is not installed."""

    snippet: Snippet
    state: str
    text: str = ""


def note_files(skill: Skill) -> list[Path]:
    """The notes of a skill: SKILL.md and what lies in references/."""
    return [skill.path / NOTES, *sorted((skill.path / REFERENCES).rglob("*.md"))]


def find_snippets(skill: Skill) -> tuple[list[Snippet], list[str]]:
    """Blocks that are run or compiled, and what is wrong with blocks that should be."""
    found: list[Snippet] = []
    problems: list[str] = []
    for path in note_files(skill):
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            words = match[1].split()
            language = ALIASES.get(words[0].lower(), words[0].lower()) if words else ""
            if language not in VERBS:
                continue
            verb = words[1] if len(words) > 1 else ""
            snippet = Snippet(
                path=path, line=line, language=language, verb=verb, options=tuple(words[2:]), source=match[2]
            )
            faults = list(_faults(snippet))
            problems += faults
            found += [] if faults else [snippet]
    return found, problems


def _faults(snippet: Snippet) -> Iterator[str]:
    valid = ", ".join(f"`{snippet.language} {verb}`" for verb in VERBS[snippet.language])
    if snippet.verb not in VERBS[snippet.language]:
        yield f"{snippet.place}: a {snippet.language} block that nothing runs; valid: {valid}, or no language at all"
    elif snippet.verb == "run" and CHECKS[snippet.language] not in snippet.source:
        yield f"{snippet.place}: a snippet that cannot fail; it must hold '{CHECKS[snippet.language]}'"
    elif snippet.language == "cuda" and not snippet.options:
        yield f"{snippet.place}: names no architecture, such as `cuda compile sm_90`"


def body_of(skill: Skill) -> str:
    """SKILL.md without its front matter."""
    return split_front_matter((skill.path / NOTES).read_text(encoding="utf-8"))[1]


def run_snippet(snippet: Snippet) -> Ran:
    """Run or compile one block in a scratch folder."""
    with tempfile.TemporaryDirectory(prefix="vibeserve-snippet-") as scratch:
        if snippet.language == "python":
            return _run_python(snippet, Path(scratch))
        return _run_cpp(snippet, Path(scratch)) if snippet.language == "cpp" else _compile_cuda(snippet)


def _run_python(snippet: Snippet, scratch: Path) -> Ran:
    program = scratch / "snippet.py"
    program.write_text(snippet.source, encoding="utf-8")
    return _run(snippet, [sys.executable, "-I", str(program)], scratch)


def _run_cpp(snippet: Snippet, scratch: Path) -> Ran:
    if shutil.which(COMPILER[0]) is None:
        return Ran(snippet=snippet, state="skipped", text=f"{COMPILER[0]} is not installed")
    program = scratch / "snippet.cpp"
    program.write_text(snippet.source, encoding="utf-8")
    ends = ["-o", "snippet"] if snippet.verb == "run" else ["-c", "-o", "snippet.o"]
    compiled = _run(snippet, [*COMPILER, *snippet.options, str(program), *ends], scratch)
    if compiled.state != "passed" or snippet.verb == "compile":
        return compiled
    return _run(snippet, [str(scratch / "snippet")], scratch)


def _run(snippet: Snippet, command: list[str], scratch: Path) -> Ran:
    keep = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "LANG") if name in os.environ}
    env = {**keep, "HOME": str(scratch), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=scratch, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Ran(snippet=snippet, state="failed", text=f"took more than {TIMEOUT_S:g} s")
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()
        return Ran(snippet=snippet, state="failed", text=" | ".join(lines[-4:])[-MAX_TAIL_CHARS:])
    return Ran(snippet=snippet, state="passed")


def _compile_cuda(snippet: Snippet) -> Ran:
    from vibeserve.skills.nvrtc import NvrtcAbsentError, compile_problem

    for architecture in snippet.options:
        try:
            problem = compile_problem(snippet.source, architecture=architecture)
        except NvrtcAbsentError as error:
            return Ran(snippet=snippet, state="skipped", text=str(error))
        if problem:
            return Ran(snippet=snippet, state="failed", text=f"{architecture}: {problem[-MAX_TAIL_CHARS:]}")
    return Ran(snippet=snippet, state="passed")
