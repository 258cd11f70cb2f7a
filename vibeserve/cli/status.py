"""`vibeserve status`: how far the runs of this repository are."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json
from vibeserve.cli.runs import find_any_run
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.status import RunStatus

LOOK_S = 1.0


def main(argv: Sequence[str]) -> int:
    """Print every run in a few lines, one run whole, or watch one."""
    parser = VerbParser("status", description="How far the runs of this repository are; RUN: everything about one.")
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="its name, its target's, or a beginning")
    parser.add_argument(
        "--dir", metavar="DIR", help="project folder (default: the repository's root, else the working directory)"
    )
    parser.add_argument("--watch", action="store_true", dest="is_watched", help="keep it on the terminal, live")
    arguments = parser.parse_args(argv)
    project = _project(arguments.dir)
    if arguments.is_watched:
        return _watch(arguments.run, project=project, is_json=arguments.is_json)
    statuses = _statuses(arguments.run, project=project)
    if arguments.is_json:
        write_json(_document(statuses))
    elif arguments.run:
        _write_page(statuses[0])
    else:
        _write_list(statuses, project=project)
    return 0


def _statuses(name: str, *, project: Path) -> list[RunStatus]:
    from vibeserve.core.paths import state_dir
    from vibeserve.status import read_status, run_statuses

    state = state_dir(project)
    if not name:
        return run_statuses(state)
    return [read_status(find_any_run("status", name, project=project).folder, state=state)]


def _document(statuses: Sequence[RunStatus]) -> object:
    from vibeserve.core.documents import from_data
    from vibeserve.core.paths import lease_dir
    from vibeserve.lease import lease_rows
    from vibeserve.status import LeaseRow, StatusDocument

    leases = tuple(from_data(LeaseRow, row) for row in lease_rows(lease_dir()))
    return StatusDocument(runs=tuple(statuses), leases=leases)


def _write_page(status: RunStatus) -> None:
    from vibeserve.status import page_lines

    for line in page_lines(status, now_s=time.time()):
        write(line)


def _write_list(statuses: Sequence[RunStatus], *, project: Path) -> None:
    from vibeserve.core.paths import lease_dir, state_dir
    from vibeserve.lease import lease_lines
    from vibeserve.status import brief_lines

    lines = [line for status in statuses for line in brief_lines(status, now_s=time.time())]
    lines += lease_lines(lease_dir())
    for line in lines or [f"no run in {state_dir(project)}; start one with `vibeserve +target=NAME`"]:
        write(line)


def _watch(name: str, *, project: Path, is_json: bool) -> int:
    """Until the run is finished, or somebody interrupts."""
    from vibeserve.core.paths import state_dir
    from vibeserve.progress import LiveProgress
    from vibeserve.status import RunState
    from vibeserve.status.live import Watching

    if is_json or not sys.stdout.isatty():
        what = "--watch draws on a terminal" if not is_json else "--watch and --json do not go together"
        raise SpecError(f"status: {what}", hint="vibeserve status RUN --json, as often as you like")
    folder = find_any_run("status", name, project=project).folder
    watching = Watching(find=lambda: folder, state=state_dir(project))
    with LiveProgress(view=watching).shown():
        while (status := watching.look()) is None or status.state is not RunState.FINISHED:
            time.sleep(LOOK_S)
    _write_page(status)
    return 0


def _project(declared: str | None) -> Path:
    """As declared; found in the same way as a run finds it; relative where that is the working directory."""
    from vibeserve.config.targets import project_root

    if declared is None:
        root = project_root()
        return Path() if root == Path.cwd() else root
    if not Path(declared).is_dir():
        why = "a file, no folder" if Path(declared).exists() else "no such folder"
        raise SpecError(f"status: --dir {declared}: {why}", hint="name the folder that holds .vibeserve")
    return Path(declared)
