"""The one error boundary: typed errors become a message and an exit code, bugs keep their traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vibeserve.cli.storage import storage_error
from vibeserve.errors import VibeServeError

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class ErrorFacts:
    """What went wrong."""

    error_class: str
    exit_code: int
    message: str
    problems: tuple[str, ...]
    """of a spec: every fault that was found"""
    next: str
    """the next step; empty where there is none to name"""


@dataclass(frozen=True, kw_only=True)
class ErrorDocument:
    """Document: what a verb with --json prints instead of its own, and a build as its last line."""

    schema_version: int = 1
    kind: Literal["error"] = "error"
    error: ErrorFacts


def within_boundary(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """Exit code of `command(argv)`. Messages go to stderr; with --json the error is a document on stdout as well."""
    try:
        return command(argv)
    except VibeServeError as error:
        return _told(error, argv)
    except KeyboardInterrupt:
        sys.stderr.write(f"vibeserve: interrupted\n{_after_interrupt(argv)}")
        return INTERRUPTED
    except BrokenPipeError:
        # the reader went away (`| head`); what the interpreter flushes at exit must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        known = storage_error(error)
        if known is None:
            raise
        return _told(known, argv)


def _told(error: VibeServeError, argv: list[str]) -> int:
    sys.stderr.write(f"vibeserve: {error}\n")
    if "--json" in argv:
        import json

        # one line: a build with --json prints a document per line
        sys.stdout.write(json.dumps(error_document(error)) + "\n")
    return error.exit_code


def _after_interrupt(argv: list[str]) -> str:
    is_build = any(word.startswith("+target=") for word in argv)
    return "next: start the same command again; finished steps and rounds are kept\n" if is_build else ""


def error_document(error: VibeServeError) -> dict[str, object]:
    """The error as data (`ErrorDocument`)."""
    facts = ErrorFacts(
        error_class=type(error).__name__, exit_code=error.exit_code, message=str(error),
        problems=tuple(getattr(error, "problems", ())), next=getattr(error, "hint", ""),
    )  # fmt: skip
    data = {"class" if name == "error_class" else name: value for name, value in vars(facts).items()}
    document = ErrorDocument(error=facts)
    return {"schema_version": document.schema_version, "kind": document.kind, "error": data}
