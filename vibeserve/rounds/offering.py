"""From a proposal to a committed candidate: implemented, tuned, frozen."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.agents import TUNING_CARD, Assembled, Implementation
from vibeserve.agents.hygiene import remove_tree
from vibeserve.core.documents import digest_tree
from vibeserve.core.nouns import Candidate, Proposal
from vibeserve.errors import RefusedError, ServerError, SpecError, VibeServeError
from vibeserve.roles.evaluator import Entrant
from vibeserve.roles.judge import Screening
from vibeserve.rounds.nouns import Checkpoint, Team, first_line
from vibeserve.service import Server
from vibeserve.skills import Skill, declared_parameters, pinned_values, resolve
from vibeserve.skills.assembler import ASSEMBLY_PATH, SCAFFOLD_ORIGIN
from vibeserve.workloads import Pool


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A first attempt up to where the device is needed: the committed candidate, or why there is none."""

    proposal: Proposal
    offered: Checkpoint | None = None
    screening: Screening | None = None
    """where the static gates or the build refused"""
    error: VibeServeError | None = None

    def give(self) -> tuple[Proposal, Checkpoint]:
        """What was offered; raises what the implementation raised."""
        if self.error is not None:
            raise self.error
        assert self.offered is not None
        return self.proposal, self.offered


def prepare(team: Team, proposal: Proposal, *, given: Implementation) -> Prepared:
    """Implement, commit, scan and build. Several may be prepared at once, each in a workspace of its own; nothing is
    started and nothing is measured."""
    try:
        proposal, offered = offer(team, proposal, given=given)
        return Prepared(proposal=proposal, offered=offered, screening=team.judge.screen_statically(offered.workspace))
    except VibeServeError as error:
        return Prepared(proposal=proposal, error=error)


def offer(team: Team, proposal: Proposal, *, given: Implementation) -> tuple[Proposal, Checkpoint]:
    """Implement the proposal (its best variant, where it tunes) and commit it."""
    _refuse_moved_pins(team, proposal)
    name = given.workspace.name
    if proposal.variants:
        proposal = _best_variant(team, proposal, given=given)
    team.implementer.implement(proposal, given)
    return proposal, commit(team, given.workspace, name=name, proposal=proposal, before=given.assembled)


def _refuse_moved_pins(team: Team, proposal: Proposal) -> None:
    """SpecError where a planner, whoever it is, gives a pinned parameter another value."""
    declared = declared_parameters(team.scaffold, resolve(proposal.components, team.skills))
    pins = pinned_values(declared, {**team.bench.plan.spec.search.pins, **team.pins})
    offered = proposal.variants or (proposal.parameters,)
    moved = [
        f"{name} is pinned to {pin!r}, proposed is {parameters.get(name, declared[name].default)!r}"
        for name, pin in pins.items()
        for parameters in offered
        if parameters.get(name, declared[name].default) != pin
    ]
    if moved:
        raise SpecError("the proposal moves a pinned parameter", problems=moved)


def commit_seed(team: Team, workspace: Path, *, name: str, origin: str) -> Checkpoint:
    """Freeze round 0's workspace, whoever it comes from."""
    offered = commit(team, workspace, name=name, proposal=None)
    assembled = assembled_of(workspace, known={skill.name for skill in team.skills if skill.card is not None})
    if origin == SCAFFOLD_ORIGIN and not assembled.components:
        return offered
    team.clock.declare(name, factor=expected_factor(team.skills, assembled))
    return replace(offered, candidate=replace(offered.candidate, origin=origin), assembled=assembled)


def assembled_of(workspace: Path, *, known: Collection[str]) -> Assembled:
    """What a workspace that was made elsewhere says that it is assembled from: edited where a file of it is not as it
    was assembled, and without components where nothing says, or where one of them is not `known` here."""
    try:
        assembly = json.loads((workspace / ASSEMBLY_PATH).read_text(encoding="utf-8"))
        rows = {row["path"]: row["digest"] for row in assembly["files"]}
        components = tuple(sorted(row["name"] for row in assembly["components"]))
        parameters = dict(assembly["parameters"])
    except (OSError, ValueError, KeyError, TypeError):
        return Assembled(is_edited=True)  # somebody else's, or edited by an agent
    if not set(components) <= set(known):
        return Assembled(is_edited=True)
    found = {path: digest for path, digest in digest_tree(workspace).items() if path != ASSEMBLY_PATH}
    return Assembled(components=components, parameters=parameters, is_edited=rows != found)


def commit(
    team: Team, workspace: Path, *, name: str, proposal: Proposal | None, before: Assembled | None = None
) -> Checkpoint:
    """Freeze a workspace as a candidate: a commit under the run's own refs."""
    title = proposal.title if proposal else "round 0: the seed"
    sha = team.store.commit(workspace, parent=None, message=title, ref=f"refs/vibeserve/{team.run_id}/{name}")
    origin = (team.implementer.origin if proposal else "") or origin_of(proposal)
    candidate = Candidate(candidate_id=name, commit=sha, workspace=str(workspace), origin=origin)
    assembled = (
        Assembled(components=proposal.components, parameters=dict(proposal.parameters)) if proposal else Assembled()
    )
    if proposal and team.implementer.origin:
        forecast = proposal.forecast_ratio * (before.forecast if before else 1.0)
        assembled = replace(assembled, is_edited=True, forecast=forecast)
    team.clock.declare(name, factor=expected_factor(team.skills, assembled))
    return Checkpoint(candidate=candidate, assembled=assembled, workspace=workspace, num_lines=count_lines(workspace))


def origin_of(proposal: Proposal | None) -> str:
    """Who is credited with an assembled candidate's gain."""
    if proposal is None:
        return SCAFFOLD_ORIGIN
    return "tuning" if proposal.variants or proposal.card == TUNING_CARD else f"component:{proposal.card}"


def expected_factor(skills: Sequence[Skill], assembled: Assembled) -> float:
    """Product of the cards' expected factors, or of the forecasts where an agent wrote: what the fake clock pretends to
    measure."""
    if assembled.is_edited:
        return assembled.forecast
    factor = 1.0
    for skill in skills:
        if skill.name in assembled.components and skill.card is not None:
            factor *= skill.card.expected_factor
    return factor


def count_lines(workspace: Path) -> int:
    """Lines of the runtime's sources."""
    sources = [path for suffix in ("*.py", "*.cpp", "*.h") for path in (workspace / "runtime").rglob(suffix)]
    return sum(len(path.read_text(encoding="utf-8", errors="replace").splitlines()) for path in sources)


def workspace_of(team: Team, name: str) -> Path:
    return team.bench.run_dir / "workspaces" / name


def fresh_workspace(team: Team, name: str) -> Path:
    """A new folder under the run for one workspace; what an interrupted attempt left there goes."""
    workspace = workspace_of(team, name)
    remove_tree(workspace)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    return workspace


def _best_variant(team: Team, proposal: Proposal, *, given: Implementation) -> Proposal:
    """Start every variant that builds, halve them by short windows, and offer the best one alone."""
    schedule, name = team.bench.plan.schedule, given.workspace.name
    running: dict[str, tuple[Server, Proposal]] = {}
    try:
        for position, parameters in enumerate(proposal.variants):
            variant = replace(proposal, parameters=parameters)
            label = f"{name}v{position}"
            workspace = fresh_workspace(team, label)
            team.implementer.implement(variant, replace(given, workspace=workspace))
            assembled = Assembled(components=variant.components, parameters=dict(parameters))
            team.clock.declare(label, factor=expected_factor(team.skills, assembled))
            try:
                team.bench.build(workspace)
                running[label] = (team.bench.serve(workspace, name=label), variant)
            except (RefusedError, ServerError) as error:
                team.progress.event(proposal.proposal_id, f"variant {parameters} does not start: {first_line(error)}")
        if not running:
            raise ServerError(name, outcome="died", detail="no variant starts", log_tail="")
        best = team.evaluator.halve(
            [Entrant(name=label, server=server) for label, (server, _) in running.items()],
            load=team.headline_load, pool=Pool.selection, seed=secrets.randbits(31), metric=team.headline,
            window_s=schedule.search_window_s / 2, warmup_s=schedule.search_warmup_s,
        )  # fmt: skip
        return running[best][1]
    finally:
        for server, _ in running.values():
            server.stop(drain_s=0)


def patch_of(team: Team, candidate: Candidate, incumbent: Checkpoint) -> str:
    return team.store.diff(incumbent.candidate.commit, candidate.commit)
