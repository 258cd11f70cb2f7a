"""One proposal through the inner loop, with its further attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.agents import Explanation, Implementation, PlanningState
from vibeserve.core.nouns import Candidate, Outcome, Proposal, Refusal, RefusedAttempt, Round, Verdict
from vibeserve.core.storage import refuse_full_disk
from vibeserve.errors import (
    AgentInfraError,
    ContractError,
    InfraError,
    RefusedError,
    ServerError,
    SpecError,
    StorageError,
    VibeServeError,
)
from vibeserve.profiles import Profile
from vibeserve.rounds.measuring import Ground, judge_and_measure, refused_result
from vibeserve.rounds.nouns import Checkpoint, RoundResult, Team, first_line
from vibeserve.rounds.offering import Prepared, fresh_workspace, offer, patch_of, workspace_of


def run_round(
    team: Team, proposal: Proposal, *, number: int, ground: Ground, state: PlanningState,
    why_ends: Callable[[Round], str] = lambda record: "", prepared: Prepared | None = None,
) -> RoundResult:  # fmt: skip
    """One proposal through the inner loop, a refused one revised as often as the budget's attempts allow.

    `prepared` is its first attempt, where that was made ready beside others.
    Before another attempt `why_ends` is asked, with the refused one's record, whether there shall be one.
    Never raises for what a candidate does; infrastructure failures become `infra`. ContractError where a file of the
    target's folder fails, AgentInfraError and AgentCapError where an agent cannot be asked: then the round did not
    happen; so does StorageError where the disk is full.
    """
    refuse_full_disk(team.bench.run_dir)
    started_s = team.monotonic()
    earlier: list[Round] = []
    current = proposal
    while True:
        ready = None if earlier else prepared
        given = given_for(team, number=number, parent=ground.parent, records=state.records, earlier=earlier)
        if ready is None:
            fresh_workspace(team, given.workspace.name)
        result = _attempt(team, current, given=given, ground=ground, prepared=ready)
        record = result.record
        if not record.is_refused or record.attempts >= team.bench.plan.spec.budget.attempts:
            break
        ended = why_ends(record)
        if ended:
            record = replace(record, reason=f"{record.reason}; {ended}")
            break
        refusals = record.verdict.refusals if record.verdict else ()
        tried = replace(state, records=[*state.records, *earlier, record])
        revised = team.implementer.revise(record.proposal or current, refusals=refusals, state=tried)
        if revised is None:
            break
        team.progress.event(f"round {number}", f"{record.reason}; another attempt: {revised.title}")
        earlier.append(record)
        current = revised
    attempts = tuple(_refused_attempt(refused) for refused in earlier)
    profile = result.checkpoint.profile if result.checkpoint is not None else None
    analysis = _explained(team, record, parent=ground.parent, records=state.records, profile=profile)
    record = replace(record, refused_attempts=attempts, analysis=analysis)
    _keep_patch(team, record, parent=ground.parent)
    return replace(result, record=replace(record, seconds=team.monotonic() - started_s))


def given_for(
    team: Team, *, number: int, parent: Checkpoint, records: Sequence[Round], earlier: Sequence[Round] = ()
) -> Implementation:
    """What the next attempt of a round starts from. The workspace is named, not made."""
    attempt = len(earlier) + 1
    last = earlier[-1] if earlier else None
    tree = last.candidate.workspace if last is not None and last.candidate is not None else ""
    return Implementation(
        workspace=workspace_of(team, f"r{number:02d}a{attempt}"), number=number, attempt=attempt,
        incumbent=parent.workspace, assembled=parent.assembled, previous=Path(tree) if tree else None,
        refusals=last.verdict.refusals if last is not None and last.verdict is not None else (), records=records,
        tried=tried_folder(team), profile=parent.profile,
    )  # fmt: skip


def tried_folder(team: Team) -> Path:
    """Patches of candidates that passed every gate and were not faster: work that a later round may build on."""
    folder = team.bench.run_dir / "tried"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _keep_patch(team: Team, record: Round, *, parent: Checkpoint) -> None:
    if record.candidate is not None and record.outcome is Outcome.REJECTED and not record.is_refused:
        keep_patch(team, record.candidate, parent=parent, name=record.candidate.candidate_id)


def keep_patch(team: Team, candidate: Candidate, *, parent: Checkpoint, name: str) -> None:
    """Leave a candidate's patch for later rounds (`tried_folder`)."""
    path = tried_folder(team) / f"{name}.diff"
    path.write_text(patch_of(team, candidate, parent), encoding="utf-8")


def _explained(
    team: Team, record: Round, *, parent: Checkpoint, records: Sequence[Round], profile: Profile | None
) -> str:
    """The evaluator's remark on a measured round. It decides nothing, so a missing one is told and no more."""
    if record.candidate is None or not record.metrics:
        return ""
    given = Explanation(
        record=record, workspace=Path(record.candidate.workspace), patch=patch_of(team, record.candidate, parent),
        incumbent_spans=parent.spans, records=records, profile=profile,
    )  # fmt: skip
    try:
        return team.explainer.explain(given)
    except RefusedError as error:
        team.progress.event(f"round {record.number}", f"no remark of the evaluator: {first_line(error)}")
        return ""


def _refused_attempt(record: Round) -> RefusedAttempt:
    assert record.proposal is not None
    return RefusedAttempt(
        proposal=record.proposal, candidate=record.candidate, outcome=record.outcome, reason=record.reason,
        verdict=record.verdict, metrics=record.metrics,
    )  # fmt: skip


def _attempt(
    team: Team, proposal: Proposal, *, given: Implementation, ground: Ground, prepared: Prepared | None
) -> RoundResult:
    """The round's boundary: what goes wrong in here is an outcome, not an exception; but for ContractError, and for an
    agent that cannot be asked."""
    name = given.workspace.name
    record = Round(
        number=given.number, proposal=proposal, candidate=None, outcome=Outcome.CRASHED, reason="",
        attempts=given.attempt,
    )  # fmt: skip
    try:
        proposal, offered = prepared.give() if prepared else offer(team, proposal, given=given)
        record = replace(record, proposal=proposal, candidate=offered.candidate)
        if prepared is not None and prepared.screening is not None:
            return refused_result(record, prepared.screening)
        return judge_and_measure(team, offered, record=record, ground=ground, name=name)
    except (ContractError, AgentInfraError, StorageError):
        raise  # broken files of the target, a model's API that fails, a full disk: none says anything about a candidate
    except (InfraError, RefusedError, SpecError) as error:
        refuse_full_disk(team.bench.run_dir)  # a server may have died of it
        return RoundResult(record=_failed(record, error, opponents=ground.opponents))


def _failed(record: Round, error: VibeServeError, *, opponents: Sequence[str]) -> Round:
    """What an error says about the candidate; about the machine where it is nobody's or an opponent's."""
    reason = first_line(error)
    outcome = Outcome.REJECTED
    if isinstance(error, ServerError) and error.name not in opponents:
        outcome = Outcome.TIMED_OUT if error.outcome == "timed_out" else Outcome.CRASHED
        verdict = _refuse(Refusal(gate="serving", reason_class=error.outcome, text=str(error)))
    elif isinstance(error, SpecError):
        # the proposal itself cannot be built: components that do not go together, parameters out of range
        verdict = _refuse(Refusal(gate="assembly", reason_class="invalid_proposal", text=str(error)))
    elif isinstance(error, RefusedError):
        typed = [reason for reason in error.reasons if isinstance(reason, Refusal)]
        verdict = _refuse(*(typed or [Refusal(gate="workspace", reason_class="refused", text=str(error))]))
    else:
        return replace(record, outcome=Outcome.INFRA, reason=reason)
    return replace(record, outcome=outcome, reason=reason, verdict=verdict)


def _refuse(*refusals: Refusal) -> Verdict:
    return Verdict(refusals=refusals, checks=tuple(sorted({refusal.gate for refusal in refusals})))
