"""Wording that error messages share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(word: str, options: Iterable[str]) -> str:
    """`; did you mean 'x'?` when an option is close to `word`, else nothing."""
    close = get_close_matches(word, list(options), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(what: str, word: str, options: Iterable[str]) -> str:
    """`unknown <what> '<word>'; did you mean ...? valid: ...` with the options sorted."""
    names = sorted(options)
    guess = suggest(word, names)
    return f"unknown {what} '{word}'{guess}{' ' if guess else '; '}valid: {', '.join(names)}"
