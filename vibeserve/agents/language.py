"""The roles as a language model or a person plays them: a call renders one prompt and turns a valid answer into nouns.

Planner and implementer propose and write; judge and evaluator see the candidate read-only, in a fresh context, and what
they say can add a refusal or a remark, never more.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vibeserve.agents import briefs
from vibeserve.agents.caller import AgentCaller, Answer
from vibeserve.agents.edits import apply_edits, record_edits
from vibeserve.agents.hygiene import remove_tree, tidy_workspace
from vibeserve.agents.port import Explanation, Implementation, PlanningState, Review, Reviewed
from vibeserve.agents.schemas import SCHEMAS, proposal_of, refusals_of
from vibeserve.core.documents import digest_tree
from vibeserve.core.nouns import Proposal, Refusal
from vibeserve.errors import RefusedError
from vibeserve.plan import Plan
from vibeserve.prompts import fitted, quoted
from vibeserve.skills import Skill, assemble, target_facts

MAX_PATCH_CHARS = 2600
IGNORED = shutil.ignore_patterns("build", "__pycache__", ".pytest_cache")
EDITS = "edits"
PATCH = "patch.diff"


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The skills as agents may see them."""

    skills: Sequence[Skill]
    folder: Path
    """readable by agents: the library, or its notes alone"""
    has_components: bool


@dataclass(kw_only=True)
class LanguageRole:
    """What every role needs."""

    caller: AgentCaller
    plan: Plan
    shelf: Shelf
    model_dir: Path
    machine: str
    """what the target runs on, in a line"""
    calibrated: str = ""
    """what a short run of the baselines gave, with its load"""
    python: str = sys.executable
    """as it is called behind the wall"""

    def ask(
        self, *, key: str, context: dict[str, Any], workspace: Path, is_writable: bool = False,
        read_only: tuple[Path, ...] = (), **hooks: Any,
    ) -> Answer:  # fmt: skip
        """Render the role's prompt and ask."""
        role = self.caller.agent.role
        schema = SCHEMAS[role]
        prompt = fitted(
            role,
            {
                "key": key, "python": self.python,
                "target": briefs.target_brief(self.plan, machine=self.machine, calibrated=self.calibrated),
                "has_components": self.shelf.has_components, "schema": briefs.schema_text(schema),
                "workspace": str(workspace), "model_dir": str(self.model_dir), "threads": self.plan.threads, **context,
            },
        )  # fmt: skip
        return self.caller.ask(
            key=key, prompt=prompt, workspace=workspace, is_writable=is_writable, schema=schema,
            read_only=(self.shelf.folder, *read_only), **hooks,
        )  # fmt: skip


class LanguagePlanner(LanguageRole):
    """Proposes from the target's facts, the history and the skills' index."""

    why_stopped = ""

    def propose(self, state: PlanningState) -> Proposal | None:
        number = state.round_number
        answer = self.ask(
            key=f"p{number:02d}-planner",
            context={
                "incumbent": briefs.incumbent_brief(state.incumbent, spans=state.spans, records=state.records),
                "history": briefs.history_brief(state.records), **briefs.planning_brief(state),
                "profile": briefs.profile_brief(state.profile, max_rows=briefs.NUM_PROFILE_ROWS),
                "tried": briefs.tried_brief(state.tried),
                "analysis": briefs.analysis_brief(state.records),
                "skills": briefs.skills_brief(
                    self.shelf.skills, facts=state.facts, folder=self.shelf.folder,
                    bottleneck=briefs.planning_bottleneck(state, plan=self.plan),
                ),
                "min_effect": f"{state.min_effect:.0%}",
                "pins": ", ".join(f"{name}={value}" for name, value in state.pins.items()) or "none",
            },
            workspace=state.workspace, read_only=(state.tried,) if state.tried else (),
        )  # fmt: skip
        if answer.output["decision"] == "stop" or answer.output["proposal"] is None:
            self.why_stopped = f"the planner stops: {answer.output['why']}"
            return None
        proposal = proposal_of(answer.output, proposal_id=f"p{number:03d}")
        return proposal if self.shelf.has_components else replace(proposal, components=(), parameters={})


class LanguageImplementer(LanguageRole):
    """Edits a copy of the incumbent, or of the attempt that was refused."""

    def __init__(self, *, scaffold: Path, **role: Any) -> None:
        super().__init__(**role)
        self._scaffold = scaffold
        self._settled: set[str] = set()
        """keys that were answered in this process"""

    @property
    def origin(self) -> str:
        return self.caller.agent.origin

    def implement(self, proposal: Proposal, given: Implementation) -> None:
        key = f"r{given.number:02d}a{given.attempt}-implementer"
        self._prepare(proposal, given)
        base = given.workspace.with_name(f".{given.workspace.name}.base")
        remove_tree(base)
        shutil.copytree(given.workspace, base)
        try:
            self._edit(key, proposal, given, base=base)
        finally:
            remove_tree(base)

    def _edit(self, key: str, proposal: Proposal, given: Implementation, *, base: Path) -> None:
        recorded = self.caller.folder / key / EDITS
        self._settled.discard(key)
        self.ask(
            key=key, workspace=given.workspace, is_writable=True, restart=lambda: _restore(base, given.workspace),
            read_only=(given.tried,) if given.tried else (),
            settle=lambda output: self._settle(key, output, proposal, given, base=base),
            context={
                "proposal": briefs.proposal_brief(proposal), "attempt": given.attempt,
                "has_tree": given.previous is not None, "is_assembled": self._is_assembled(proposal, given),
                "incumbent": briefs.incumbent_brief(given.assembled, spans={}, records=given.records),
                "history": briefs.history_brief(given.records[-4:]), "tried": briefs.tried_brief(given.tried),
                "refusals": briefs.refusals_brief(given.refusals),
                "profile": briefs.profile_brief(given.profile, max_rows=briefs.NUM_PROFILE_ROWS_SHORT),
                "skills": briefs.skills_brief(
                    self.shelf.skills, facts=target_facts(self.plan.spec, cpu_flags=None), folder=self.shelf.folder,
                    bottleneck=briefs.proposed_bottleneck(proposal), named=proposal.skills,
                ),
            },
        )  # fmt: skip
        if key not in self._settled:
            # answered in an earlier process of this run: what was edited then is edited again
            apply_edits(recorded, given.workspace)

    def _settle(
        self, key: str, output: Mapping[str, Any], proposal: Proposal, given: Implementation, *, base: Path
    ) -> None:
        """Keep the edits of a valid answer; RefusedError for a tree that cannot be judged, or is no other."""
        if output["status"] == "gave_up":
            raise _refused(key, "gave_up", output["summary"])
        tidied = tidy_workspace(given.workspace, before=digest_tree(base))
        if tidied.refusals:
            raise RefusedError(f"{key}: {tidied.refusals[0].text}", reasons=tidied.refusals)
        if digest_tree(base) == digest_tree(given.workspace) and not self._is_assembled(proposal, given):
            raise _refused(key, "no_change", "the workspace is as it was; edit it, or answer with status gave_up")
        record_edits(base, given.workspace, self.caller.folder / key / EDITS)
        self._settled.add(key)

    def _prepare(self, proposal: Proposal, given: Implementation) -> None:
        """The tree that the agent starts from: what was refused, a new assembly, or the incumbent."""
        if given.previous is not None:
            shutil.copytree(given.previous, given.workspace, ignore=IGNORED)
        elif self._is_assembled(proposal, given):
            by_name = {skill.name: skill for skill in self.shelf.skills}
            chosen = [by_name[name] for name in proposal.components]
            assemble(self._scaffold, chosen, proposal.parameters, given.workspace)
        else:
            assert given.incumbent is not None
            shutil.copytree(given.incumbent, given.workspace, ignore=IGNORED)

    def _is_assembled(self, proposal: Proposal, given: Implementation) -> bool:
        """The proposal names another assembly, and the incumbent can be assembled again."""
        before = given.assembled
        is_other = (proposal.components, proposal.parameters) != (before.components, before.parameters)
        return self.shelf.has_components and is_other and bool(proposal.components) and not given.assembled.is_edited

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        """The same proposal; the refusals reach the agent with its own tree. Who gave up is not asked again."""
        if any(refusal.reason_class == "gave_up" for refusal in refusals):
            return None
        return replace(proposal, proposal_id=f"{proposal.proposal_id}b")


class LanguageJudge(LanguageRole):
    """Reads the change when every gate has passed it; can only refuse."""

    def review(self, review: Review) -> Reviewed:
        key = f"r{review.number:02d}a{review.attempt}-judge"
        patch = _patch_file(self.caller.folder / key, review.patch)
        verdict = review.verdict
        answer = self.ask(
            key=key, workspace=review.workspace, read_only=(patch,),
            context={
                "proposal": briefs.proposal_brief(review.proposal),
                "patch": briefs.patch_excerpt(review.patch, max_chars=MAX_PATCH_CHARS), "patch_file": str(patch),
                "figures": briefs.compared_rows(review.metrics),
                "spans": {name: briefs.spans_text(review.spans.get(name, {})) for name in ("candidate", "incumbent")},
                "checks": ", ".join(verdict.checks) or "none",
                "accuracy": ", ".join(f"{name} {value:.4g}" for name, value in sorted(verdict.accuracy.items())[:12]),
                "decision": review.decision.reason if review.decision else "not measured",
            },
        )  # fmt: skip
        return Reviewed(refusals=tuple(refusals_of(answer.output)), remark=answer.output["summary"])


class LanguageEvaluator(LanguageRole):
    """Says what the measurements mean; the next planner reads it."""

    def explain(self, explanation: Explanation) -> str:
        record = explanation.record
        key = f"r{record.number:02d}-evaluator"
        patch = _patch_file(self.caller.folder / key, explanation.patch)
        answer = self.ask(
            key=key, workspace=explanation.workspace, read_only=(patch,),
            context={
                "proposal": briefs.proposal_brief(record.proposal) if record.proposal else {},
                "outcome": record.outcome.value, "reason": quoted(record.reason, max_chars=600),
                "figures": briefs.compared_rows(record.metrics)[:16], "patch_file": str(patch),
                "pairs": briefs.pairs_text(record.decision), "remark": quoted(record.remark, max_chars=500),
                "checks": ", ".join(record.verdict.checks) if record.verdict else "none",
                "history": briefs.history_brief(explanation.records[-5:]), "skills_folder": str(self.shelf.folder),
                "incumbent_spans": briefs.spans_text(explanation.incumbent_spans),
                "patch": briefs.patch_excerpt(explanation.patch, max_chars=MAX_PATCH_CHARS),
                "spans": briefs.spans_text(record.spans),
                "profile": briefs.profile_brief(explanation.profile, max_rows=briefs.NUM_PROFILE_ROWS),
            },
        )  # fmt: skip
        rows = [f"{row['span']} {row['share']:.0%}: {row['why']}" for row in answer.output["bottlenecks"]]
        return "\n".join([f"next: {answer.output['advice']}", answer.output["summary"], *rows])


def _patch_file(folder: Path, patch: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PATCH
    path.write_text(patch, encoding="utf-8")
    return path


def _restore(base: Path, workspace: Path) -> None:
    """The workspace as it was before the agent came."""
    remove_tree(workspace)
    shutil.copytree(base, workspace)


def _refused(key: str, reason_class: str, text: str) -> RefusedError:
    return RefusedError(f"{key}: {text}", reasons=[Refusal(gate="agent", reason_class=reason_class, text=text)])
