"""The front of `vibeserve`. It answers --help and --version before anything is imported, and dispatches the rest."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's own) and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["--version"]:
        from vibeserve import __version__

        sys.stdout.write(f"vibeserve {__version__}\n")
        return 0
    if arguments[:1] in (["-h"], ["--help"]):
        from vibeserve.cli.table import usage

        sys.stdout.write(usage())
        return 0
    from vibeserve.cli.boundary import within_boundary

    return within_boundary(_dispatch, arguments)


def _dispatch(arguments: list[str]) -> int:
    from vibeserve.cli.table import VERBS

    first = arguments[0] if arguments else ""
    for name, entry, _ in VERBS:
        if first == name:
            return _load(entry)(arguments[1:])
    if first and first[0] not in "+~-" and "=" not in first:
        from vibeserve.cli.output import unknown_verb_error

        raise unknown_verb_error(first)
    from vibeserve.cli.building import main as build

    return build(arguments)


def _load(entry: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    module, _, function = entry.partition(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), function)
    return command


if __name__ == "__main__":
    sys.exit(main())
