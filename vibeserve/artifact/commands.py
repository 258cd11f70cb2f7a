"""Entry points of the verbs on artifacts; each imports its module when it is called."""

from __future__ import annotations


def verify(argv: list[str]) -> int:
    """`vibeserve verify PATH`."""
    from vibeserve.artifact.verify import main

    return main(argv)


def sign(argv: list[str]) -> int:
    """`vibeserve sign PATH --key KEY`."""
    from vibeserve.artifact.sign import main

    return main(argv)


def serve(argv: list[str]) -> int:
    """`vibeserve serve PATH`."""
    from vibeserve.artifact.serve import main

    return main(argv)


def report(argv: list[str]) -> int:
    """`vibeserve report PATH`."""
    from vibeserve.artifact.page import main

    return main(argv)
