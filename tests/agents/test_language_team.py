"""The four agents as declared: which back end plays which role, and what they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from language_rig import tiny_plan
from scripted import role_agent

from vibeserve.agents.caller import AgentCaller
from vibeserve.agents.language import Shelf
from vibeserve.agents.ledger import Spend
from vibeserve.agents.requests import AgentUsage, Turn
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.agents.team import NOTES, SPEND, AgentSetting, make_agents, make_backend, make_ledger
from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import AgentCapError, SpecError
from vibeserve.hosts import LocalHost
from vibeserve.journal import Journal
from vibeserve.progress import QuietProgress
from vibeserve.sandbox import Resources
from vibeserve.skills import gathered, load_skills
from vibeserve.spec import Tier

SKILLS = load_skills(data_dir("skills"))


@pytest.fixture
def setting(tmp_path: Path) -> Any:
    with Journal.open(tmp_path / "journal.jsonl") as journal:

        def make(*overrides: str) -> AgentSetting:
            plan = tiny_plan()
            spec = compose_spec(["+target=tiny_cpu", *overrides])
            return AgentSetting(
                plan=type(plan)(**{**vars(plan), "spec": spec}), skills=SKILLS, skills_dir=data_dir("skills"),
                scaffold=data_dir("templates") / "runtime/text", model_dir=tmp_path / "model", machine="a CPU",
                folder=tmp_path / "run-1", journal=journal, progress=QuietProgress(), remaining_s=lambda: 100.0,
                sandbox=ToolSandbox(host=LocalHost(), tier=Tier.B, resources=Resources()),
            )  # fmt: skip

        yield make


def caller_of(role: Any) -> AgentCaller:
    caller = role.caller
    assert isinstance(caller, AgentCaller)
    return caller


def test_without_more_every_role_is_the_playbooks(setting: Any) -> None:
    agents = make_agents(setting())
    names = [type(each).__name__ for each in vars(agents).values()]
    assert names == ["PlaybookPlanner", "PlaybookImplementer", "PlaybookJudge", "PlaybookEvaluator"]


def test_back_ends_are_mixed_freely_and_share_one_ledger(setting: Any) -> None:
    agents = make_agents(
        setting("agents.implementer=codex", "agents.judge=claude", "agents.evaluator=openai", "agents.model=m")
    )
    assert type(agents.planner).__name__ == "PlaybookPlanner"
    roles = (agents.implementer, agents.judge, agents.evaluator)
    assert [caller_of(role).backend.name for role in roles] == ["codex", "claude", "openai"]
    assert agents.implementer.origin.startswith("agent:codex/")
    assert len({id(caller_of(role).ledger) for role in roles}) == 1


def test_a_mailbox_that_runs_share_has_a_folder_for_each(setting: Any, tmp_path: Path) -> None:
    agents = make_agents(setting("agents=external", f"agents.mailbox={tmp_path / 'post'}"))
    backend: Any = caller_of(agents.planner).backend
    assert backend._mailbox == tmp_path / "post" / "run-1"
    own: Any = caller_of(make_agents(setting("agents=external")).planner).backend
    assert own._mailbox == tmp_path / "run-1" / "mailbox"


def test_an_unknown_back_end_is_refused(setting: Any) -> None:
    shelf = Shelf(skills=SKILLS, folder=data_dir("skills"), has_components=True)
    with pytest.raises(SpecError, match=r"agents\.judge\.backend: unknown back end 'oracle'"):
        make_backend(role_agent("judge", backend="oracle"), setting(), ledger=None, shelf=shelf)  # type: ignore[arg-type]


def test_what_an_earlier_process_spent_counts_against_the_caps(setting: Any) -> None:
    made = setting("agents=openai", "agents.judge.max_tokens=100")
    spend = Spend(
        role="judge", key="r01a1-judge", backend="openai", model="m", usage=AgentUsage(input_tokens=100), usd=None
    )
    made.journal.append(SPEND, spend)
    ledger = make_ledger(made.plan.spec.agents, budget=made.plan.spec.budget, journal=made.journal)
    ledger.check("planner")
    with pytest.raises(AgentCapError, match=r"cap of 100 tokens is reached \(100\); next: raise agents\.judge"):
        ledger.check("judge")
    ledger.add(role="planner", key="p02-planner", backend="openai", model="m", usage=AgentUsage(output_tokens=1))
    assert [event.data["role"] for event in made.journal.events(SPEND)] == ["judge", "planner"]


def test_skills_that_an_agent_opens_are_journalled_by_call(setting: Any) -> None:
    made = setting("agents=openai")
    finished = caller_of(make_agents(made).planner).finished
    finished("p01-planner", [Turn(kind="tool_call", name="read_skill", text='{"name": "chunked-prefill"}')])
    finished("p02-planner", [Turn(kind="message", text="nothing")])
    rows = [event.data for event in made.journal.events("skills_opened")]
    assert rows == [{"key": "p01-planner", "skills": ["chunked-prefill"]}], "a call that opened none leaves nothing"


def test_a_target_without_some_skills_shows_agents_none_of_their_files(setting: Any, tmp_path: Path) -> None:
    made = setting("agents=external", "skills.exclude=[packed-linears]")
    kept = [skill for skill in SKILLS if skill.name != "packed-linears"]
    shelf = make_agents(replace(made, skills=kept)).planner.shelf  # type: ignore[attr-defined]
    assert shelf.folder == tmp_path / "run-1" / "skills_notes"
    assert {path.name for path in shelf.folder.iterdir()} == {skill.name for skill in kept}


def test_hidden_components_are_in_no_folder_that_agents_read(setting: Any, tmp_path: Path) -> None:
    folder = gathered(SKILLS, tmp_path / "notes", parts=NOTES)
    assert {path.parent.name for path in folder.glob("*/SKILL.md")} == {skill.name for skill in SKILLS}
    names = {path.relative_to(folder).parts[1] for path in folder.rglob("*") if path.is_file()}
    assert names <= {"SKILL.md", "references"}
    agents = make_agents(setting("agents=external", "skills.components=false"))
    shelf = agents.planner.shelf  # type: ignore[attr-defined]
    assert shelf.folder == tmp_path / "run-1" / "skills_notes" and not shelf.has_components
    assert all(skill.card is None for skill in shelf.skills)
