"""The documents of a mailbox: what is asked, what is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

STATES = ("open", "done", "withdrawn", "expired")


@dataclass(frozen=True, kw_only=True)
class MailboxRequest:
    """What is asked of whoever plays a role: `request.json` in the folder of its key. Only the run writes it."""

    key: str
    """session key, once in a run; the name of the folder"""
    role: str
    """planner, implementer, judge or evaluator"""
    tries: int
    """how often something has been asked under this key, from 1; a result names the try that it answers"""
    state: str
    """open: a result is waited for; done: one was taken; withdrawn, expired: none is taken any more"""
    made_at: str
    """ISO 8601, UTC"""
    deadline_at: str
    """ISO 8601, UTC; a result that comes later is not taken"""
    prompt_file: str = "prompt.md"
    """beside this file"""
    workspace: str
    """folder to work in, a copy of the run's own"""
    is_writable: bool
    """true: the files of the workspace, as they are when the result is there, belong to the answer"""
    read_only: list[str] = field(default_factory=list)
    """folders and files to read beside the workspace"""
    output_schema: dict[str, Any] = field(default_factory=dict)
    """JSON Schema (draft 2020-12) of the result's output"""
    feedback: str = ""
    """why the output of the try before was refused; empty on the first try"""
    why: str = ""
    """of a state that is neither open nor done"""
    refused: str = ""
    """why the newest result.json of this try was set aside; empty where none was"""
    digest: str
    """of everything that is asked; the same request of a later process has the same"""
    base_digest: str
    """of the tree that the workspace began as"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class MailboxResult:
    """The answer to one try: `result.json` beside the request. `vibeserve inbox submit` writes it; any other tool
    writes it under another name in the same folder and renames it."""

    key: str
    """of the request"""
    tries: int
    """the try that this answers"""
    output: Any
    """what the request's output_schema describes"""
    by: str = ""
    """who answers, in free text; it is kept with the run"""
    note: str = ""
    """free text that is kept with the run"""
    tree_digest: str = ""
    """of the workspace's files when `inbox submit` looked at them; empty: they are taken as they are"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class BaseTree:
    """Document `base.json`: relative path -> SHA-256 of the tree that the workspace began as."""

    files: dict[str, str]
    schema_version: int = 1


def utc_text(seconds: float) -> str:
    """ISO 8601 of seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def seconds_of(text: str) -> float:
    """Seconds since the epoch of what `utc_text` wrote."""
    return datetime.fromisoformat(text).timestamp()
