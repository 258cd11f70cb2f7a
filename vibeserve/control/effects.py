"""What each command does, and when it is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass

from vibeserve.agents import PlanningState
from vibeserve.control.proposals import keys_of_proposal, persons_proposal, problems_of
from vibeserve.control.requests import Request
from vibeserve.control.shapes import AT_ANY_TIME, BUDGETS
from vibeserve.control.site import Phase, Site
from vibeserve.control.state import Handled, SteeringState, steered_spec
from vibeserve.errors import InfraError, SpecError
from vibeserve.planning import Item, ItemState, PlanningBook
from vibeserve.planning.memory import ADD
from vibeserve.spec import MODEL_FREE, Spec, resolve_role

FROM_THE_NEXT_PROPOSAL = "from the next proposal on"
MAX_IDS_TOLD = 20
MOVES = {
    "park": ItemState.PARKED, "abandon": ItemState.ABANDONED, "reopen": ItemState.OPEN, "done": ItemState.DONE
}  # fmt: skip


NOTED = {"add": "kept", "edit": "changed", "remove": "gone"}


class RequestRefusedError(Exception):
    """The request cannot be carried out here; its text says why and what is valid."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a request did."""

    text: str
    item: str = ""
    """of the backlog, where it concerns one"""


@dataclass(frozen=True, kw_only=True)
class SpentSoFar:
    """What no budget may be lowered below."""

    rounds: int
    """after round 0, the one under way included"""
    wall_s: float
    tokens: int
    usd: float


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What requests act on."""

    book: PlanningBook
    steering: SteeringState
    declared: Spec
    spent: SpentSoFar
    try_agents: Callable[[Spec], None]
    """makes the agents of a spec and seats them; raises where they cannot be had"""


def carry_out(request: Request, site: Site, desk: Desk) -> Effect:
    """Do what a well-formed request asks. RequestRefusedError where that is not possible here and now."""
    item = desk.book.backlog.requests.get(request.number) or desk.book.memory.requests.get(request.number)
    if item:
        return Effect(text="carried out before the run was interrupted", item=item)
    if site.phase is Phase.CERTIFICATION and request.command not in AT_ANY_TIME:
        raise RequestRefusedError("the search has ended: its winner is being certified")
    return HANDLERS[request.command](request, site, desk)


def _state(site: Site) -> PlanningState:
    if site.state is None:
        raise RequestRefusedError("nothing is being searched here")
    return site.state


def _pause(request: Request, site: Site, desk: Desk) -> Effect:
    if desk.steering.paused:
        raise RequestRefusedError(f"the run is paused already, by {desk.steering.paused}")
    return Effect(text="the run waits here until `resume` or `stop`")


def _resume(request: Request, site: Site, desk: Desk) -> Effect:
    if not desk.steering.paused:
        raise RequestRefusedError("the run is not paused")
    return Effect(text="the run goes on")


def _stop(request: Request, site: Site, desk: Desk) -> Effect:
    if desk.steering.stopped:
        raise RequestRefusedError(f"the search is {desk.steering.stopped} already")
    what = "the round ends with this attempt" if site.phase is Phase.ATTEMPT else "no further round"
    return Effect(text=f"{what}; the best so far is certified")


def _constrain(request: Request, site: Site, desk: Desk) -> Effect:
    state, arguments = _state(site), request.arguments
    known = [*desk.steering.banned, *desk.steering.allowed]
    _refuse(
        f"nothing rules out {name}; ruled out: {', '.join(known) or 'nothing'}"
        for name in arguments.get("lift", ())
        if name not in known
    )
    only = arguments.get("only", {})
    _refuse(
        f"{name} is pinned to {state.pins[name]}, which is not among {', '.join(map(str, values))}"
        for name, values in only.items()
        if name in state.pins and state.pins[name] not in values
    )
    kept = [name for name in arguments.get("ban", ()) if name in state.incumbent.components]
    has = f"; the incumbent has {', '.join(kept)} and keeps it" if kept else ""
    return Effect(text=f"{FROM_THE_NEXT_PROPOSAL}{has}")


def _pin(request: Request, site: Site, desk: Desk) -> Effect:
    state, arguments = _state(site), request.arguments
    steered = desk.steering
    _refuse(
        f"{name} was not pinned by a request; pinned so: {', '.join(steered.pins) or 'nothing'}"
        for name in arguments.get("lift", ())
        if name not in steered.pins
    )
    _refuse(
        f"{name} may only be {', '.join(map(str, state.constraints.allowed[name]))} in this run"
        for name, value in arguments.get("values", {}).items()
        if not state.constraints.permits(name, value)
    )
    return Effect(text=FROM_THE_NEXT_PROPOSAL)


def _veto(request: Request, site: Site, desk: Desk) -> Effect:
    item = _item(request.arguments["item"], desk)
    if item.state in (ItemState.DONE, ItemState.ABANDONED):
        raise RequestRefusedError(f"{item.id} is {item.state.value} already: {item.last.why}")
    is_under_way = item.state is ItemState.IN_PROGRESS and site.phase is Phase.ATTEMPT
    _change(item, ItemState.ABANDONED, request, site, desk)
    text = f"round {site.round} makes no further attempt" if is_under_way else "it is not tried"
    return Effect(text=text, item=item.id)


def _propose(request: Request, site: Site, desk: Desk) -> Effect:
    state = _state(site)
    try:
        proposal = persons_proposal(request.arguments["proposal"], number=request.number, state=state)
        _refuse(problems_of(proposal, state=state, is_assembling=site.is_assembling))
    except SpecError as error:
        raise RequestRefusedError("; ".join((str(error).splitlines()[0], *error.problems))) from error
    item = desk.book.add(
        proposal.title, mechanism=proposal.mechanism, why=proposal.hypothesis, who=request.who, round=site.round,
        keys=keys_of_proposal(proposal, state), what_changed=proposal.what_changed, request=request.number,
    )  # fmt: skip
    return Effect(text=f"{item.id} is next in line", item=item.id)


def _budget(request: Request, site: Site, desk: Desk) -> Effect:
    asked = {name: request.arguments[name] for name in BUDGETS if name in request.arguments}
    spent = {name: getattr(desk.spent, name) for name in asked}
    # 0 tokens or USD is no cap at all, as in a target
    low = [name for name, value in asked.items() if value < spent[name] and (value or name in ("rounds", "wall_s"))]
    _refuse(f"{name}={asked[name]:g} is below what is spent, {spent[name]:g}" for name in low)
    before = steered_spec(desk.declared, desk.steering).budget
    if set(asked) & {"tokens", "usd"}:
        _try(request, site, desk)
    changes = [f"{name} {getattr(before, name):g} -> {value:g}" for name, value in asked.items()]
    return Effect(text=", ".join(changes))


def _backend(request: Request, site: Site, desk: Desk) -> Effect:
    agents = steered_spec(desk.declared, desk.steering).agents
    roles = request.arguments["roles"]
    before = {role: resolve_role(agents, role).backend for role in roles}
    if "judge" in roles and before["judge"] not in MODEL_FREE and roles["judge"]["backend"] in MODEL_FREE:
        raise RequestRefusedError("an agent's review can be added to a run or played by another, not taken out of it")
    _try(request, site, desk)
    changes = [f"{role} {before[role]} -> {fields['backend']}" for role, fields in roles.items()]
    return Effect(text=f"{', '.join(changes)}, from the next call on")


def _try(request: Request, site: Site, desk: Desk) -> None:
    """Make the agents that would hold with the request; what cannot be had is refused and changes nothing."""
    after = deepcopy(desk.steering)
    after.take(
        Handled(
            number=request.number, command=request.command, arguments=request.arguments, who=request.who,
            at_s=request.at_s, phase=site.phase.value, round=site.round,
        )
    )  # fmt: skip
    try:
        desk.try_agents(steered_spec(desk.declared, after))
    except (SpecError, InfraError) as error:
        raise RequestRefusedError("; ".join(str(error).splitlines())) from error


def _backlog(request: Request, site: Site, desk: Desk) -> Effect:
    arguments = request.arguments
    if arguments["action"] == "add":
        added = desk.book.add(
            arguments["title"], mechanism=arguments.get("mechanism", ""), why=arguments.get("why", ""),
            who=request.who, round=site.round, request=request.number,
        )  # fmt: skip
        return Effect(text=f"{added.id} is open", item=added.id)
    item, state = _item(arguments["item"], desk), MOVES[arguments["action"]]
    if item.state is ItemState.IN_PROGRESS and site.phase is not Phase.STOPPED:
        raise RequestRefusedError(f"{item.id} is under way: `vibeserve steer veto {item.id}` ends it")
    if item.state is state:
        raise RequestRefusedError(f"{item.id} is {state.value} already")
    _change(item, state, request, site, desk)
    return Effect(text=f"{item.id} is {state.value}", item=item.id)


def _note(request: Request, site: Site, desk: Desk) -> Effect:
    arguments, memory = request.arguments, desk.book.memory
    action, note = arguments["action"], arguments.get("note", "")
    if action == ADD:
        note = memory.next_id()
    elif note not in memory.notes:
        raise RequestRefusedError(f"there is no note '{note}'; valid: {_ids(memory.notes)}")
    desk.book.change_note(
        note, action, text=arguments.get("text", ""), who=request.who, round=site.round, request=request.number
    )
    return Effect(text=f"{note} is {NOTED[action]}")


def _item(name: str, desk: Desk) -> Item:
    items = desk.book.backlog.items
    if name not in items:
        raise RequestRefusedError(f"there is no item '{name}' in the backlog; valid: {_ids(items)}")
    return items[name]


def _ids(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[-MAX_IDS_TOLD:]) or "none"


def _change(item: Item, state: ItemState, request: Request, site: Site, desk: Desk) -> None:
    desk.book.change(
        item, state, who=request.who, round=site.round, why=request.arguments.get("why", ""), request=request.number
    )


def _refuse(problems: Iterable[str]) -> None:
    found = list(dict.fromkeys(problems))
    if found:
        raise RequestRefusedError("; ".join(found))


HANDLERS: dict[str, Callable[[Request, Site, Desk], Effect]] = {
    "pause": _pause, "resume": _resume, "stop": _stop, "constrain": _constrain, "veto": _veto, "pin": _pin,
    "propose": _propose, "budget": _budget, "backend": _backend, "backlog": _backlog, "note": _note,
}  # fmt: skip
