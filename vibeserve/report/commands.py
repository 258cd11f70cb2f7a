"""Entry point of `vibeserve report`; the work is `artifact.page`, which knows how an artifact is read."""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """`vibeserve report PATH`."""
    from vibeserve.artifact.page import main as render

    return render(argv)
