"""`vibeserve steer`: ask something of a run that searches. The run's owner carries it out at its next safe point."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.cli.runs import SYNTHESIZED, RunHere, add_author, add_common, author, find_run, split_run
from vibeserve.errors import SpecError

ACTIONS = {
    "pause": "wait at the next safe point until `resume` or `stop`",
    "resume": "go on after a pause",
    "stop": "start no further round, and certify the best so far",
    "constrain": "ban components, or leave a parameter only some values",
    "veto": "drop an idea of the backlog, or the one that is being tried",
    "pin": "leave a parameter at a value, as search.pins does",
    "propose": "put a proposal (a JSON document) next in line",
    "budget": "change rounds, wall_s, tokens or usd",
    "backend": "let another back end play a role from the next call on",
    "list": "requests so far, and what holds now",
}
SAFE_POINTS = "before a step of the build or a proposal, between attempts of a round, before certification"
MAX_PROPOSAL_BYTES = 128 * 1024
CURRENT = "current"


def main(argv: list[str]) -> int:
    """Put one request into the run's folder, or list them."""
    _refuse_assignment(argv)
    name, action, rest = split_run("steer", argv, ACTIONS)
    arguments = _parser(action).parse_args(rest)
    if action == "list":
        return _list(find_run("steer", name, project=arguments.dir), arguments)
    requested = _ARGUMENTS[action](arguments) if action in _ARGUMENTS else {}
    run = find_run("steer", name, project=arguments.dir)
    why = {"why": arguments.why} if arguments.why else {}
    return _submit(run, action, {**_resolved(run, action, requested), **why}, arguments)


def _refuse_assignment(argv: Sequence[str]) -> None:
    """`vibeserve steer evaluation.min_effect=0`: an override where an action belongs."""
    from vibeserve.control.shapes import fixed_names

    for word in argv[: 1 if argv[:1] and argv[0] in ACTIONS else 2]:
        if "=" in word and fixed_names([word.partition("=")[0].lstrip("+~")]):
            raise _new_plan([word], target="NAME")


def _new_plan(words: Sequence[str], *, target: str) -> SpecError:
    return SpecError(
        f"steer: {', '.join(words)}: that is a new plan", problems=["a run keeps what it claims and how it is judged"],
        hint=f"vibeserve +target={target} with the override starts a run of its own",
    )  # fmt: skip


def _parser(action: str) -> VerbParser:
    about = ACTIONS[action]
    parser = VerbParser(f"steer {action}", description=f"{about[0].upper()}{about[1:]}.")
    if action in _OPTIONS:
        _OPTIONS[action](parser)
    add_common(parser)
    if action != "list":
        add_author(parser)
        parser.add_argument("--why", default="", metavar="TEXT", help="kept with the run and its artifact")
    return parser


def _constrain_options(parser: VerbParser) -> None:
    parser.add_argument("--ban", action="append", default=[], metavar="COMPONENT", help="nothing new may bring it in")
    parser.add_argument(
        "--only", action="append", default=[], metavar="PARAMETER=VALUE,VALUE", help="the values that it may have"
    )
    parser.add_argument("--lift", action="append", default=[], metavar="NAME", help="of an earlier constraint")


def _pin_options(parser: VerbParser) -> None:
    parser.add_argument("values", nargs="*", metavar="PARAMETER=VALUE")
    parser.add_argument("--lift", action="append", default=[], metavar="PARAMETER", help="of an earlier `steer pin`")


def _budget_options(parser: VerbParser) -> None:
    parser.add_argument("values", nargs="+", metavar="NAME=VALUE", help="rounds, wall_s, tokens, usd; in all, not more")


def _backend_options(parser: VerbParser) -> None:
    parser.add_argument(
        "values", nargs="+", metavar="ROLE=BACKEND", help="and ROLE.model=, .effort=, .base_url=, .api_key_env="
    )


def _veto_options(parser: VerbParser) -> None:
    parser.add_argument("item", metavar="ITEM", help=f"as `vibeserve backlog list` names it, or `{CURRENT}`")


def _propose_options(parser: VerbParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the JSON document (docs/steering.md); - reads standard input")


_OPTIONS: dict[str, Callable[[VerbParser], None]] = {
    "constrain": _constrain_options, "pin": _pin_options, "budget": _budget_options, "backend": _backend_options,
    "veto": _veto_options, "propose": _propose_options,
}  # fmt: skip


def _constrain(arguments: argparse.Namespace) -> dict[str, Any]:
    only = {name: [_value(word) for word in text.split(",")] for name, text in _assigned(arguments.only).items()}
    return {"ban": arguments.ban, "only": only, "lift": arguments.lift}


def _pin(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "values": {name: _value(text) for name, text in _assigned(arguments.values).items()}, "lift": arguments.lift
    }  # fmt: skip


def _budget(arguments: argparse.Namespace) -> dict[str, Any]:
    return {name: _value(text) for name, text in _assigned(arguments.values).items()}


def _backend(arguments: argparse.Namespace) -> dict[str, Any]:
    roles: dict[str, dict[str, str]] = {}
    for name, text in _assigned(arguments.values).items():
        role, _, field = name.partition(".")
        roles.setdefault(role, {})[field or "backend"] = text
    return {"roles": roles}


def _propose(arguments: argparse.Namespace) -> dict[str, Any]:
    where = "standard input" if arguments.file == "-" else arguments.file
    try:
        if arguments.file == "-":
            data = sys.stdin.buffer.read(MAX_PROPOSAL_BYTES + 1)
        else:
            with Path(arguments.file).open("rb") as stream:
                data = stream.read(MAX_PROPOSAL_BYTES + 1)
    except OSError as error:
        raise SpecError(f"steer propose: {where}: {error.strerror}") from None
    try:
        if len(data) > MAX_PROPOSAL_BYTES:
            raise ValueError(f"more than {MAX_PROPOSAL_BYTES} bytes")
        document = json.loads(data)
    except ValueError as error:
        raise SpecError(f"steer propose: {where} is not one JSON document: {error}") from None
    if isinstance(document, dict):
        parameters = document.get("parameters")
        if isinstance(parameters, dict):
            document["parameters"] = [{"name": name, "value": value} for name, value in parameters.items()]
        document.setdefault("what_changed", "")
    return {"proposal": document}


_ARGUMENTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "constrain": _constrain, "pin": _pin, "budget": _budget, "backend": _backend, "propose": _propose,
    "veto": lambda arguments: {"item": arguments.item},
}  # fmt: skip


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` words as a mapping."""
    wrong = [word for word in words if not word.partition("=")[1] or not word.partition("=")[0]]
    if wrong:
        raise SpecError(f"steer: {', '.join(wrong)}: is not NAME=VALUE", hint="vibeserve steer ACTION --help")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _value(text: str) -> Any:
    """A number or a boolean where it is written as one; else the text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _resolved(run: RunHere, action: str, requested: dict[str, Any]) -> dict[str, Any]:
    """With the item that is being tried in the place of `current`."""
    from vibeserve.planning import ItemState, backlog_of

    if action != "veto" or requested["item"] != CURRENT:
        return requested
    under_way = backlog_of(run.events).of(ItemState.IN_PROGRESS)
    if not under_way:
        raise SpecError(f"steer veto: no idea is being tried in {run.name}", hint="vibeserve backlog list")
    return {"item": under_way[-1].id}


def _submit(run: RunHere, action: str, requested: dict[str, Any], arguments: argparse.Namespace) -> int:
    from vibeserve.control import CONTROL, steering_of, submit, told

    _refuse_where_it_is_too_late(run, action)
    _refuse_wrong(run, action, requested)
    request = submit(
        run.folder / CONTROL, command=action, arguments=requested, who=author(arguments),
        taken=steering_of(run.events).handled,
    )  # fmt: skip
    if arguments.is_json:
        write_json({
            "schema_version": 1, "run": run.name, "number": request.number, "command": action, "state": "waiting",
            "arguments": requested, "owner_pid": run.owner.pid if run.owner else None,
        })  # fmt: skip
        return 0
    write(f"request {request.number} to {run.name}: {told(action, requested)}")
    if run.owner:
        write(f"pid {run.owner.pid} carries it out at its next safe point: {SAFE_POINTS}")
        write("next: `vibeserve steer list` says what became of it")
    else:
        write("nobody carries the run out now: it waits, and is carried out when the run goes on")
        write(f"next: start the same command again ({run.command})")
    return 0


def _refuse_where_it_is_too_late(run: RunHere, action: str) -> None:
    from vibeserve.control.shapes import AT_ANY_TIME

    if run.is_finished:
        raise SpecError(
            f"steer: {run.name} is finished: there is nothing to steer",
            hint=f"vibeserve report artifacts/{run.target}/latest",
        )
    if run.has(SYNTHESIZED) and action not in AT_ANY_TIME:
        raise SpecError(
            f"steer: the search of {run.name} has ended: its winner is being certified",
            problems=[f"valid now: {', '.join(each for each in ACTIONS if each in AT_ANY_TIME)}, list"],
        )


def _refuse_wrong(run: RunHere, action: str, requested: dict[str, Any]) -> None:
    """SpecError for what can be known to be wrong before the owner looks at it."""
    from vibeserve.control import offer_in, shape_problem
    from vibeserve.control.shapes import NEW_PLAN

    problem = shape_problem(action, requested)
    if problem.endswith(NEW_PLAN):
        raise _new_plan([problem.removesuffix(f": {NEW_PLAN}")], target=run.target)
    offer = offer_in(run.events)
    problems = [problem] if problem else list(offer.problems(action, requested)) if offer else []
    if problems:
        raise SpecError(f"steer {action}: it cannot be asked of {run.name}", problems=problems)


def _list(run: RunHere, arguments: argparse.Namespace) -> int:
    from vibeserve.control import CONTROL, handled_of, steering_of, told, waiting
    from vibeserve.status import held_lines

    state, handled = steering_of(run.events), handled_of(run.events)
    waits = [request for request, _ in waiting(run.folder / CONTROL, handled=state.handled)]
    holds = held_lines(state)
    if arguments.is_json:
        rows = [{**vars(done), "state": "refused" if done.refused else "applied"} for done in handled]
        rows += [{**vars(request), "state": "waiting"} for request in waits]
        write_json({"schema_version": 1, "run": run.name, "requests": rows, "holds": holds})
        return 0
    table = [
        (str(done.number), told(done.command, done.arguments), done.who, "refused" if done.refused else "applied",
         f"round {done.round}", done.refused or done.effect)
        for done in handled
    ]  # fmt: skip
    table += [(str(each.number), told(each.command, each.arguments), each.who, "waiting", "-", "") for each in waits]
    if table:
        write_table([("number", "request", "who", "state", "at", "effect"), *table])
    else:
        write(f"nothing was asked of {run.name}")
    for line in holds:
        write(f"holds: {line}")
    return 0
