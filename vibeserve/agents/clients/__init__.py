"""Command-line agents behind the port: Codex CLI, Claude Code, and any other by a template.

Each call starts the client once, in the sandbox, with a configuration folder of its own; its traffic passes the proxy
(`vibeserve.agents.proxy`), which holds the key and counts. What a client says about its own cost is not read.
"""

from __future__ import annotations

from vibeserve.agents.clients.claude import ClaudeBackend
from vibeserve.agents.clients.codex import CodexBackend
from vibeserve.agents.clients.core import CliBackend
from vibeserve.agents.clients.program import SEARCH_VARIABLE, find_program
from vibeserve.agents.clients.template import CommandBackend
from vibeserve.agents.clients.watching import PATIENCE_S
from vibeserve.agents.ledger import Ledger
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.spec import Agents, RoleAgent

__all__ = [
    "SEARCH_VARIABLE",
    "ClaudeBackend",
    "CliBackend",
    "CodexBackend",
    "CommandBackend",
    "find_program",
    "make_client_backend",
]

_BACKENDS: dict[str, type[CliBackend]] = {"codex": CodexBackend, "claude": ClaudeBackend, "command": CommandBackend}


def make_client_backend(
    agent: RoleAgent, declared: Agents, *, ledger: Ledger, sandbox: ToolSandbox, patience_s: float = PATIENCE_S
) -> CliBackend:
    """The back end of one role. SpecError for a template that cannot be run.

    `patience_s`: how long a client may go on against an API that fails, before its failure is the caller's.
    """
    return _BACKENDS[agent.backend](agent, declared, ledger=ledger, sandbox=sandbox, patience_s=patience_s)
