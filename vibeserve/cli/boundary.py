"""The one error boundary: typed errors become a message and an exit code, bugs keep their traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from vibeserve.cli.storage import storage_error
from vibeserve.errors import VibeServeError

INTERRUPTED = 130


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
    """The error as data: class, exit code, message, and for specs the problems and the next step."""
    return {
        "schema_version": 1,
        "error": {
            "class": type(error).__name__,
            "exit_code": error.exit_code,
            "message": str(error),
            "problems": list(getattr(error, "problems", ())),
            "next": getattr(error, "hint", ""),
        },
    }
