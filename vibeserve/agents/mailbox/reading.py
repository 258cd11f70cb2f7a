"""Reading a result.json that anybody may have written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from vibeserve.agents.mailbox.documents import MailboxResult
from vibeserve.core.documents import from_data

MAX_RESULT_BYTES = 4 * 1024 * 1024


class BrokenResult(Exception):
    """A result.json that cannot be taken, and why."""

    def __init__(self, why: str, *, is_partial: bool = False) -> None:
        self.is_partial = is_partial
        """it may be one that is being written"""
        super().__init__(why)


def read_plain(path: Path) -> bytes:
    """A file that anybody may have put there: no link is followed, no named pipe waited for.

    BrokenResult where it is no plain file of a size that is taken.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        raise BrokenResult(f"it cannot be read: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BrokenResult("it is no plain file")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(MAX_RESULT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_RESULT_BYTES:
        raise BrokenResult(f"it has more than {MAX_RESULT_BYTES} bytes")
    return data


def parsed_result(data: bytes) -> MailboxResult:
    """The document `data`, its output not looked at. BrokenResult where it is none."""
    from dacite import DaciteError

    try:
        document = parse_json(data)
    except ValueError as error:
        hint = "write it under another name in this folder, then rename it to result.json"
        raise BrokenResult(f"it is not JSON: {error}; {hint}", is_partial=True) from None
    try:
        result = from_data(MailboxResult, document)
    except (DaciteError, TypeError, AttributeError) as error:
        raise BrokenResult(f"it does not fit docs/schemas/mailbox-result.json: {error}") from None
    if result.schema_version != 1:
        raise BrokenResult(f"schema_version: {result.schema_version} is not known; valid: 1")
    return result


def parse_json(data: bytes) -> Any:
    """Strict JSON in UTF-8. ValueError says where it is none."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
