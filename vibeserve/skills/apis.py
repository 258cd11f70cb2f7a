"""Freshness: what a note says of libraries, held against those that are installed.

Names are resolved in a child process, because that imports the libraries. A name is one that `uses` of `applies.yaml`
lists, or that stands in backticks in the notes and begins with a library of `ROOTS`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vibeserve.errors import InfraError
from vibeserve.skills.loader import Skill
from vibeserve.skills.snippets import FENCE, note_files

ROOTS = (
    "torch", "numpy", "transformers", "tokenizers", "safetensors", "gguf", "llguidance", "starlette", "uvicorn",
    "openai", "jinja2",
)  # fmt: skip
"""libraries whose names in running text are checked; all are dependencies of this package"""
INLINE = re.compile(r"`((?:" + "|".join(ROOTS) + r")(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`")
TIMEOUT_S = 120.0
RESOLVE = """\
import contextlib, importlib, json, sys
def resolve(name):
    parts = name.split(".")
    try:
        value = importlib.import_module(parts[0])
    except ImportError as error:
        return f"{parts[0]} is not installed ({error})"
    for number, part in enumerate(parts[1:], start=1):
        try:
            value = getattr(value, part)
        except (AttributeError, RuntimeError):
            try:
                value = importlib.import_module(".".join(parts[: number + 1]))
            except ImportError:
                return f"{'.'.join(parts[:number])} has no '{part}'"
    return ""
with contextlib.redirect_stdout(sys.stderr):
    found = {name: resolve(name) for name in json.load(sys.stdin)}
json.dump(found, sys.stdout)
"""
"""a library may print when it is imported: that is kept out of the answer"""


@dataclass(frozen=True, kw_only=True)
class Named:
    """Names of libraries that one skill relies on, by the place that states them."""

    skill: Skill
    places: Mapping[str, str]
    """dotted name -> file, with the line in a note"""


def named_in(skill: Skill) -> Named:
    """Every name of a library that a skill states."""
    places: dict[str, str] = {}
    for path in note_files(skill):
        text = FENCE.sub(_blanked, path.read_text(encoding="utf-8"))
        for match in INLINE.finditer(text):
            places.setdefault(match[1], f"{path}:{text.count(chr(10), 0, match.start()) + 1}")
    for name in skill.applies.uses if skill.applies is not None else ():
        places.setdefault(name, f"{skill.path / 'applies.yaml'}: uses")
    return Named(skill=skill, places=places)


def absent_names(names: Iterable[str]) -> dict[str, str]:
    """Why each name that does not exist does not; InfraError where the child process fails."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE], input=json.dumps(wanted), capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise InfraError(f"names of libraries could not be resolved: {done.stderr.strip()[-400:]}")
    return {name: problem for name, problem in json.loads(done.stdout).items() if problem}


def name_problems(named: Sequence[Named]) -> list[str]:
    """One line for each name that does not exist in what is installed."""
    absent = absent_names(name for each in named for name in each.places)
    return [
        f"{place}: `{name}`: {absent[name]}"
        for each in named
        for name, place in each.places.items()
        if name in absent
    ]


def version_problems(skill: Skill) -> list[str]:
    """Where the installed version of a library is not one that the note was checked with."""
    from importlib import metadata

    from packaging.specifiers import SpecifierSet

    problems = []
    for name, text in (skill.applies.versions if skill.applies is not None else {}).items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{skill.path / 'applies.yaml'}: versions: {name} is not installed")
            continue
        if not SpecifierSet(text).contains(installed, prereleases=True):
            problems.append(
                f"{skill.path / 'applies.yaml'}: versions: checked with {name} {text}, installed is {installed}; "
                "read the note again, then widen the range"
            )
    return problems


def _blanked(match: re.Match[str]) -> str:
    """As many lines with nothing on them: code blocks are run, and lines keep their numbers."""
    return "\n" * match[0].count("\n")
