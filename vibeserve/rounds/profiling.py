"""The profile of what would be accepted, and what it says of the new path."""

from __future__ import annotations

import secrets
from dataclasses import replace

from vibeserve.core.nouns import Activation, Proposal
from vibeserve.profiles import Profile, changed_files, check_activation, judged_activation
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.rounds.nouns import Checkpoint, Team
from vibeserve.rounds.offering import patch_of
from vibeserve.service import Server
from vibeserve.workloads import Pool


def with_profile(team: Team, series: dict[str, Series], server: Server, *, offered: Checkpoint) -> dict[str, Series]:
    """The series, the candidate's with a profile of its server, which still runs and is left paused."""
    name = offered.candidate.candidate_id
    entrant = Entrant(name=name, server=server, is_ours=True)
    # the server has seen the prompts of its windows: the profile's are others
    row = team.evaluator.profiled(
        series[name], entrant, workspace=offered.workspace, load=team.headline_load, pool=Pool.selection,
        seed=secrets.randbits(31),
    )  # fmt: skip
    return {**series, name: row}


def activation_of(
    team: Team, proposal: Proposal, profile: Profile | None, *, offered: Checkpoint, incumbent: Checkpoint
) -> Activation | None:
    """Whether the profiler saw what the proposal names as evidence, or else anything of what it changes; None where
    nothing was profiled."""
    if profile is None:
        return None
    found = check_activation(
        proposal.activation_evidence, profile=profile, workspace=offered.workspace, before=incumbent.profile,
        changed=changed_files(patch_of(team, offered.candidate, incumbent)),
    )  # fmt: skip
    found = judged_activation(found, profile=profile, workspace=offered.workspace, parent=incumbent.workspace)
    team.progress.event("profile", f"activation {found.state.value}: {found.text}")
    return found


def profiled_checkpoint(offered: Checkpoint, row: Series) -> Checkpoint:
    """The checkpoint with what its windows and its profile say of where its time goes."""
    return replace(offered, spans=row.spans, profile=row.profile)
