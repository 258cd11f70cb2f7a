"""Back end `openai`: a tool loop of our own on the `openai` SDK, for any server of Responses or Chat Completions.

    OpenAIBackend(agent: spec.RoleAgent, declared: spec.Agents, *, ledger: Ledger, sandbox: ToolSandbox,
                  skills: SkillShelf, make_client: ClientFactory = default_client).run(request) -> AgentResult
    ToolSandbox(host=Host, tier=Tier, ...)  (agents.sandboxed)
    SkillShelf(skills=(Skill, ...), has_components=True)

The loop asks the model, runs the tools that it calls, and ends at `submit`, at a final message or at a limit. Files are
read and written here, on the controller, never outside the workspace and the read-only folders; commands run behind a
wall. The key is read when a call begins and is in no record.
"""

from __future__ import annotations

from vibeserve.agents.openai_loop.backend import OpenAIBackend
from vibeserve.agents.openai_loop.client import ClientFactory, default_client
from vibeserve.agents.openai_loop.shelf import SkillShelf
from vibeserve.agents.sandboxed import ToolSandbox

__all__ = ["ClientFactory", "OpenAIBackend", "SkillShelf", "ToolSandbox", "default_client"]
