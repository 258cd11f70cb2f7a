"""Writing at the edge."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from vibeserve.core.tables import aligned
from vibeserve.errors import SpecError


def write(text: str) -> None:
    """One line of text on stdout."""
    sys.stdout.write(text + "\n")


def write_json(document: Any) -> None:
    """A JSON document on stdout."""
    from vibeserve.core.documents import to_data

    sys.stdout.write(json.dumps(to_data(document), indent=2) + "\n")


def write_table(rows: Sequence[Sequence[str]]) -> None:
    """Rows with aligned columns; the first row is the heading."""
    for line in aligned(rows):
        write(line)


def unknown_verb_error(word: str) -> SpecError:
    """Neither a verb nor an override; a target's bare name is the usual slip."""
    from vibeserve.cli.table import VERBS
    from vibeserve.config.targets import target_names
    from vibeserve.config.words import unknown

    targets = target_names()
    hint = f"vibeserve +target={word}" if word in targets else "vibeserve +target=NAME, or `vibeserve --help`"
    problems = [f"valid targets: {', '.join(targets) or '(none)'}"]
    return SpecError(unknown("verb", word, [name for name, _, _ in VERBS]), problems=problems, hint=hint)
