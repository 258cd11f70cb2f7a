"""`vibeserve compare A B ...`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vibeserve.arguments import VerbParser, new_file
from vibeserve.comparison.artifacts import read_artifacts
from vibeserve.comparison.render import as_csv, as_data, as_html, as_text
from vibeserve.comparison.tables import compare
from vibeserve.core.documents import write_text_atomic
from vibeserve.errors import SpecError

MIN_ARTIFACTS = 2


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve compare`."""
    parser = VerbParser("compare", description="Artifacts side by side, each beside its own baselines.")
    parser.add_argument("artifact", nargs="+", metavar="ARTIFACT", help="a path, TARGET (its latest), TARGET/PLAN_ID")
    parser.add_argument("--artifacts", default="artifacts", metavar="DIR", help="where TARGET is looked up")
    parser.add_argument("--csv", action="store_true", dest="is_csv", help="a line per artifact, metric and baseline")
    parser.add_argument("--html", type=new_file, metavar="FILE", help="write a page that loads nothing")
    arguments = parser.parse_args(argv)
    if arguments.is_json + arguments.is_csv + bool(arguments.html) > 1:
        raise SpecError("compare: one of --json, --csv and --html", hint="vibeserve compare --help")
    if len(arguments.artifact) < MIN_ARTIFACTS:
        raise SpecError("compare: name two artifacts or more", hint="vibeserve compare TARGET TARGET/PLAN_ID")
    comparison = compare(read_artifacts(arguments.artifact, root=Path(arguments.artifacts)))
    if arguments.html:
        write_text_atomic(Path(arguments.html), as_html(comparison))
        text = f"{arguments.html}\n"
    elif arguments.is_json:
        text = json.dumps(as_data(comparison), indent=2) + "\n"
    else:
        text = as_csv(comparison) if arguments.is_csv else as_text(comparison)
    sys.stdout.write(text)
    return 0
