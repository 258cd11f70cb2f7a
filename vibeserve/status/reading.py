"""A run's status from its folder: read without disturbing who carries it out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vibeserve.control import CONTROL, SteeringState, steering_of, told, waiting
from vibeserve.core.paths import lease_dir
from vibeserve.journal import Event, JournalError, read_events
from vibeserve.lease import Mode, Owner, last_owner, lease_rows, living_owner
from vibeserve.planning import ItemState, backlog_of
from vibeserve.progress.events import STEPS
from vibeserve.status.calls import CallFacts, newest_call, open_letters
from vibeserve.status.documents import (
    Against,
    BacklogFacts,
    ItemRow,
    Phase,
    RunState,
    RunStatus,
    Standing,
    StepRow,
    Waiting,
)
from vibeserve.status.remaining import Eta, eta_of
from vibeserve.status.rounds import RoundRow, chain_of, checkpoint_graph, incumbent_of, round_rows
from vibeserve.status.spending import spent_in_all, spent_rows

MAX_ITEMS = 6
NOT_CERTIFIED = "baselines are measured when the winner is certified"
NO_COMPETENT = "no competent baseline was measured"
PHASES = {
    "planner": Phase.PROPOSING, "implementer": Phase.IMPLEMENTING, "judge": Phase.REVIEWING,
    "evaluator": Phase.EXPLAINING,
}  # fmt: skip
WAITING_STATES = (ItemState.IN_PROGRESS, ItemState.OPEN, ItemState.PARKED)


def run_statuses(state: Path) -> list[RunStatus]:
    """Every run whose journal lies under `state`, the one with the newest event first."""
    statuses = [read_status(path.parent, state=state) for path in journals(state)]
    return sorted(statuses, key=lambda status: (-status.last_at_s, status.run))


def journals(state: Path) -> list[Path]:
    """Journals under the state folder; workspaces and checked-out trees below a run are not searched."""
    found: list[Path] = []
    for folder, folders, files in os.walk(state):
        if "journal.jsonl" in files:
            found.append(Path(folder) / "journal.jsonl")
            folders.clear()
    return sorted(found)


def read_status(folder: Path, *, state: Path, events: Sequence[Event] | None = None) -> RunStatus:
    """The run in `folder`; `state` is the folder that its name is relative to. `events`: of its journal, where they
    were read before."""
    path = folder / "journal.jsonl"
    run = folder.relative_to(state).as_posix()
    try:
        events = read_events(path) if events is None else events
        if events:
            return _status(run, folder, events)
        owner = living_owner(folder)
        return RunStatus(
            run=run, num_events=0, last_kind="", last_at_s=path.stat().st_mtime, owner=owner,
            state=RunState.RUNNING if owner else RunState.STOPPED,
        )  # fmt: skip
    except JournalError as error:
        return RunStatus(
            run=run, num_events=0, last_kind="", last_at_s=path.stat().st_mtime, fault=str(error).splitlines()[0],
            state=RunState.UNREADABLE,
        )  # fmt: skip


def _status(run: str, folder: Path, events: Sequence[Event]) -> RunStatus:
    owner, last = living_owner(folder), events[-1]
    steering, rows = steering_of(events), round_rows(events)
    opened = _data(events, "opened")
    winner = str(_data(events, "synthesized").get("winner", ""))
    steps = step_rows(folder, is_owned=owner is not None)
    call = newest_call(folder, events, backends=_backends(opened, steering), is_owned=owner is not None)
    state = _state(events, steering, owner=owner, dead=last_owner(folder))
    leases = [row for row in lease_rows(lease_dir()) if row["owner"]["run"] == folder.name]
    certified = _stamp(folder, "certify")
    return RunStatus(
        run=run, num_events=len(events), last_kind=last.kind, last_at_s=last.time_s, last_data=last.data, state=state,
        owner=owner or (last_owner(folder) if state is RunState.DEAD else None), target=str(opened.get("target", "")),
        plan_id=str(opened.get("plan_id", "")), overrides=_overrides(opened),
        headline=str(opened.get("headline", "")), steps=steps,
        step=_step(steps, state=state), rounds=rows, call=call,
        phase=_phase(events, steps=steps, rows=rows, call=call, leases=leases, is_owned=owner is not None),
        incumbent=_standing(rows, winner=winner, certified=certified), backlog=_backlog(events),
        spent=spent_rows(events), spent_in_all=spent_in_all(events, rows),
        eta=_eta(events, rows, steering, state=state, certified=certified),
        waits=tuple(_waits(folder, steering, leases=leases)), holds=tuple(held_lines(steering)),
    )  # fmt: skip


def _overrides(opened: Mapping[str, Any]) -> tuple[str, ...] | None:
    words = opened.get("overrides")
    return tuple(map(str, words)) if isinstance(words, list) else None


def _backends(opened: Mapping[str, Any], steering: SteeringState) -> dict[str, str]:
    """Who plays each role: as declared, then as people asked."""
    declared = opened.get("agents")
    seated = {role: str(name) for role, name in declared.items()} if isinstance(declared, Mapping) else {}
    return seated | {role: fields["backend"] for role, fields in steering.roles.items()}


def _state(events: Sequence[Event], steering: SteeringState, *, owner: Owner | None, dead: Owner | None) -> RunState:
    if owner is not None:
        if steering.paused:
            return RunState.PAUSED
        is_searching = not any(event.kind in ("search_ended", "synthesized") for event in events)
        return RunState.STOPPING if steering.stopped and is_searching else RunState.RUNNING
    if any(event.kind == "packaged" for event in events):
        return RunState.FINISHED
    return RunState.DEAD if dead is not None else RunState.STOPPED


def step_rows(folder: Path, *, is_owned: bool) -> tuple[StepRow, ...]:
    """The steps by their stamps: the first one without is under way where a process carries the run out."""
    rows: list[StepRow] = []
    for name in STEPS:
        stamp = _stamp(folder, name)
        is_first = stamp is None and not any(row.state != "done" for row in rows)
        if stamp is not None:
            rows.append(StepRow(name=name, state="done", seconds=float(stamp.get("seconds", 0.0))))
        else:
            rows.append(StepRow(name=name, state="under way" if is_first and is_owned else "waits"))
    return tuple(rows)


def _step(steps: Sequence[StepRow], *, state: RunState) -> str:
    return "" if state is RunState.FINISHED else next((row.name for row in steps if row.state != "done"), "")


def _phase(
    events: Sequence[Event], *, steps: Sequence[StepRow], rows: Sequence[RoundRow], call: CallFacts | None,
    leases: Sequence[Mapping[str, Any]], is_owned: bool,
) -> Phase:  # fmt: skip
    """What is known from outside; an assembling implementer leaves no trace, so that its work is `in a round`."""
    step = next((row.name for row in steps if row.state == "under way"), "")
    if not is_owned or step not in ("synthesize", "certify", "package"):
        return Phase.NONE
    if step != "synthesize":
        return Phase.CERTIFYING if step == "certify" else Phase.PACKAGING
    if call is not None and call.state == "under way" and call.role in PHASES:
        return PHASES[call.role]
    is_measuring = any(row["is_held"] and row["mode"] == Mode.EXCLUSIVE.value for row in leases)
    if is_measuring:
        return Phase.MEASURING
    if not rows:
        return Phase.SEED
    return Phase.ROUND if backlog_of(events).of(ItemState.IN_PROGRESS) else Phase.BETWEEN


def _standing(rows: Sequence[RoundRow], *, winner: str, certified: Mapping[str, Any] | None) -> Standing | None:
    found = incumbent_of(rows, winner=winner)
    chain = chain_of(checkpoint_graph(rows, winner=winner))
    if found is None or not chain or chain[-1].ratio is None:
        return None
    last = chain[-1]
    against = tuple(_against(certified))
    return Standing(
        round=found.number, title=found.title or "the seed", ratio=last.ratio or 1.0, ci_low=last.ci_low or 0.0,
        ci_high=last.ci_high or 0.0, chain=chain, competent=against,
        why_no_baseline="" if against else NOT_CERTIFIED if certified is None else NO_COMPETENT,
    )  # fmt: skip


def _against(certified: Mapping[str, Any] | None) -> list[Against]:
    document = certified.get("document") if certified else None
    metrics = document.get("metrics", ()) if isinstance(document, Mapping) else ()
    headline: Mapping[str, Any] = next((metric for metric in metrics if metric.get("role") == "headline"), {})
    return [
        Against(
            name=row["name"], version=row["version"], precision=row["precision"], ratio=row["ratio"],
            ci_low=row["ci_low"], ci_high=row["ci_high"],
        )
        for row in headline.get("baselines", ())
        if row.get("baseline_class") == "competent" and row.get("ratio") is not None
    ]  # fmt: skip


def _backlog(events: Sequence[Event]) -> BacklogFacts:
    backlog = backlog_of(events)
    items = [item for state in WAITING_STATES for item in backlog.of(state)]
    return BacklogFacts(
        counts={state.value: num for state in ItemState if (num := len(backlog.of(state)))},
        top=tuple(
            ItemRow(
                item=item.id, state=item.state.value, title=item.title, who=item.opened_by, round=item.last.round,
                why=item.last.why,
            )
            for item in items[:MAX_ITEMS]
        ),
    )  # fmt: skip


def _eta(
    events: Sequence[Event], rows: Sequence[RoundRow], steering: SteeringState, *, state: RunState,
    certified: Mapping[str, Any] | None,
) -> Eta | None:  # fmt: skip
    if state is RunState.FINISHED:
        return None
    declared = _data(events, "opened").get("budget")
    kinds = {event.kind for event in events}
    return eta_of(
        rows, declared=declared if isinstance(declared, Mapping) else {}, steered=steering.budget,
        is_searching=not kinds & {"synthesized", "search_ended"} and not steering.stopped,
        certified_s=None if certified is None else float(certified.get("seconds", 0.0)),
        is_certified=certified is not None and "certified" in kinds and "synthesized" in kinds,
    )  # fmt: skip


def _waits(folder: Path, steering: SteeringState, *, leases: Sequence[Mapping[str, Any]]) -> list[Waiting]:
    found = [
        Waiting(what="device", text=f"{row['device']} ({row['mode']}), for {row['what']}")
        for row in leases
        if not row["is_held"]
    ]
    if steering.paused:
        found.append(Waiting(what="pause", text=f"paused by {steering.paused}; `vibeserve steer resume` goes on"))
    for letter in open_letters(folder):
        text = f"{letter.request.key} until {letter.request.deadline_at}: vibeserve inbox show {letter.request.key}"
        found.append(Waiting(what="mailbox", text=text))
    for request, fault in waiting(folder / CONTROL, handled=steering.handled):
        asked = fault or told(request.command, request.arguments)
        found.append(Waiting(what="request", text=f"{request.number} of {request.who}: {asked}"))
    return found


def held_lines(steering: SteeringState) -> list[str]:
    """What people asked and holds now, a line each."""
    return [
        *([f"paused by {steering.paused}"] if steering.paused else []),
        *([steering.stopped] if steering.stopped else []), *steering.constraints.lines(),
        *(f"{name} is pinned to {value}" for name, value in steering.pins.items()),
        *(f"budget.{name}={value:g}" for name, value in steering.budget.items()),
        *(f"agents.{role}.backend={fields['backend']}" for role, fields in steering.roles.items()),
    ]  # fmt: skip


def _stamp(folder: Path, step: str) -> Mapping[str, Any] | None:
    try:
        stamp = json.loads((folder / "steps" / step / "stamp.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # absent, or of a step that will run again
    return stamp if isinstance(stamp, dict) else None


def _data(events: Sequence[Event], kind: str) -> Mapping[str, Any]:
    found = next((event.data for event in events if event.kind == kind), None)
    return found if isinstance(found, Mapping) else {}
