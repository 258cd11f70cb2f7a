"""Where a command-line agent is installed, and what of the machine it needs to run behind a wall."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from vibeserve.errors import AgentInfraError
from vibeserve.sandbox.layout import interpreter_prefixes, is_system

SEARCH_VARIABLE = "VIBESERVE_AGENT_PATH"
"""folders that are searched before PATH"""
_PACKAGES = "node_modules"


@dataclass(frozen=True, kw_only=True)
class Program:
    """An installed client."""

    argv: tuple[str, ...]
    """how it is started: by its real path, behind its interpreter where it is a script"""
    read_only: tuple[Path, ...]
    """what must be readable beside the system"""
    folders: tuple[Path, ...]
    """for PATH: its interpreter's"""


def find_program(name: str, *, install: str) -> Program:
    """The client called `name`, in the folders of `VIBESERVE_AGENT_PATH` and PATH; `name` may be an absolute path, too.

    Raises AgentInfraError (lasting) with `install`, the command that installs it, where it is not there.
    """
    found = _which(name)
    if found is None:
        raise AgentInfraError(
            f"{name} is not installed: it is in no folder of {SEARCH_VARIABLE} or PATH\nnext: {install}",
            is_lasting=True,
        )
    real = found.resolve()
    interpreter = _interpreter_of(real)
    if interpreter is None:
        return Program(argv=(str(real),), read_only=_files_of(real), folders=())
    words, binary = interpreter
    return Program(
        argv=(*words, str(real)),
        read_only=tuple(dict.fromkeys((*_files_of(real), *_interpreter_files(binary)))),
        folders=() if is_system(binary) else (binary.parent,),
    )


def _which(name: str) -> Path | None:
    search = os.pathsep.join(filter(None, (os.environ.get(SEARCH_VARIABLE, ""), os.environ.get("PATH", os.defpath))))
    found = shutil.which(name, path=search)
    return None if found is None else Path(found).absolute()


def _files_of(real: Path) -> tuple[Path, ...]:
    """The package folder that npm keeps it in, with what it depends on; otherwise the file alone."""
    if is_system(real):
        return ()
    if _PACKAGES in real.parts:
        return (Path(*real.parts[: real.parts.index(_PACKAGES) + 1]),)
    return (real,)


def _interpreter_of(real: Path) -> tuple[list[str], Path] | None:
    """(its command line, its binary) from the first line of a script; None for a binary."""
    with real.open("rb") as stream:
        first = stream.readline(512)
    if not first.startswith(b"#!"):
        return None
    words = shlex.split(first[2:].decode(errors="replace"))
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if word != "-S"]
    found = _which(words[0]) if words else None
    if found is None:
        needed = words[0] if words else "an interpreter"
        raise AgentInfraError(f"{real} needs {needed}, which is not installed\nnext: install {needed}", is_lasting=True)
    # a Python environment is recognised by the path that its interpreter is started with
    return [str(found if _is_python(found) else found.resolve()), *words[1:]], found


def _is_python(binary: Path) -> bool:
    return binary.name.startswith("python")


def _interpreter_files(binary: Path) -> tuple[Path, ...]:
    if _is_python(binary):
        return interpreter_prefixes(binary)
    real = binary.resolve()
    return () if is_system(real) else (real,)
