"""Where a target can run: on this machine, on a host that is only declared, or nowhere yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vibeserve.config.host_options import HostOption
from vibeserve.config.semantics import DECLARED_ONLY
from vibeserve.errors import InfraError, SpecError
from vibeserve.hardware import HardwareFacts, describe, lack
from vibeserve.modalities import target_folders
from vibeserve.plan.layouts import layout_obstacles
from vibeserve.plan.nouns import Obstacle, Plan
from vibeserve.skills import compose_scaffold, engine_problem
from vibeserve.spec import Host, Spec, place_of
from vibeserve.workloads import not_yet

AT_HAND = ("local",)
"""kinds of host that a plan knows without asking: this machine"""


def is_here(spec: Spec, facts: HardwareFacts, *, is_asked: bool = False) -> bool:
    """The target would run on the machine of `facts`, and that has the declared hardware. `is_asked`: the facts are
    those of the declared host, which has been asked; else they are this machine's."""
    return (is_asked or spec.host.kind in AT_HAND) and lack(spec.hardware, facts) is None


def obstacles_of(
    spec: Spec, facts: HardwareFacts, *, hosts: Sequence[HostOption], is_asked: bool = False
) -> tuple[Obstacle, ...]:
    """Why the target cannot be run from here, hardware first."""
    texts = [*_host_obstacle(spec, facts, hosts=hosts, is_asked=is_asked)]
    found = [Obstacle(kind="host", text=text) for text in texts]
    found += [Obstacle(kind="version", text=text) for text in not_yet(spec)]
    found += [Obstacle(kind="baseline", text=text) for text in _baseline_obstacles(spec)]
    found += [Obstacle(kind="version", text=text) for text in layout_obstacles(spec)]
    return (*found, *(Obstacle(kind="scaffold", text=text) for text in _scaffold_obstacles(spec)))


def _host_obstacle(
    spec: Spec, facts: HardwareFacts, *, hosts: Sequence[HostOption], is_asked: bool
) -> Iterator[str]:
    if is_asked and spec.host.kind not in AT_HAND:
        missing = lack(spec.hardware, facts)
        if missing:
            yield f"host {place_of(spec.host)} has no {describe(spec.hardware)}: {missing}"
    elif spec.host.kind not in AT_HAND:
        yield (
            f"host.kind {spec.host.kind} ({place_of(spec.host)}): planned as declared, because a plan asks no other "
            "machine; a run does, and vibeserve doctor says what is there"
        )
    elif not is_here(spec, facts):
        lacks = "; ".join(f"{option.name}: {_why_not(option, spec, facts)}" for option in hosts)
        yield f"no configured host has {describe(spec.hardware)}: {lacks}"


def _why_not(option: HostOption, spec: Spec, facts: HardwareFacts) -> str:
    if option.fault:
        return option.fault
    if option.host.kind in AT_HAND:
        return lack(spec.hardware, facts) or "has it; select it"
    return f"kind {option.host.kind} ({place_of(option.host)}), not asked; select it by host={option.name}"


def _baseline_obstacles(spec: Spec) -> Iterator[str]:
    """A required baseline that nothing here can start: no ratio to it could ever be certified."""
    for name, declared in spec.baseline.items():
        if declared.required and name in DECLARED_ONLY:
            yield f"baseline.{name}: required, and has no launcher in this version"


def _scaffold_obstacles(spec: Spec) -> Iterator[str]:
    """Why round 0 has nothing to start from."""
    try:
        composition = compose_scaffold(spec.model, folders=target_folders(spec))
    except SpecError as error:
        yield "; ".join([str(error).splitlines()[0], *error.problems])
        return
    problem = engine_problem(composition, allow_engines=spec.allow_engines, architecture=spec.model.architecture)
    if problem is not None:
        yield problem


def next_steps(spec: Spec, obstacles: Sequence[Obstacle]) -> tuple[str, ...]:
    """What would remove the obstacles: the two lines that add a host, and the twin that runs without it."""
    if not any(obstacle.kind == "host" for obstacle in obstacles):
        return ()
    lines = []
    if spec.host.kind in AT_HAND:
        lines += [
            "to add a host, write conf/host/NAME.yaml in your repository and select it by host=NAME:",
            "  kind: ssh",
            "  address: user@machine",
            "what is built, served and measured is there then; agents and keys stay here (docs/hosts.md)",
        ]
    if spec.target.twin:
        lines.append(f"twin: vibeserve +target={spec.target.twin}")
    return tuple(lines)


def refuse_obstacles(plan: Plan) -> None:
    """Stop before anything is spent.

    InfraError (exit 5) where the hardware or a required baseline is not to be had, SpecError (exit 2) where this
    version cannot serve what is declared.
    """
    if not plan.obstacles:
        return
    texts = [obstacle.text for obstacle in plan.obstacles]
    kinds = {obstacle.kind for obstacle in plan.obstacles}
    if "host" in kinds or kinds == {"baseline"}:
        lines = [f"target '{plan.target}' cannot run from here; nothing was started or written", *texts]
        raise InfraError("\n".join([*lines, *plan.next_steps]))
    is_declaration = all(obstacle.kind == "scaffold" for obstacle in plan.obstacles)
    raise SpecError(
        f"target '{plan.target}' does not run {'as it is declared' if is_declaration else 'in this version'}",
        problems=texts,
        hint="docs/contract.md" if is_declaration else "vibeserve list shows what runs here",
    )


def default_hosts() -> list[HostOption]:
    """This machine alone."""
    return [HostOption(name="local", host=Host())]
