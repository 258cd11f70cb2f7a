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
from vibeserve.config.targets import project_root
from vibeserve.core.documents import write_text_atomic
from vibeserve.errors import SpecError

MIN_ARTIFACTS = 2


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve compare`."""
    parser = VerbParser("compare", description="Artifacts side by side, each beside its own baselines.")
    parser.add_argument("artifact", nargs="+", metavar="ARTIFACT", help="a path, TARGET (its latest), TARGET/PLAN_ID")
    parser.add_argument(
        "--artifacts", metavar="DIR", help="where TARGET is looked up (default: the repository's artifacts/)"
    )
    parser.add_argument("--csv", action="store_true", dest="is_csv", help="a line per artifact, metric and baseline")
    parser.add_argument("--html", type=new_file, metavar="FILE", help="write a page that loads nothing")
    arguments = parser.parse_args(argv)
    if arguments.is_json + arguments.is_csv + bool(arguments.html) > 1:
        raise SpecError("compare: one of --json, --csv and --html", hint="vibeserve compare --help")
    if len(arguments.artifact) < MIN_ARTIFACTS:
        raise SpecError("compare: name two artifacts or more", hint="vibeserve compare TARGET TARGET/PLAN_ID")
    root = Path(arguments.artifacts) if arguments.artifacts else _artifacts_folder()
    comparison = compare(read_artifacts(arguments.artifact, root=root))
    if arguments.html:
        write_text_atomic(Path(arguments.html), as_html(comparison))
        text = f"{arguments.html}\n"
    elif arguments.is_json:
        text = json.dumps(as_data(comparison), indent=2) + "\n"
    else:
        text = as_csv(comparison) if arguments.is_csv else as_text(comparison)
    sys.stdout.write(text)
    return 0


def _artifacts_folder() -> Path:
    """Relative where it lies in the working directory, as messages show it."""
    folder = project_root() / "artifacts"
    return folder.relative_to(Path.cwd()) if folder.parent == Path.cwd().resolve() else folder
