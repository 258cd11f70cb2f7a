"""The text of `vibeserve inbox`: all that somebody needs who sees nothing else but the workspace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.agents.mailbox.words import schema_in_words

if TYPE_CHECKING:
    from vibeserve.agents.mailbox import Letter, Submitted

RULE = "-" * 100
LATER = "an answer is taken when the run is started again"


def letter_text(letter: Letter, *, became: str = "") -> str:
    """What is asked, where to work, what the output holds, and how to submit it; what became of an earlier answer."""
    prompt = (letter.folder.path / letter.request.prompt_file).read_text(encoding="utf-8")
    told = [f"became     {became}"] if became else []
    return printable("\n".join([*_facts(letter), *told, *_section("prompt"), prompt.rstrip(), *_answer(letter)]))


def submitted_text(letter: Letter, done: Submitted, *, is_waited_for: bool) -> str:
    """What was accepted, and what happens with it."""
    lines = [f"submitted {done.result.key}, try {done.result.tries}"]
    if letter.request.is_writable:
        groups = (("added", done.added), ("changed", done.changed), ("deleted", done.deleted))
        lines += [f"  {word:<8} {name}" for word, names in groups for name in names]
        if not any(names for _, names in groups):
            lines.append("  the workspace is as it was")
    if done.left_out:
        lines.append(f"left out, being no part of a runtime: {', '.join(done.left_out)}")
    lines.append("a run waits for it" if is_waited_for else f"no run waits for it now; {LATER}")
    return printable("\n".join(lines))


def printable(text: str) -> str:
    """Without what a terminal takes for a command: a prompt quotes what candidates wrote."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in text)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `1.5 h`"""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _facts(letter: Letter) -> Iterator[str]:
    request, row = letter.request, letter.row()
    run = f", run {letter.mailbox.run}" if letter.mailbox.run else ""
    yield f"request    {request.key}, try {request.tries}{run}"
    yield f"role       {request.role}"
    if letter.state != "open":
        yield f"state      {letter.state}{f': {request.why}' if request.why else ''}; no answer is taken now"
    else:
        waited = "a run waits" if row["is_waited_for"] else f"no run waits now; {LATER}"
        yield f"deadline   {request.deadline_at}, in {duration(row['remaining_s'])} ({waited})"
    yield f"workspace  {request.workspace}"
    if request.is_writable:
        yield "           edit its files in place: as they are when you submit, they are the answer, with the output"
    else:
        yield "           a copy to read; nothing that you change there counts"
    yield from (f"read only  {path}" for path in request.read_only)
    if request.feedback:
        yield from _quoted("the output of the try before was refused", request.feedback)
    if request.refused:
        yield from _quoted("a result.json was set aside", request.refused)


def _quoted(title: str, text: str) -> Iterator[str]:
    yield f"{title}:"
    yield from (f"  | {line}" for line in text.splitlines())


def _section(title: str) -> list[str]:
    return ["", f"{RULE[:4]} {title} {RULE[len(title) + 6 :]}"]


def _answer(letter: Letter) -> Iterator[str]:
    yield from _section("output")
    yield "one JSON document:"
    yield from schema_in_words(letter.request.output_schema)
    yield f"(the JSON Schema is output_schema in {letter.folder.path / 'request.json'})"
    yield from _section("submit")
    yield letter.submit_command
    place = ", outside of the workspace" if letter.request.is_writable else ""
    yield f"FILE holds the document{place}; `-` reads it from standard input; `--by NAME` says who you are"
