"""`vibeserve peers list` and `vibeserve peers install NAME`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from vibeserve.arguments import VerbParser


def main(argv: Sequence[str]) -> int:
    """Run the verb; returns the exit status. Errors of the tree are the caller's to show."""
    parser = VerbParser("peers", description="Servers that runtimes are measured against.")
    parser.add_argument("verb", choices=("list", "install"), help="list every peer, or build one's pinned environment")
    parser.add_argument("name", nargs="?", metavar="NAME", help="install: a peer with an environment of its own")
    arguments = parser.parse_args(list(argv))
    if (arguments.verb == "install") != (arguments.name is not None):
        parser.error("install needs a NAME" if arguments.verb == "install" else f"list takes no '{arguments.name}'")
    if arguments.verb == "install":
        return _install(arguments.name, is_json=arguments.is_json)
    rows = _rows()
    sys.stdout.write(json.dumps(rows, indent=2) + "\n" if arguments.is_json else _table(rows))
    return 0


def _install(name: str, *, is_json: bool) -> int:
    from vibeserve.baselines.installs import install

    # with --json stdout is one document
    stream = sys.stderr if is_json else sys.stdout

    def say(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    record = install(name, log=say)
    told = f"{record.name} {record.version} is installed ({len(record.packages)} packages)"
    document = {"schema_version": 1, "name": record.name, "version": record.version, "packages": record.packages}
    sys.stdout.write((json.dumps(document, indent=2) if is_json else told) + "\n")
    return 0


def _rows() -> list[dict[str, str | None]]:
    from vibeserve.baselines.registry import PEERS

    return [
        {
            "name": peer.name,
            "title": peer.title,
            "class": peer.baseline_class.value,
            "precision": peer.precision.value,
            "version": peer.installed_version(),
            "install": peer.install_command,
        }
        for peer in PEERS.values()
    ]


def _table(rows: list[dict[str, str | None]]) -> str:
    lines = [("name", "class", "precision", "version"), *_cells(rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    return "".join(
        "  ".join([*(line[column].ljust(widths[column]) for column in range(3)), line[3]]) + "\n" for line in lines
    )


def _cells(rows: list[dict[str, str | None]]) -> list[tuple[str, str, str, str]]:
    return [
        (str(row["name"]), str(row["class"]), str(row["precision"]), row["version"] or f"absent: {row['install']}")
        for row in rows
    ]
