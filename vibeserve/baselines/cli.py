"""`vibeserve peers list` and `vibeserve peers install NAME`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Run the verb; returns the exit status. Errors of the tree are the caller's to show."""
    parser = argparse.ArgumentParser(prog="vibeserve peers", description="Servers that runtimes are measured against.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|install")
    listing = verbs.add_parser("list", help="every peer, its version here, or how to install it")
    listing.add_argument("--json", action="store_true", help="as one JSON list")
    installing = verbs.add_parser("install", help="build a peer's pinned environment below the cache")
    installing.add_argument("name", help="a peer with an environment of its own")
    arguments = parser.parse_args(list(argv))
    if arguments.verb == "install":
        return _install(arguments.name)
    rows = _rows()
    sys.stdout.write(json.dumps(rows, indent=2) + "\n" if arguments.json else _table(rows))
    return 0


def _install(name: str) -> int:
    from vibeserve.baselines.installs import install

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    record = install(name, log=say)
    sys.stdout.write(f"{record.name} {record.version} is installed ({len(record.packages)} packages)\n")
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
