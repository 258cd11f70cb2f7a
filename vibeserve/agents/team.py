"""The four agents of a run, as declared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.agents import opened
from vibeserve.agents.ledger import Cap, Ledger, Spend
from vibeserve.agents.opened import Opened, opened_in
from vibeserve.agents.port import Agents, EvaluatorAgent, ImplementerAgent, JudgeAgent, PlannerAgent
from vibeserve.agents.prices import load_prices
from vibeserve.agents.requests import AgentBackend, Turn
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.core.documents import from_data
from vibeserve.errors import SpecError
from vibeserve.journal import Journal
from vibeserve.plan import Plan
from vibeserve.progress import Progress
from vibeserve.skills import Skill, gathered
from vibeserve.spec import MODEL_FREE, ROLES, Budget, RoleAgent, Search, resolve_role
from vibeserve.spec import Agents as Declared

if TYPE_CHECKING:
    from vibeserve.agents.language import Shelf

SPEND = "spend"
"""event of the journal: one answered request to a model"""
NOTES = ("SKILL.md", "references")
"""of a skill: what is knowledge and no code"""


@dataclass(frozen=True, kw_only=True)
class AgentSetting:
    """What agents of a run share."""

    plan: Plan
    skills: Sequence[Skill]
    skills_dir: Path
    scaffold: Path
    model_dir: Path
    machine: str
    folder: Path
    """of the run: `agents/` and `mailbox/` come below it"""
    journal: Journal
    sandbox: ToolSandbox
    progress: Progress
    remaining_s: Callable[[], float]
    calibrated: str = ""
    aside: Callable[[], AbstractContextManager[None]] = nullcontext
    """around a wait for a person: the devices are given back, and the run's time stands still"""


def make_ledger(declared: Declared, *, budget: Budget, journal: Journal) -> Ledger:
    """The caps, and what was spent so far."""
    ledger = Ledger(
        run_cap=Cap(tokens=budget.tokens, usd=budget.usd), prices=load_prices(declared.price),
        role_caps={
            role: Cap(tokens=agent.max_tokens, usd=agent.max_usd)
            for role in ROLES
            for agent in (resolve_role(declared, role),)
        },
        record=lambda spend: _journalled(journal, spend),
    )  # fmt: skip
    ledger.restore(from_data(Spend, event.data) for event in journal.events(SPEND))
    return ledger


def _journalled(journal: Journal, spend: Spend) -> None:
    journal.append(SPEND, spend)


def make_agents(setting: AgentSetting) -> Agents:
    """One agent a role. SpecError lists what is valid for an unknown back end or policy."""
    from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookImplementer, PlaybookJudge

    spec = setting.plan.spec
    skills = visible_skills(setting.skills, has_components=spec.skills.components)
    planner: PlannerAgent = make_planner(spec.search)
    implementer: ImplementerAgent = PlaybookImplementer(setting.scaffold, skills=skills)
    judge: JudgeAgent = PlaybookJudge()
    evaluator: EvaluatorAgent = PlaybookEvaluator()
    asked = [role for role in ROLES if resolve_role(spec.agents, role).backend not in MODEL_FREE]
    if asked:
        from vibeserve.agents import language

        roles = _language_roles(setting, asked=asked, skills=skills)
        planner = language.LanguagePlanner(**roles["planner"]) if "planner" in roles else planner
        if "implementer" in roles:
            implementer = language.LanguageImplementer(scaffold=setting.scaffold, **roles["implementer"])
        judge = language.LanguageJudge(**roles["judge"]) if "judge" in roles else judge
        evaluator = language.LanguageEvaluator(**roles["evaluator"]) if "evaluator" in roles else evaluator
    return Agents(planner=planner, implementer=implementer, judge=judge, evaluator=evaluator)


def make_planner(search: Search) -> PlannerAgent:
    """The planner without a model, by the search's policy."""
    from vibeserve.agents.playbook import PlaybookPlanner
    from vibeserve.agents.random_choice import RandomPlanner

    planners: dict[str, Callable[[], PlannerAgent]] = {
        "greedy": PlaybookPlanner,
        "beam": PlaybookPlanner,
        "random": lambda: RandomPlanner(search.seed),
    }
    if search.policy not in planners:
        raise SpecError(f"search.policy: unknown policy '{search.policy}'", problems=[f"valid: {', '.join(planners)}"])
    return planners[search.policy]()


def visible_skills(skills: Sequence[Skill], *, has_components: bool) -> list[Skill]:
    """The library, without its cards where components are hidden."""
    return list(skills) if has_components else [replace(skill, card=None) for skill in skills]


def _language_roles(
    setting: AgentSetting, *, asked: Sequence[str], skills: Sequence[Skill]
) -> dict[str, dict[str, Any]]:
    from vibeserve.agents.caller import AgentCaller
    from vibeserve.agents.language import Shelf

    spec = setting.plan.spec
    has_components = spec.skills.components
    ledger = make_ledger(spec.agents, budget=spec.budget, journal=setting.journal)
    is_whole = has_components and not spec.skills.path and not spec.skills.exclude
    parts = () if has_components else NOTES
    folder = setting.skills_dir if is_whole else gathered(skills, setting.folder / "skills_notes", parts=parts)
    shelf = Shelf(skills=skills, folder=folder, has_components=has_components)
    roles: dict[str, dict[str, Any]] = {}
    for role in asked:
        agent = resolve_role(spec.agents, role)
        caller = AgentCaller(
            agent=agent, backend=make_backend(agent, setting, ledger=ledger, shelf=shelf), ledger=ledger,
            folder=setting.folder / "agents", progress=setting.progress, remaining_s=setting.remaining_s,
            finished=partial(_keep_opened, setting.journal, {skill.name for skill in skills}),
        )  # fmt: skip
        roles[role] = {
            "caller": caller, "plan": setting.plan, "shelf": shelf, "model_dir": setting.model_dir,
            "machine": setting.machine, "calibrated": setting.calibrated,
        }  # fmt: skip
    return roles


def _keep_opened(journal: Journal, names: Collection[str], key: str, turns: Sequence[Turn]) -> None:
    found = opened_in(turns, names=names)
    if found:
        journal.append(opened.EVENT, Opened(key=key, skills=found))


def make_backend(agent: RoleAgent, setting: AgentSetting, *, ledger: Ledger, shelf: Shelf) -> AgentBackend:
    """The back end of one role."""
    declared = setting.plan.spec.agents
    if agent.backend == "openai":
        from vibeserve.agents.openai_loop import OpenAIBackend, SkillShelf

        return OpenAIBackend(
            agent, declared, ledger=ledger, sandbox=setting.sandbox,
            skills=SkillShelf(skills=tuple(shelf.skills), has_components=shelf.has_components),
        )  # fmt: skip
    if agent.backend in ("codex", "claude", "command"):
        from vibeserve.agents.clients import make_client_backend

        return make_client_backend(agent, declared, ledger=ledger, sandbox=setting.sandbox)
    if agent.backend == "external":
        from vibeserve.agents.mailbox import ExternalBackend

        # keys are unique in a run; a folder that several runs share has one of its own for each
        shared = Path(declared.mailbox).expanduser().absolute() / setting.folder.name if declared.mailbox else None
        return ExternalBackend(
            agent, declared, mailbox=shared or setting.folder / "mailbox",
            tell=lambda text: setting.progress.event("inbox", text), aside=setting.aside,
        )  # fmt: skip
    raise SpecError(f"agents.{agent.role}.backend: unknown back end '{agent.backend}'")
