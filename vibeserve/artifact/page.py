"""`vibeserve report PATH`: render an artifact's page again, or print its verdict."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.arguments import VerbParser, new_file
from vibeserve.artifact.manifest import read_manifest
from vibeserve.artifact.open import read_golden_seeds, resolve_artifact
from vibeserve.artifact.rendering import PAGE, page_of
from vibeserve.core.documents import write_text_atomic
from vibeserve.report import render_verdict


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve report`."""
    parser = VerbParser("report", description="Render an artifact's report.html again, from its manifest.")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/<target>/latest")
    parser.add_argument(
        "--output",
        type=new_file,
        metavar="FILE",
        help="where to write it (default: <plan_id>.report.html beside the artifact)",
    )
    parser.add_argument(
        "--verdict", action="store_true", dest="is_verdict", help="print VERDICT.md, rendered again, instead"
    )
    arguments = parser.parse_args(argv)
    artifact = resolve_artifact(Path(arguments.path))
    if arguments.is_verdict:
        return _print_verdict(artifact, is_json=arguments.is_json)
    written = write_report(artifact, output=Path(arguments.output) if arguments.output else None)
    if arguments.is_json:
        sys.stdout.write(json.dumps({"schema_version": 1, "report": str(written)}) + "\n")
    else:
        sys.stdout.write(f"{written}\n")
    return 0


def _print_verdict(artifact: Path, *, is_json: bool) -> int:
    text = render_verdict(read_manifest(artifact), seeds=read_golden_seeds(artifact))
    sys.stdout.write(json.dumps({"schema_version": 1, "verdict": text}) + "\n" if is_json else text)
    return 0


def write_report(artifact: Path, *, output: Path | None = None) -> Path:
    """Render the page; returns where it is.

    An artifact's own files never change, so a page that would differ from the packaged one (another version of the
    template) is written beside the artifact.
    """
    page = page_of(artifact, read_manifest(artifact))
    packaged = artifact / PAGE
    if output is None and packaged.is_file() and packaged.read_text(encoding="utf-8") == page:
        return packaged
    destination = output or artifact.parent / f"{artifact.name}.{PAGE}"
    write_text_atomic(destination, page)
    return destination
