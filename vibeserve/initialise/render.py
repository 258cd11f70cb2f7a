"""The files under `templates/target/`, rendered strictly: a name that is not given is an error."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from vibeserve.core.paths import data_dir

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, /, **values: Any) -> str:
    """Text of `templates/target/<template>`."""
    text = _environment().get_template(template).render(**values)
    return text.rstrip("\n") + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(data_dir("templates") / "target"), undefined=StrictUndefined, autoescape=False,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
