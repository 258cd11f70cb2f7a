"""`vibeserve inbox`: answer requests of back end `external`, by hand or from a program."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.cli.runs import options_first
from vibeserve.errors import BudgetError, RefusedError, SpecError
from vibeserve.spec import ROLES

if TYPE_CHECKING:
    from vibeserve.agents.mailbox import Letter, Mailbox

WAIT_POLL_S = 0.3
ENDED_POLL_S = 3.0
"""a journal is read to the end for it"""
MAX_OUTPUT_BYTES = 1024 * 1024
ACTIONS = {
    "list": "open requests of every run of this project",
    "show": "one request: its prompt, where to work, what the output holds, how to submit it",
    "submit": "answer a request with a JSON document",
    "wait": "wait until a request is open and print its key",
}


def main(argv: list[str]) -> int:
    """List, show, submit or wait."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list, "show": _show, "submit": _submit, "wait": _wait
    }  # fmt: skip
    before, words = options_first(argv)
    if not words or words[0] not in ACTIONS:
        about = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
        parser = VerbParser("inbox", description="Requests to people and other tools (agents=external).")
        parser.add_argument("action", choices=tuple(ACTIONS), help=f"{about}; each has --help")
        parser.parse_args(argv)
        parser.error("the action comes first")
    return actions[words[0]](_parser(words[0]).parse_args([*before, *words[1:]]))


def _parser(action: str) -> VerbParser:
    about = ACTIONS[action]
    parser = VerbParser(f"inbox {action}", description=f"{about[0].upper()}{about[1:]}.")
    if action in ("show", "submit"):
        parser.add_argument("key", metavar="KEY", help="as `list` or `wait` prints it")
    else:
        parser.add_argument("--role", metavar="ROLE[,ROLE]", type=_roles, help="requests to these roles alone")
    parser.add_argument("--run", default="", metavar="RUN", help="this run: its name, its target's, or a beginning")
    parser.add_argument("--mailbox", type=Path, metavar="DIR", help="this folder instead of the project's runs")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="project folder (default: the one around here)")
    if action == "list":
        parser.add_argument("--all", action="store_true", dest="is_all", help="closed ones, too")
    elif action == "submit":
        parser.add_argument("--output", required=True, metavar="FILE", help="the JSON document; - reads standard input")
        parser.add_argument("--tries", type=int, metavar="N", help="the try that is answered; refused where it is over")
        parser.add_argument("--by", default="", metavar="NAME", help="who answers, in free text; kept with the run")
        parser.add_argument("--note", default="", metavar="TEXT", help="free text that is kept with the run")
    elif action == "wait":
        told = "exit 4 after so long (default: never; exit 3 once its runs have ended)"
        parser.add_argument("--timeout-s", type=float, metavar="N", help=told)
    return parser


def _roles(text: str) -> tuple[str, ...]:
    roles = tuple(text.split(","))
    unknown = [role for role in roles if role not in ROLES]
    if unknown:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is no role; valid: {', '.join(ROLES)}")
    return roles


def _is_to(roles: tuple[str, ...] | None, letter: Letter) -> bool:
    return roles is None or letter.request.role in roles


def _list(arguments: argparse.Namespace) -> int:
    letters = [
        letter
        for letter in _letters(arguments)
        if (arguments.is_all or letter.state == "open") and _is_to(arguments.role, letter)
    ]
    if arguments.is_json:
        write_json([letter.row() for letter in letters])
    elif not letters:
        write("no request" if arguments.is_all else "no open request; `vibeserve inbox wait` waits for one")
        write(_at_work(arguments))
    else:
        head = ("key", "role", "try", "run", "state", "time left", "waited for")
        write_table([head, *(_cells(letter.row()) for letter in letters)])
    return 0


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from vibeserve.cli.inbox_text import duration

    left = duration(row["remaining_s"]) if row["state"] == "open" else "-"
    waited = "yes" if row["is_waited_for"] else "no"
    return (row["key"], row["role"], str(row["tries"]), row["run"] or "-", row["state"], left, waited)


def _show(arguments: argparse.Namespace) -> int:
    from vibeserve.cli.inbox_runs import became_of
    from vibeserve.cli.inbox_text import letter_text

    letter = _letter(arguments)
    if arguments.is_json:
        prompt = (letter.folder.path / letter.request.prompt_file).read_text(encoding="utf-8")
        document = {**letter.row(), "prompt": prompt, "output_schema": letter.request.output_schema}
        write_json({**document, "became": became_of(letter)})
    else:
        write(letter_text(letter, became=became_of(letter)))
    return 0


def _submit(arguments: argparse.Namespace) -> int:
    from vibeserve.cli.inbox_text import submitted_text

    letter = _letter(arguments)
    output = _read_output(arguments.output, letter)
    done = letter.folder.submit(output, tries=arguments.tries, by=arguments.by, note=arguments.note)
    is_waited_for = letter.folder.is_waited_for
    if arguments.is_json:
        write_json({
            "schema_version": 1, "key": done.result.key, "tries": done.result.tries, "added": done.added,
            "changed": done.changed, "deleted": done.deleted, "left_out": done.left_out, "is_waited_for": is_waited_for,
        })  # fmt: skip
    else:
        write(submitted_text(letter, done, is_waited_for=is_waited_for))
    return 0


def _wait(arguments: argparse.Namespace) -> int:
    from vibeserve.cli.inbox_runs import Ended

    end_s = None if arguments.timeout_s is None else time.monotonic() + arguments.timeout_s
    sys.stderr.write(f"{_at_work(arguments)}; waiting\n")
    ended, looked_s = Ended(), -ENDED_POLL_S
    while True:
        for letter in _letters(arguments, can_be_absent=True):
            if letter.state == "open" and _is_to(arguments.role, letter):
                write_json(letter.row()) if arguments.is_json else write(letter.request.key)
                return 0
        if end_s is not None and time.monotonic() >= end_s:
            whom = f" to the {' or the '.join(arguments.role)}" if arguments.role else ""
            late = f"inbox wait: no request{whom} was open within {arguments.timeout_s:g} s"
            raise BudgetError(f"{late}; {_at_work(arguments)}")
        if time.monotonic() - looked_s >= ENDED_POLL_S:
            looked_s = time.monotonic()
            runs = ended.runs(_chosen(arguments, can_be_absent=True))
            if runs:
                raise RefusedError(f"inbox wait: run {', '.join(runs)} has left its artifact and asks nothing more")
        time.sleep(WAIT_POLL_S)


def _letter(arguments: argparse.Namespace) -> Letter:
    """The one request that KEY names: of several runs', the one that is open."""
    letters = _letters(arguments)
    named = [letter for letter in letters if letter.request.key == arguments.key]
    named = [letter for letter in named if letter.state == "open"] or named
    if len(named) == 1:
        return named[0]
    if named:
        runs = [f"--run {letter.mailbox.run}" for letter in named]
        raise SpecError(f"inbox: several runs have a request '{arguments.key}'", problems=[f"add {' or '.join(runs)}"])
    keys = [letter.request.key for letter in letters if letter.state == "open"]
    told = f"open: {', '.join(keys)}" if keys else "no request is open"
    raise SpecError(f"inbox: no request '{arguments.key}'", problems=[told], hint="vibeserve inbox list --all")


def _letters(arguments: argparse.Namespace, *, can_be_absent: bool = False) -> list[Letter]:
    from vibeserve.agents.mailbox import find_letters

    return find_letters(_chosen(arguments, can_be_absent=can_be_absent))


def _chosen(arguments: argparse.Namespace, *, can_be_absent: bool = False) -> list[Mailbox]:
    mailboxes, name = _mailboxes(arguments, can_be_absent=can_be_absent), arguments.run.removeprefix("runs/")
    chosen = [mailbox for mailbox in mailboxes if name in ("", mailbox.run)] or [
        mailbox for mailbox in mailboxes if mailbox.run.startswith(name)
    ]
    if arguments.run and not chosen and not can_be_absent:
        valid = ", ".join(sorted(mailbox.run for mailbox in mailboxes if mailbox.run)) or "none has a mailbox"
        raise SpecError(f"inbox: no run '{arguments.run}' has a mailbox here", problems=[f"runs: {valid}"])
    return chosen


def _at_work(arguments: argparse.Namespace) -> str:
    """Why there is nothing to answer: what the runs of the project are doing."""
    from vibeserve.cli.inbox_runs import runs_text
    from vibeserve.config.targets import project_root

    if arguments.mailbox is not None:
        return f"mailbox {arguments.mailbox}"
    return runs_text(arguments.dir or project_root())


def _mailboxes(arguments: argparse.Namespace, *, can_be_absent: bool) -> Sequence[Mailbox]:
    from vibeserve.agents.mailbox import mailboxes_in, project_mailboxes
    from vibeserve.config.targets import project_root

    if arguments.mailbox is not None:
        if arguments.mailbox.is_dir():
            return mailboxes_in(arguments.mailbox)
        if can_be_absent:
            return []
        raise SpecError(f"inbox: --mailbox {arguments.mailbox}: no such folder", hint="vibeserve inbox list")
    if arguments.dir is not None and not arguments.dir.is_dir():
        raise SpecError(f"inbox: --dir {arguments.dir}: no such folder", hint="name the folder that holds .vibeserve")
    return project_mailboxes(arguments.dir or project_root())


def _read_output(source: str, letter: Letter) -> Any:
    from vibeserve.agents.mailbox.reading import parse_json

    if source == "-":
        name, data = "standard input", sys.stdin.buffer.read(MAX_OUTPUT_BYTES + 1)
    else:
        name, data = source, _read_file(Path(source), letter)
    if len(data) > MAX_OUTPUT_BYTES:
        raise SpecError(f"inbox: --output: {name} has more than {MAX_OUTPUT_BYTES} bytes")
    try:
        return parse_json(data)
    except ValueError as error:
        hint = f"vibeserve inbox show {letter.request.key} says what it holds"
        raise SpecError(f"inbox: --output: {name} is not one JSON document: {error}", hint=hint) from None


def _read_file(path: Path, letter: Letter) -> bytes:
    if letter.request.is_writable and letter.folder.workspace.resolve() in path.resolve().parents:
        text = f"inbox: --output {path}: lies in the workspace, whose files are the answer"
        raise SpecError(text, hint="move it out of the workspace, or give it to --output - on standard input")
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_OUTPUT_BYTES + 1)
    except OSError as error:
        raise SpecError(f"inbox: --output {path}: {error.strerror}") from None
