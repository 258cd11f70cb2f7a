"""Declared values that nothing would read, or that could bound nothing: said instead of ignored."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.config.words import suggest
from vibeserve.core.nouns import METRICS
from vibeserve.spec import MODEL_FREE, ROLES, DeclaredValue, Spec, resolve_role

OF_A_MODEL = ("model", "effort", "base_url", "api_key_env", "max_tokens", "max_usd")
"""of an agent: says something about the model behind it"""


def unused_values(spec: Spec) -> Iterator[str]:
    """One line for each, starting with its key."""
    for role in ROLES:
        own, backend = getattr(spec.agents, role), resolve_role(spec.agents, role).backend
        for name in OF_A_MODEL:
            if backend in MODEL_FREE and getattr(own, name):
                yield f"agents.{role}.{name}: the back end {backend} asks no model and would ignore it"
    if all(resolve_role(spec.agents, role).backend in MODEL_FREE for role in ROLES):
        for name in OF_A_MODEL[:4]:
            if getattr(spec.agents, name):
                yield f"agents.{name}: the back end {spec.agents.backend} asks no model and would ignore it"
    for peer, baseline in spec.baseline.items():
        for index, item in enumerate(baseline.declared):
            yield from _figure(spec, item, key=f"baseline.{peer}.declared[{index}]")


def _figure(spec: Spec, item: DeclaredValue, *, key: str) -> Iterator[str]:
    if item.metric not in METRICS:
        guess = suggest(item.metric, METRICS)
        yield f"{key}.metric: '{item.metric}' is not valid{guess}{' ' if guess else '; '}valid: {', '.join(METRICS)}"
    if item.value <= 0:
        yield f"{key}.value: {item.value:g} is not above 0"
    if item.load and item.load not in spec.workload.loads:
        yield f"{key}.load: '{item.load}' is no declared load; valid: {', '.join(spec.workload.loads)}"
