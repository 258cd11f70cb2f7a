"""`VERDICT.md`: the claim on one page, with everything that a sceptic asks for first. Needs no tool to be read."""

from __future__ import annotations

from collections.abc import Mapping

from vibeserve.core.manifest import Manifest
from vibeserve.report.page import best_claim, markdown_environment

TEMPLATE = "verdict.md.j2"
PATH = "."
"""of the folder that holds the page"""


def render_verdict(manifest: Manifest, *, seeds: Mapping[str, int]) -> str:
    """The page as Markdown. `seeds` are those of the certified traffic, by load and start. Same input, same bytes."""
    headline = manifest.headline()
    return (
        markdown_environment()
        .get_template(TEMPLATE)
        .render(manifest=manifest, headline=headline, best=best_claim(headline), seeds=dict(seeds), path=PATH)
        + "\n"
    )
