"""One refused command: what lies in the repository, what is typed, what is answered; and the runner."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from vibeserve import spec as spec_module
from vibeserve.cli.main import main
from vibeserve.cli.table import VERBS
from vibeserve.config.targets import GROUPS, group_options, target_names
from vibeserve.core.nouns import METRICS
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware.cores import format_cpus

GOOD = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""
"""a correct target; what is added begins in line 7"""

LINK = "link:"
"""content of a symbolic link, before what it points to"""
FOLDER = "folder"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`files` maps a path to its text, its bytes, `link:TARGET` or `folder`. What is answered is in `TEXTS`."""

    id: str
    argv: tuple[str, ...] = ("plan", "t")
    files: dict[str, str | bytes] = field(default_factory=dict, hash=False)
    cwd: str = "."


@dataclass(frozen=True, kw_only=True)
class Outcome:
    code: int
    out: str
    err: str
    root: Path
    is_unchanged: bool
    sites: frozenset[tuple[str, int]]
    """(file, line) of every SpecError that was made"""


def body(text: str) -> dict[str, str | bytes]:
    """A repository whose target `t` is the correct one and `text`."""
    return {"targets/t.yaml": GOOD + text}


def target(text: str | bytes) -> dict[str, str | bytes]:
    return {"targets/t.yaml": text}


@cache
def outcome_of(case: Case) -> Outcome:
    """Run the command in a repository of its own; each case runs once a session."""
    with tempfile.TemporaryDirectory(prefix="errors-") as folder:
        root = Path(folder).resolve() / "repository"
        root.mkdir()
        (root / ".git").mkdir()
        for name, content in case.files.items():
            place(root / name, content)
        before = snapshot(root)
        out, err = io.StringIO(), io.StringIO()
        with made_errors() as sites, contextlib.chdir(root / case.cwd):
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(case.argv))
        is_unchanged = snapshot(root) == before
    return Outcome(
        code=code, out=out.getvalue(), err=err.getvalue(), root=root, is_unchanged=is_unchanged, sites=frozenset(sites)
    )


def place(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if content == FOLDER:
        path.mkdir()
    elif isinstance(content, str) and content.startswith(LINK):
        path.symlink_to(content.removeprefix(LINK))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8", newline="")


def snapshot(root: Path) -> dict[str, object]:
    """Path -> what it is, for everything below `root`."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else FOLDER
    return found


@contextlib.contextmanager
def made_errors() -> Iterator[set[tuple[str, int]]]:
    """Where SpecErrors are made inside the block."""
    sites: set[tuple[str, int]] = set()
    before = SpecError.__init__

    def recording(self: SpecError, *arguments: Any, **named: Any) -> None:
        frame = sys._getframe(1)
        sites.add((frame.f_code.co_filename, frame.f_lineno))
        before(self, *arguments, **named)

    SpecError.__init__ = recording  # type: ignore[method-assign]
    try:
        yield sites
    finally:
        SpecError.__init__ = before  # type: ignore[method-assign]


TEXTS = Path(__file__).parent / "error_texts.txt"
"""the whole of stderr by case: `=== id`, then the text, in which `<name>` stands for what `placeholders` holds"""


@lru_cache(maxsize=1)
def expected_texts() -> dict[str, str]:
    sections = TEXTS.read_text(encoding="utf-8").split("=== ")[1:]
    return {id: text for id, _, text in (section.partition("\n") for section in sections)}


def expanded(text: str, root: Path) -> str:
    for name, value in placeholders().items():
        text = text.replace(f"<{name}>", value)
    return text.replace("<root>", str(root))


@lru_cache(maxsize=1)
def placeholders() -> dict[str, str]:
    """What grows with the product: options of a group (`<model>`), fields of a class (`<Budget>`), targets, verbs."""
    empty = Path("/")
    names = {group: ", ".join(options) for group, options in group_options(empty).items()}
    for name, item in vars(spec_module).items():
        if isinstance(item, type) and is_dataclass(item):
            names[name] = ", ".join(sorted(each.name for each in fields(item)))
    names["verbs"] = ", ".join(sorted(name for name, _, _ in VERBS))
    names["metrics"] = ", ".join(METRICS)
    cpus = sorted(os.sched_getaffinity(0))
    names["num_cpus"], names["cpus"] = str(len(cpus)), format_cpus(tuple(cpus))
    names["package"] = str(data_dir("conf").parent)
    names["groups"] = ", ".join(sorted(GROUPS))
    names["targets"] = ", ".join(target_names(empty))
    names["Model and defaults"] = ", ".join(sorted(["defaults", *names["Model"].split(", ")]))
    names["model and own"] = ", ".join(sorted(["own", *names["model"].split(", ")]))
    return names
