"""Which agent is at work, since when, and its last lines: from the folders that its call keeps on the controller."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vibeserve.agents.mailbox import Letter, Mailbox, find_letters
from vibeserve.agents.mailbox.finding import MAILBOX
from vibeserve.errors import InfraError
from vibeserve.journal import Event
from vibeserve.status.spending import readable_spends

KEY = re.compile(r"[rp]\d+(?:a\d+)?-(planner|implementer|judge|evaluator)")
PROMPT, TRANSCRIPT, ANSWER = "prompt.md", "transcript.json", "answer.json"
LOGS = ("client.log", "exchanges.jsonl", "traffic.jsonl")
"""what a call writes while it goes on: a command-line client's output, our own loop's requests, the proxy's record"""
MAX_LINES, MAX_CHARS, MAX_BYTES = 5, 160, 64 * 1024
TEXTS = ("text", "content", "output_text", "arguments", "message", "thinking")
"""keys under which models' APIs and clients say something"""


@dataclass(frozen=True, kw_only=True)
class CallFacts:
    """One call of an agent."""

    key: str
    """session key"""
    role: str
    backend: str
    """empty where nothing has told it yet"""
    model: str
    state: Literal["under way", "interrupted", "done"]
    since_s: float
    """seconds since the epoch: when it was asked, or where it is over when it ended"""
    tokens: int
    lines: tuple[str, ...]
    """its last ones, oldest first; empty where it has said nothing yet"""


def newest_call(
    folder: Path, events: Sequence[Event], *, backends: Mapping[str, str], is_owned: bool
) -> CallFacts | None:  # fmt: skip
    """The call that was asked and has not ended, else the one that ended last; None where no agent was asked. Without
    a process that carries the run out the first is interrupted. `backends`: by role, as they are seated now."""
    agents = folder / "agents"
    folders = [path for path in sorted(agents.iterdir()) if _is_call(path)] if agents.is_dir() else []
    open_letters = {letter.request.key: letter for letter in _letters(folder) if letter.state == "open"}
    # a call that is asked again writes its prompt anew; what an earlier try left is older than that
    under_way = [path for path in folders if _asked_s(path) > max(_ended_s(path), 0.0)]
    chosen = max(under_way, key=_asked_s, default=None) or max(folders, key=_ended_s, default=None)
    if chosen is None:
        return None
    is_open = chosen in under_way
    spends = [data for data in readable_spends(events) if data["key"] == chosen.name]
    role = chosen.name.rpartition("-")[2]
    letter = open_letters.get(chosen.name)
    last: Mapping[str, Any] = spends[-1] if spends else _answer(chosen)
    return CallFacts(
        key=chosen.name, role=role, state="done" if not is_open else "under way" if is_owned else "interrupted",
        backend=str(last.get("backend") or backends.get(role, "")), model=str(last.get("model", "")),
        since_s=_asked_s(chosen) if is_open else _ended_s(chosen),
        tokens=sum(each["usage"]["input_tokens"] + each["usage"]["output_tokens"] for each in spends),
        lines=_letter_lines(letter) if letter else last_lines(chosen, is_open=is_open),
    )  # fmt: skip


def open_letters(folder: Path) -> list[Letter]:
    """Requests to people and other tools that the run waits for."""
    return [letter for letter in _letters(folder) if letter.state == "open"]


def last_lines(call: Path, *, is_open: bool) -> tuple[str, ...]:
    """What an agent said last: of the growing record while it is at work, of its transcript afterwards."""
    if not is_open and (call / TRANSCRIPT).is_file():
        return _trimmed(_turns(call / TRANSCRIPT))
    logs = [path for path in (call / name for name in LOGS) if path.is_file() and not path.is_symlink()]
    newest = max(logs, key=lambda path: path.stat().st_mtime, default=None)
    return () if newest is None else _trimmed(_said(newest))


def _letters(folder: Path) -> list[Letter]:
    try:
        return find_letters([Mailbox(path=folder / MAILBOX, run=folder.name)])
    except InfraError:
        return []  # half written; `vibeserve inbox list` says what is wrong with it


def _letter_lines(letter: Letter) -> tuple[str, ...]:
    waits = f"waits for an answer until {letter.request.deadline_at}: vibeserve inbox show {letter.request.key}"
    refused = [f"the last answer was refused: {letter.request.refused}"] if letter.request.refused else []
    return _trimmed([waits, *refused])


def _is_call(path: Path) -> bool:
    return KEY.fullmatch(path.name) is not None and (path / PROMPT).is_file()


def _asked_s(call: Path) -> float:
    return (call / PROMPT).stat().st_mtime


def _ended_s(call: Path) -> float:
    """0 where it has not ended."""
    path = call / TRANSCRIPT
    return path.stat().st_mtime if path.is_file() else 0.0


def _answer(call: Path) -> Mapping[str, Any]:
    try:
        found = json.loads((call / ANSWER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _turns(path: Path) -> Iterator[str]:
    try:
        turns = json.loads(path.read_text(encoding="utf-8")).get("turns", ())
    except (OSError, ValueError, AttributeError):
        return
    for turn in turns:
        name = f" {turn.get('name')}" if turn.get("name") else ""
        yield f"{turn.get('kind')}{name}: {turn.get('text')}"


def _said(path: Path) -> Iterator[str]:
    """Lines of a log's end; of a JSON document what somebody says in it."""
    with path.open("rb") as stream:
        skipped = max(0, path.stat().st_size - MAX_BYTES)
        stream.seek(skipped)
        lines = stream.read().decode("utf-8", errors="replace").splitlines()
    for line in lines[1 if skipped else 0 :]:
        try:
            document = json.loads(line)
        except ValueError:
            # the last line may lack its end, and a client may print plain text
            yield "" if line.lstrip().startswith(("{", '"')) else line
            continue
        said = list(_texts(document)) if isinstance(document, dict | list) else [str(document)]
        yield said[-1] if said else ""


def _texts(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key in TEXTS and isinstance(value, str) and value.strip():
                yield value
            else:
                yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)


def _trimmed(lines: Sequence[str] | Iterator[str]) -> tuple[str, ...]:
    """The last lines that say something, each on one line without what a terminal would obey."""
    whole = (" ".join("".join(mark if mark.isprintable() else " " for mark in line).split()) for line in lines)
    kept = [line for line in whole if line][-MAX_LINES:]
    return tuple(line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 3] + "..." for line in kept)
