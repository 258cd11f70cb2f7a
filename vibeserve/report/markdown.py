"""Text from elsewhere as Markdown that stays text."""

from __future__ import annotations

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", **{mark: f"\\{mark}" for mark in "\\`*[]|"}})


def cell(text: object) -> str:
    """One line in which nothing is markup or ends a table's cell."""
    return " ".join(str(text).split()).translate(_ESCAPED)


def code(text: object) -> str:
    """One line of code, for use within single backticks."""
    return " ".join(str(text).split()).replace("`", "'").replace("|", "\\|")


def share(value: float | None) -> str:
    """`4.2%`; `unknown` where nobody could tell."""
    return "unknown" if value is None else f"{value:.1%}"


def known(value: float | None) -> str:
    """The number; `unknown` where nobody could tell."""
    return "unknown" if value is None else f"{value:.4g}"
