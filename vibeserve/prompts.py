"""Prompts of the roles, rendered strictly from `templates/prompts/<role>.md.j2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError

MAX_PROMPT_BYTES = 9 * 1024
"""a prompt says what is needed and names where the rest can be opened"""
CUT = "\n[...]\n"
TRIMMED = ("history", "backlog", "notes", "profile")
RANKED = ("profile",)
"""their largest line comes first"""


def render(role: str, context: Mapping[str, Any]) -> str:
    """The prompt of `role`; InfraError where the template asks for what `context` lacks, or it grows too long."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

    folder = data_dir("templates") / "prompts"
    environment = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    try:
        text = environment.get_template(f"{role}.md.j2").render(context)
    except UndefinedError as error:
        raise InfraError(f"prompt of the {role}: {error.message}") from error
    num_bytes = len(text.encode())
    if num_bytes > MAX_PROMPT_BYTES:
        raise PromptTooLongError(f"prompt of the {role}: {num_bytes} bytes, more than {MAX_PROMPT_BYTES}")
    return text


class PromptTooLongError(InfraError):
    """A prompt beyond `MAX_PROMPT_BYTES`."""


def fitted(role: str, context: Mapping[str, Any], *, trimmed: Sequence[str] = TRIMMED) -> str:
    """Like `render`, but lines of the lists in `trimmed` are left out, of the longest one first, until the prompt is
    short enough: the oldest, and of a list that is ranked the last."""
    while True:
        try:
            return render(role, context)
        except PromptTooLongError:
            lists = {name: list(context.get(name, ())) for name in trimmed}
            longest = max(lists, key=lambda name: _readiness(name, lists[name]))
            if not context.get(longest):
                raise
            context = {**context, longest: lists[longest][:-1] if longest in RANKED else lists[longest][1:]}


def _readiness(name: str, lines: Sequence[str]) -> tuple[bool, bool, int]:
    """Which list loses a line next. The last line of a list goes after all others, because it is the newest; what is
    ranked can be measured again."""
    return len(lines) > 1, len(lines) == 1 and name in RANKED, sum(map(len, lines))


def shortened(text: str, *, max_chars: int) -> str:
    """Beginning and end of a text that is too long, with a mark between them."""
    if len(text) <= max_chars:
        return text
    half = (max_chars - len(CUT)) // 2
    return text[:half] + CUT + text[-half:]


def beginning(text: str, *, max_chars: int, is_lines: bool = False) -> str:
    """As much of a text as has room, from its start: what matters is said first. One line, but for `is_lines`."""
    whole = text if is_lines else " ".join(text.split())
    return whole if len(whole) <= max_chars else f"{whole[: max_chars - 4].rstrip()} ..."


def quoted(text: str, *, max_chars: int) -> str:
    """Text that a candidate or a log wrote, as data: every line behind a bar, so that it cannot pass for the prompt's
    own."""
    lines = shortened(text, max_chars=max_chars).replace("\r", "\n").splitlines()
    return "\n".join(f"| {line}" for line in lines)
