"""Editing tasks of the user's own: CodeEditorBench's code-debug JSONL, or any file of its shape.

A line is an object with `incorrect_solutions` (the code to be edited); `code_language`, `public_tests_input` and
`public_tests_output` are used where they are there, everything else is ignored. The file is not shipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from vibeserve.contract import Pool

MAX_SHOWN = 20
"""faults that are listed; the rest are counted"""
CODE = "incorrect_solutions"
TEXTS = ("code_language", "public_tests_input", "public_tests_output")


@dataclass(frozen=True, kw_only=True)
class EditTask:
    """One piece of code and what is wrong with it."""

    code: str
    language: str
    tests: str
    """an input and its output; empty where the line has none"""

    @property
    def instruction(self) -> str:
        told = f"Correct the errors in this {self.language} code.".replace("  ", " ")
        return f"{told} It has to pass this test:\n{self.tests}" if self.tests else told


def edit_task_problems(path: Path) -> list[str]:
    """Every fault of the file, each with its place; a long list is cut."""
    if not path.is_file():
        return [f"workload.edit_tasks: no file {path}"]
    problems = _read(path)[1]
    left_out = len(problems) - MAX_SHOWN
    return list(problems) if left_out <= 0 else [*problems[:MAX_SHOWN], f"and {left_out} more"]


@lru_cache(maxsize=6)
def edit_tasks(path: Path, pool: Pool) -> tuple[EditTask, ...]:
    """The pool's tasks, in the file's order. Equal code is in one pool, by its digest."""
    order = tuple(Pool)
    tasks = _read(path)[0]
    return tuple(task for task in tasks if order[_number(task.code) % len(order)] is pool)


def _number(code: str) -> int:
    return int(sha256(code.encode()).hexdigest(), 16)


def _read(path: Path) -> tuple[tuple[EditTask, ...], tuple[str, ...]]:
    status = path.stat()
    return _read_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _read_version(path: Path, mtime_ns: int, size: int) -> tuple[tuple[EditTask, ...], tuple[str, ...]]:
    """Tasks and faults; the arguments beside the path are what makes a changed file another one."""
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        return (), (f"{path.name}: not UTF-8 text: {error.reason} at byte {error.start}",)
    tasks, problems = [], []
    for number, row in enumerate(rows, start=1):
        if row.strip():
            try:
                tasks.append(_parse(row))
            except ValueError as error:
                problems.append(f"{path.name}:{number}: {error}")
    if not tasks and not problems:
        problems.append(f"{path.name}: holds no task")
    return tuple(tasks), tuple(problems)


def _parse(row: str) -> EditTask:
    try:
        data = json.loads(row)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")
    code = data.get(CODE)
    if not isinstance(code, str) or not code.strip():
        raise ValueError(f"{CODE}: expected code that is not empty")
    faults = list(_wrong_texts(data))
    if faults:
        raise ValueError(faults[0])
    language, given, wanted = (data.get(name) or "" for name in TEXTS)
    tests = f"Input: {given}\nOutput: {wanted}" if given or wanted else ""
    return EditTask(code=code.replace("\r\n", "\n"), language=language, tests=tests)


def _wrong_texts(data: dict[str, Any]) -> Iterator[str]:
    for name in TEXTS:
        value = data.get(name)
        if value is not None and not isinstance(value, str):
            yield f"{name}: expected text, got {json.dumps(value)[:40]}"
