"""`vibeserve report PATH`: render an artifact's page again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.arguments import VerbParser
from vibeserve.artifact.manifest import read_manifest
from vibeserve.artifact.open import resolve_artifact
from vibeserve.core.documents import write_text_atomic
from vibeserve.report.page import render_report

PAGE = "report.html"


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve report`."""
    parser = VerbParser("report", description="Render an artifact's report.html again, from its manifest.")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/<target>/latest")
    parser.add_argument(
        "--output", metavar="FILE", help="where to write it (default: <plan_id>.report.html beside the artifact)"
    )
    arguments = parser.parse_args(argv)
    artifact = resolve_artifact(Path(arguments.path))
    written = write_report(artifact, output=Path(arguments.output) if arguments.output else None)
    if arguments.is_json:
        sys.stdout.write(json.dumps({"schema_version": 1, "report": str(written)}) + "\n")
    else:
        sys.stdout.write(f"{written}\n")
    return 0


def write_report(artifact: Path, *, output: Path | None = None) -> Path:
    """Render the page; returns where it is.

    An artifact's own files never change, so a page that would differ from the packaged one (another version of the
    template) is written beside the artifact.
    """
    page = render_report(read_manifest(artifact))
    packaged = artifact / PAGE
    if output is None and packaged.is_file() and packaged.read_text(encoding="utf-8") == page:
        return packaged
    destination = output or artifact.parent / f"{artifact.name}.{PAGE}"
    write_text_atomic(destination, page)
    return destination
