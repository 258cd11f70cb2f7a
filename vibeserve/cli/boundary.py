"""The one error boundary: typed errors become a message and an exit code, bugs keep their traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from vibeserve.errors import VibeServeError

INTERRUPTED = 130


def within_boundary(command: Callable[[list[str]], int], argv: list[str]) -> int:
    """Exit code of `command(argv)`. Messages go to stderr; with --json the error is a document on stdout as well."""
    try:
        return command(argv)
    except VibeServeError as error:
        sys.stderr.write(f"vibeserve: {error}\n")
        if "--json" in argv:
            import json

            # one line: a build with --json prints a document per line
            sys.stdout.write(json.dumps(error_document(error)) + "\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("vibeserve: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # the reader went away (`| head`); what the interpreter flushes at exit must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


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
