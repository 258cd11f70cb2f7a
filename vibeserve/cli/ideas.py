"""`vibeserve backlog` and `vibeserve note`: what a run knows, for people to read and to change.

While a process carries the run out it alone writes the journal: an edit is a request to it. Otherwise the verb holds
the run for a moment and journals the edit itself.
"""

from __future__ import annotations

import argparse
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.cli.runs import RunHere, add_author, add_common, author, find_run, split_run
from vibeserve.errors import SpecError

BACKLOG_ACTIONS = {
    "list": "every idea, with what became of it",
    "add": "a new idea, open",
    "park": "believable, but nothing to try now",
    "abandon": "unsuitable, with the mechanism that says why; nothing like it is tried again",
    "reopen": "worth another try",
    "done": "nothing left to do",
}
NOTE_ACTIONS = {
    "list": "every note",
    "add": "a note that the planner reads from its next proposal on",
    "edit": "another text for a note",
    "remove": "forget a note",
}
STATES = ("open", "in_progress", "done", "parked", "abandoned")


def backlog(argv: list[str]) -> int:
    """List the ideas of a run, add one, or move one to another state."""
    name, action, rest = split_run("backlog", argv, BACKLOG_ACTIONS)
    parser = _parser("backlog", action, BACKLOG_ACTIONS[action])
    if action == "list":
        parser.add_argument("--state", choices=STATES, help="those alone")
    elif action == "add":
        parser.add_argument("title", metavar="TITLE")
        parser.add_argument("--mechanism", default="", metavar="TEXT", help="how it works")
        parser.add_argument("--why", default="", metavar="TEXT")
    else:
        parser.add_argument("item", metavar="ITEM", help="as `list` names it")
        parser.add_argument("--why", default="", metavar="TEXT", required=action == "abandon")
    arguments = parser.parse_args(rest)
    run = find_run("backlog", name, project=arguments.dir)
    if action == "list":
        return _list_items(run, arguments)
    fields = ("title", "mechanism", "item", "why")
    requested = {each: text for each in fields if (text := getattr(arguments, each, ""))}
    return _edit(run, "backlog", {"action": action, **requested}, arguments)


def note(argv: list[str]) -> int:
    """List the notes of a run, add, edit or remove one."""
    name, action, rest = split_run("note", argv, NOTE_ACTIONS)
    parser = _parser("note", action, NOTE_ACTIONS[action])
    if action in ("edit", "remove"):
        parser.add_argument("note", metavar="NOTE", help="as `list` names it")
    if action in ("add", "edit"):
        parser.add_argument("text", metavar="TEXT")
    arguments = parser.parse_args(rest)
    run = find_run("note", name, project=arguments.dir)
    if action == "list":
        return _list_notes(run, arguments)
    requested = {each: getattr(arguments, each) for each in ("note", "text") if hasattr(arguments, each)}
    return _edit(run, "note", {"action": action, **requested}, arguments)


def _parser(verb: str, action: str, about: str) -> VerbParser:
    parser = VerbParser(f"{verb} {action}", description=f"{about[0].upper()}{about[1:]}.")
    add_common(parser)
    if action != "list":
        add_author(parser)
    return parser


def _list_items(run: RunHere, arguments: argparse.Namespace) -> int:
    from vibeserve.planning import ItemState, backlog_of

    states = [ItemState(arguments.state)] if arguments.state else []
    items = backlog_of(run.events).of(*states)
    if arguments.is_json:
        rows = [{**vars(item.last), "state": item.state.value, "opened_by": item.opened_by} for item in items]
        write_json({"schema_version": 1, "run": run.name, "items": rows})
    elif not items:
        write(f"no {arguments.state or ''} idea in {run.name}".replace("  ", " "))
    else:
        head = ("item", "state", "round", "by", "title", "why")
        rows_text = [
            (item.id, item.state.value, str(item.last.round), item.last.who, item.title, item.last.why)
            for item in items
        ]  # fmt: skip
        write_table([head, *rows_text])
    return 0


def _list_notes(run: RunHere, arguments: argparse.Namespace) -> int:
    from vibeserve.planning import memory_of

    notes = list(memory_of(run.events).notes.values())
    if arguments.is_json:
        write_json({"schema_version": 1, "run": run.name, "notes": notes})
    elif not notes:
        write(f"no note in {run.name}")
    else:
        head = ("note", "round", "by", "text")
        write_table([head, *((each.note, str(each.round), each.who, each.text) for each in notes)])
    return 0


def _edit(run: RunHere, verb: str, requested: dict[str, Any], arguments: argparse.Namespace) -> int:
    """Ask the owner, or be it for a moment."""
    from vibeserve.control import CONTROL, shape_problem, steering_of, submit, told
    from vibeserve.lease import own_free_run

    if run.is_finished:
        raise SpecError(
            f"{verb}: {run.name} is finished: its journal is part of the artifact",
            hint=f"vibeserve {verb} {run.name} list",
        )
    problem = shape_problem(verb, requested)
    if problem:
        raise SpecError(f"{verb}: it cannot be asked of {run.name}", problems=[problem])
    with own_free_run(run.folder, run=run.name) as is_ours:
        request = submit(
            run.folder / CONTROL, command=verb, arguments=requested, who=author(arguments),
            taken=steering_of(run.events).handled,
        )  # fmt: skip
        effect = _applied(run, request) if is_ours else ""
    if arguments.is_json:
        write_json({
            "schema_version": 1, "run": run.name, "number": request.number, "command": verb, "arguments": requested,
            "state": "applied" if is_ours else "waiting", "effect": effect,
        })  # fmt: skip
    elif is_ours:
        write(f"{effect}; nobody carries {run.name} out now, so it was written to its journal here")
    else:
        write(f"request {request.number} to {run.name}: {told(verb, requested)}")
        write("who carries the run out takes it in at its next safe point; `vibeserve steer list` says how")
    return 0


def _applied(run: RunHere, request: Any) -> str:
    """Carry the edit out and journal it. SpecError where it is refused, which is journalled, too."""
    from vibeserve.control import Phase, Site, Steering
    from vibeserve.journal import Journal
    from vibeserve.spec import Spec

    with Journal.open(run.folder / "journal.jsonl") as journal:
        steering = Steering(journal, spec=Spec())
        done = steering.handle(request, Site(phase=Phase.STOPPED, round=run.last_round))
    if done.refused:
        raise SpecError(f"{request.command}: {run.name} does not take it", problems=[done.refused])
    return done.effect
