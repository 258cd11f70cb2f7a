"""A run's status in words: one line and a few facts in a list of runs, a page for one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from vibeserve.control import CONTROL_EVENT, told
from vibeserve.core.tables import aligned
from vibeserve.planning import BACKLOG
from vibeserve.status.documents import Against, Phase, RunState, RunStatus, Standing
from vibeserve.status.rounds import RoundRow
from vibeserve.status.spending import spent_by_role

_MAX_TEXT = 80
MAX_ROUNDS = 12
"""rounds of a page, the newest; `--json` has all of them"""
MAX_SPENT = 6
"""rows of what agents spent, the newest"""
OWNED = (RunState.RUNNING, RunState.PAUSED, RunState.STOPPING)


def head_line(status: RunStatus, *, now_s: float) -> str:
    """One line: the run, who carries it out, its newest event."""
    if status.fault:
        return f"{status.run}  {status.fault}"
    if not status.num_events:
        return f"{status.run}  {state_text(status)}, no event yet"
    last = f"last: {in_words(status.last_kind, status.last_data)}, {age(now_s - status.last_at_s)} ago"
    return f"{status.run}  {state_text(status)}, {status.num_events} events, {last}"


def state_text(status: RunStatus) -> str:
    """`running in pid 12`, `dead: pid 12 on host was killed`."""
    owner = status.owner
    if owner is None:
        return status.state.value
    where = "" if owner.is_local else f" on {owner.host}"
    if status.state is RunState.DEAD:
        return f"dead (pid {owner.pid} on {owner.host} is gone)"
    return f"{status.state.value} in pid {owner.pid}{where}"


def brief_lines(status: RunStatus, *, now_s: float) -> list[str]:
    """For a list of runs: the head, and what is worth knowing of an unfinished one."""
    more: list[str] = []
    if status.state is not RunState.FINISHED:
        more = [*_command_lines(status), *_progress_lines(status), *_waiting_lines(status)]
    spent = [row.line() for row in status.spent]
    left_out = len(spent) - MAX_SPENT
    spent = [*([f"{left_out} earlier rows of spend: --json has them"] if left_out > 0 else []), *spent[-MAX_SPENT:]]
    return [head_line(status, now_s=now_s), *(f"    {line}" for line in [*more, *spent])]


def page_lines(status: RunStatus, *, now_s: float) -> list[str]:
    """Everything about one run."""
    lines = [head_line(status, now_s=now_s), *_command_lines(status), *_step_lines(status), *_progress_lines(status)]
    if status.rounds:
        lines += ["", *round_lines(status.rounds)]
    lines += ["", *standing_lines(status.incumbent)] if status.incumbent else []
    lines += _backlog_lines(status)
    lines += ["", *call_lines(status, now_s=now_s)] if status.call else []
    lines += _waiting_lines(status)
    lines += [f"holds: {line}" for line in status.holds]
    return [*lines, *_spent_lines(status)]


def _command_lines(status: RunStatus) -> list[str]:
    """What began the run, and goes on with it."""
    return [] if status.overrides is None else [f"command: {command_text(status.target, status.overrides)}"]


def command_text(target: str, overrides: Sequence[str]) -> str:
    """As a shell takes it."""
    return shlex.join(["vibeserve", f"+target={target}", *overrides])


def _step_lines(status: RunStatus) -> list[str]:
    if not any(step.state == "done" for step in status.steps) and status.owner is None:
        return []
    parts = [
        f"{step.name} {age(step.seconds or 0.0)}" if step.state == "done" else f"{step.name} ({step.state})"
        for step in status.steps
    ]
    return [f"steps: {', '.join(parts)}"]


def _progress_lines(status: RunStatus) -> Iterator[str]:
    """What it does now, and how long the rest takes."""
    if status.state in OWNED and status.step:
        yield f"now: {doing(status)}"
    if status.incumbent is not None and status.state is not RunState.FINISHED:
        yield f"incumbent: {incumbent_text(status.incumbent)}"
    if status.eta is not None and status.rounds:
        yield f"left: {status.eta.line()}"


def doing(status: RunStatus) -> str:
    """`synthesize, proposing (round 3)`"""
    phase = f", {status.phase.value}" if status.phase is not Phase.NONE else ""
    is_round = status.phase not in (Phase.NONE, Phase.SEED, Phase.CERTIFYING, Phase.PACKAGING, Phase.BETWEEN)
    return f"{status.step}{phase}" + (f" (round {len(status.rounds)})" if is_round and status.rounds else "")


def incumbent_text(found: Standing) -> str:
    ratio = "" if found.round == 0 else f", x{found.ratio:.3g} [{found.ci_low:.3g}, {found.ci_high:.3g}] of the seed"
    return f"round {found.round} '{found.title}'{ratio}"


def round_cells(row: RoundRow) -> tuple[str, ...]:
    ratio = "-" if row.ratio is None else f"{row.ratio:.3g}"
    interval = f" [{row.ci_low:.3g}, {row.ci_high:.3g}]" if row.ci_low is not None and row.ci_high is not None else ""
    parent = "-" if row.parent is None else str(row.parent)
    title = _short(row.title or "the seed", 40)
    outcome = f"{row.outcome}, {row.activation}" if row.is_unactivated else row.outcome
    return (
        str(row.number), row.branch or "-", parent, title, outcome, f"{ratio}{interval}", f"{row.seconds:.0f}",
        str(row.attempts),
    )  # fmt: skip


ROUND_HEAD = ("round", "branch", "from", "proposal", "outcome", "ratio [95%]", "s", "attempts")


def round_lines(rows: Sequence[RoundRow]) -> list[str]:
    """A table of the newest rounds; the column of branches only where there are any."""
    shown = rows[-MAX_ROUNDS:]
    cells = [ROUND_HEAD, *(round_cells(row) for row in shown)]
    if not any(row.branch for row in rows):
        cells = [(row[0], *row[2:]) for row in cells]
    left_out = len(rows) - len(shown)
    return [*([f"{left_out} earlier rounds: --json has them"] if left_out else []), *aligned(cells)]


def standing_lines(found: Standing) -> list[str]:
    """How the incumbent's ratio came about, and what it is beside the competent baselines."""
    lines = [f"incumbent: {incumbent_text(found)}"]
    steps = [f"round {node.round} x{node.ratio:.3g}" for node in found.chain if node.ratio is not None]
    lines += [f"    by {' -> '.join(steps)}"] if len(steps) > 1 else []
    lines += [f"    against {_against(row)}" for row in found.competent]
    return [*lines, *([f"    against a competent baseline: {found.why_no_baseline}"] if found.why_no_baseline else [])]


def _against(row: Against) -> str:
    interval = f" [{row.ci_low:.3g}, {row.ci_high:.3g}]" if row.ci_low is not None and row.ci_high is not None else ""
    return f"{row.name} {row.version} ({row.precision.replace('_', ' ')}): x{row.ratio:.3g}{interval}, certified"


def _backlog_lines(status: RunStatus) -> list[str]:
    found = status.backlog
    if found is None or not found.counts:
        return []
    counts = ", ".join(f"{num} {state.replace('_', ' ')}" for state, num in found.counts.items())
    return ["", f"backlog: {counts}", *(
        f"    {item.item} {item.state.replace('_', ' ')}: {_short(item.title, 60)} ({item.who})" for item in found.top
    )]  # fmt: skip


def call_lines(status: RunStatus, *, now_s: float) -> list[str]:
    """The agent at work, or the last one that was, with its last lines."""
    call = status.call
    if call is None:
        return []
    who = " ".join(filter(None, (call.backend, call.model)))
    since = f"{call.state} {'since ' if call.state == 'under way' else ''}{age(now_s - call.since_s)}"
    ago = "" if call.state == "under way" else " ago"
    tokens = f", {call.tokens} tokens" if call.tokens else ""
    head = f"agent: {call.role} {call.key}{f' ({who})' if who else ''}, {since}{ago}{tokens}"
    return [head, *(f"    {line}" for line in call.lines)]


def _waiting_lines(status: RunStatus) -> list[str]:
    return [f"waits: {waiting.what}: {waiting.text}" for waiting in status.waits]


def _spent_lines(status: RunStatus) -> list[str]:
    found = status.spent_in_all
    if found is None or not (status.rounds or status.spent):
        return []
    unpriced = f" and {found.unpriced_tokens} tokens without a price" if found.unpriced_tokens else ""
    agents = f"{found.tokens} tokens, {found.usd:.4f} USD{unpriced}; " if found.tokens else ""
    total = f"spent: {agents}{age(found.rounds_s)} in rounds, {age(found.device_s)} of them measuring"
    by_role = [f"    {row.line()}" for row in spent_by_role(status.spent)]
    return ["", total, *by_role, *(f"        {row.line()}" for row in status.spent[-MAX_SPENT:])]


def age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _short(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 3] + "..."


def in_words(kind: str, data: Any) -> str:
    """What an event of a run's journal means. One that this version does not know is shown as it is."""
    known = data if isinstance(data, dict) else {}
    if kind == "tier":
        return f"wall chosen (tier {data})"
    if kind == "round" and isinstance(known.get("record"), dict):
        record, step = known["record"], known.get("step")
        where = f" upon {step.get('parent')}" if isinstance(step, dict) else ""
        return f"round {record.get('number')}{where} ended: {record.get('outcome')}"
    if kind == "move" and isinstance(known.get("rounds"), list):
        return f"move {known.get('number')}: {known.get('why')}, {len(known['rounds'])} rounds planned"[:_MAX_TEXT]
    if kind == "certified":
        return "certified" if known.get("passed") else "certification ended: not passed"
    if kind == "spend":
        return f"{known.get('role')} {known.get('key')} asked {known.get('model')}"[:_MAX_TEXT]
    if kind == CONTROL_EVENT and isinstance(known.get("arguments"), dict):
        refused = f": refused: {known.get('refused')}" if known.get("refused") else ""
        return f"{told(str(known.get('command')), known['arguments'])}{refused}"[:_MAX_TEXT]
    if kind == BACKLOG:
        return f"backlog: {known.get('item')} {known.get('state')}: {known.get('title')}"[:_MAX_TEXT]
    if kind in _WORDS:
        words, key = _WORDS[kind]
        return f"{words}: {str(known[key])[:_MAX_TEXT]}" if known.get(key) else words
    return f"{kind}{_facts(data)}"


_WORDS = {
    "opened": ("run started", ""),
    "search_ended": ("search ended", "why"),
    "synthesized": ("winner chosen", "winner"),
    "packaged": ("artifact written", "path"),
    "note": ("note changed", "text"),
    "seeded": ("round 0 starts from", "origin"),
    "inherited": ("ideas taken over", "source"),
    "steerable": ("search can be steered", ""),
}
"""event -> what it means, and the key of its data that says more"""


def _facts(data: Any) -> str:
    if not isinstance(data, dict):
        return ""
    facts = [f"{key}={value}" for key, value in data.items() if isinstance(value, str | int | float)]
    text = " ".join(facts)
    return f": {text[:_MAX_TEXT]}" if text else ""
