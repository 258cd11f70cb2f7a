"""Requests of people to a run: numbered files in its folder `control/`, whole or not there, never changed or removed.

Only the run's owner journals; a request is what anybody else can do. The journal says which ones were handled.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.core.documents import from_data, write_document

CONTROL = "control"
"""folder of a run, beside its journal"""
FILE_NAME = re.compile(r"(\d{6})\.json")
LOCK = ".lock"
MAX_BYTES = 256 * 1024
UNREADABLE = "unreadable"
"""command of a file that holds no request"""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Document: what somebody asks of the run."""

    schema_version: int = 1
    number: int
    command: str
    """of `shapes.SHAPES`"""
    arguments: dict[str, Any]
    who: str
    """person, or person and a name"""
    at_s: float
    """seconds since the epoch"""


def submit(folder: Path, *, command: str, arguments: dict[str, Any], who: str, taken: Collection[int] = ()) -> Request:
    """Put a request into `folder` under the next free number; two at once get two numbers.

    `taken`: numbers that the journal knows, should their files be gone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        number = max([0, *numbers(folder), *taken]) + 1
        request = Request(number=number, command=command, arguments=arguments, who=who, at_s=time.time())
        write_document(path_of(folder, number), request)
        return request
    finally:
        os.close(descriptor)


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def numbers(folder: Path) -> list[int]:
    """Of every request in `folder`, in order. A name that is no request's is none."""
    if not folder.is_dir():
        return []
    matches = (FILE_NAME.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def waiting(folder: Path, *, handled: Collection[int]) -> list[tuple[Request, str]]:
    """Requests that the journal does not know yet, in order, each with its fault: a file that holds no request is one
    with the command `UNREADABLE`, and its fault says why."""
    return [_read(folder, number) for number in numbers(folder) if number not in handled]


def _read(folder: Path, number: int) -> tuple[Request, str]:
    try:
        request = _parse(path_of(folder, number))
        if request.number != number:
            raise ValueError(f"it says that it is number {request.number}")
    except (OSError, ValueError) as error:
        nobody = Request(number=number, command=UNREADABLE, arguments={}, who="unknown", at_s=time.time())
        return nobody, f"it is no request: {error}"
    return request, ""


def _parse(path: Path) -> Request:
    """ValueError for a file that is not whole, not of this version, or too large."""
    from dacite import DaciteError

    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes")
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("schema_version") != Request.schema_version:
        version = data.get("schema_version") if isinstance(data, dict) else None
        raise ValueError(f"schema_version {version} is not known here (known: {Request.schema_version})")
    try:
        return from_data(Request, data)
    except DaciteError as error:
        raise ValueError(str(error)) from error
