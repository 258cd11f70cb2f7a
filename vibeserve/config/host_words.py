"""A host by itself, as `host=NAME host.KEY=VALUE` say it: what a command asks that is about no target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from vibeserve.config.explain import explained
from vibeserve.config.faults import fault_lines
from vibeserve.config.host_rules import incomplete_host
from vibeserve.config.overrides import read_overrides
from vibeserve.config.recompose import chosen_options
from vibeserve.config.targets import group_options
from vibeserve.errors import SpecError
from vibeserve.spec import Host

HINT = "vibeserve doctor host=ssh host.address=user@machine"


def compose_host(overrides: Sequence[str], *, cwd: Path | None = None) -> Host:
    """The host that the overrides name; SpecError for anything that is about something else, and for a host that cannot
    be reached as it is declared."""
    from omegaconf import OmegaConf

    here = (cwd or Path.cwd()).resolve()
    given = read_overrides(overrides, options=group_options(here))
    problems = fault_lines(given.faults) if given.faults else []
    keys = [*given.groups, *(key for key, _ in given.values), *given.removed]
    problems += [f"{key}: only host and its keys say where to look" for key in keys if key.split(".")[0] != "host"]
    if problems:
        raise SpecError("overrides are not valid", problems=problems, hint=HINT)
    with explained():
        config = OmegaConf.structured(Host())
        if given.groups:
            config = OmegaConf.merge(config, chosen_options(given.groups, here=here).host)
        for key, value in given.values:
            OmegaConf.update(config, key.removeprefix("host."), value)
        host = cast(Host, OmegaConf.to_object(config))
    # whoever asks what is missing may not know of an image yet
    incomplete = tuple(each for each in incomplete_host(host) if host.image or not each.startswith("host.image"))
    if incomplete:
        raise SpecError("no host to look at", problems=incomplete, hint=HINT)
    return host
