"""Which run of a project a verb is about, and who carries it out."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.journal import Event
    from vibeserve.lease import Owner

PACKAGED, SYNTHESIZED, OPENED = "packaged", "synthesized", "opened"
"""events of a run's journal: it left its artifact, its search is over, it began"""
MAX_NAME_CHARS = 60


@dataclass(frozen=True, kw_only=True)
class RunHere:
    """One run with its journal as it is now."""

    name: str
    folder: Path
    events: Sequence[Event]
    owner: Owner | None
    """None where no living process carries it out"""
    fault: str = ""
    """of a journal that is damaged; it then has no events here"""

    def has(self, kind: str) -> bool:
        return any(event.kind == kind for event in self.events)

    @property
    def is_finished(self) -> bool:
        """It left its artifact."""
        return self.has(PACKAGED)

    @property
    def target(self) -> str:
        return str(self._opened.get("target", "NAME"))

    @property
    def command(self) -> str:
        """What goes on with it, to be named in a sentence."""
        words = self._opened.get("overrides")
        if not isinstance(words, list):
            return f"`vibeserve +target={self.target}` and its overrides"
        return f"`{shlex.join(['vibeserve', f'+target={self.target}', *map(str, words)])}`"

    @property
    def _opened(self) -> dict[str, Any]:
        opened = next((event.data for event in self.events if event.kind == OPENED), None)
        return opened if isinstance(opened, dict) else {}

    @property
    def last_round(self) -> int:
        return max(0, sum(event.kind == "round" for event in self.events) - 1)


def split_run(verb: str, argv: Sequence[str], actions: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """(run or empty, action, what follows) of `[RUN] ACTION ...`."""
    before, words = options_first(argv)
    for position in (0, 1):
        if len(words) > position and words[position] in actions:
            return words[0] if position else "", words[position], [*before, *words[position + 1 :]]
    about = "; ".join(f"{name}: {text}" for name, text in actions.items())
    parser = VerbParser(verb, description=f"Of a run: {about}.")
    parser.add_argument("run", nargs="?", metavar="RUN", help="as `vibeserve status` names it, or its target")
    parser.add_argument("action", choices=tuple(actions), help="each has --help")
    add_common(parser)
    parser.parse_args([*before, *words])
    return parser.error("the action comes first, or after RUN")


def options_first(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What every action takes, where it stands before RUN and ACTION, and the rest."""
    words, before = list(argv), []
    while words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        is_whole = words[0] == "--json" or "=" in words[0]
        before += [words.pop(0)] if is_whole else [words.pop(0), *words[:1]]
        words = words if is_whole else words[1:]
    return before, words


def add_common(parser: VerbParser) -> None:
    """What every action takes."""
    parser.add_argument("--dir", type=Path, metavar="DIR", help="project folder (default: as `vibeserve status`)")


def add_author(parser: VerbParser) -> None:
    parser.add_argument("--by", default="", metavar="NAME", help="who asks, in free text; kept with the run")


def author(arguments: argparse.Namespace) -> str:
    """`person`, or `person ada`."""
    from vibeserve.planning import PERSON

    name = "".join(letter for letter in str(arguments.by) if letter.isprintable())
    return " ".join([PERSON, *name[:MAX_NAME_CHARS].split()])


def find_run(verb: str, name: str, *, project: Path | None) -> RunHere:
    """The run that `name` means: its folder's name, its target's, or the beginning of either; without a name the only
    one that a process carries out, else the only one that is not finished. SpecError lists the runs, JournalError says
    that the journal of the one that is meant is damaged."""
    from vibeserve.journal import JournalError

    run = find_any_run(verb, name, project=project)
    if run.fault:
        raise JournalError(run.fault)
    return run


def find_any_run(verb: str, name: str, *, project: Path | None) -> RunHere:
    """The same, damaged or not."""
    from vibeserve.config.targets import project_root
    from vibeserve.core.paths import state_dir

    if project is not None and not project.is_dir():
        raise SpecError(f"{verb}: --dir {project}: no such folder", hint="name the folder that holds .vibeserve")
    root = state_dir(project or project_root()) / "runs"
    found = [_read(path) for path in sorted(root.glob("*/journal.jsonl"))]
    short = name.removeprefix("runs/")
    named = [run for run in found if run.name == short] or [run for run in found if run.name.startswith(short)]
    chosen = [run for run in named if run.owner] or [run for run in named if not run.is_finished] or named
    if len(chosen) == 1:
        return chosen[0]
    problems = [f"runs: {', '.join(run.name for run in found)}"] if found else [f"there is none in {root}"]
    if name and not named:
        raise SpecError(f"{verb}: no run '{name}' here", problems=problems, hint="vibeserve status")
    what = f"'{name}' means {len(chosen)} runs" if name and found else "which run?" if found else "no run here"
    raise SpecError(f"{verb}: {what}", problems=problems, hint=f"vibeserve {verb} RUN ..., as `vibeserve status` says")


def _read(path: Path) -> RunHere:
    from vibeserve.journal import JournalError, read_events
    from vibeserve.lease import living_owner

    folder, fault = path.parent, ""
    events: Sequence[Event] = ()
    try:
        events = read_events(path)
    except JournalError as error:
        fault = str(error)
    return RunHere(name=folder.name, folder=folder, events=events, owner=living_owner(folder), fault=fault)
