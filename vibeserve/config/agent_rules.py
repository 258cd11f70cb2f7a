"""Rules across the keys of agents: what a back end needs, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vibeserve.config.words import suggest
from vibeserve.skills import skill_problems
from vibeserve.spec import COMMAND_WORDS, ROLES, Agents, Command, Spec, resolve_role

APIS = ("auto", "responses", "chat")
DIALECTS = ("responses", "chat", "messages", "gemini")
PARSERS = ("text", "codex_jsonl", "claude_json", "opencode_jsonl", "gemini_json")
RECIPES = ("gemini", "opencode")
_BRACED = re.compile(r"\{([a-z_]+)\}")


def agent_problems(spec: Spec) -> list[str]:
    """One line for each, starting with its key."""
    return [*_backends(spec), *_command(spec.agents), *_limits(spec.agents), *_together(spec), *skill_problems(spec)]


def _backends(spec: Spec) -> Iterator[str]:
    agents = spec.agents
    backends = {role: resolve_role(agents, role).backend for role in ROLES}
    for role, backend in backends.items():
        if backend == "command" and not resolve_role(agents, role).model:
            yield f"agents.{role}.model: the back end command needs one, such as agents.model=NAME"
    replaying = [role for role, backend in backends.items() if backend == "replay"]
    if replaying and len(replaying) < len(ROLES):
        others = ", ".join(role for role in ROLES if role not in replaying)
        yield f"agents.{replaying[0]}.backend: replay repeats a whole run; {others} cannot have another back end"
    if replaying and not agents.recording:
        yield "agents.recording: needed by the back end replay: an artifact, or a recording in one"
    if agents.recording and not replaying:
        yield "agents.recording: only the back end replay reads it (agents=replay)"
    if agents.mailbox and "external" not in backends.values():
        yield "agents.mailbox: only the back end external has one (agents=external)"


def _command(agents: Agents) -> Iterator[str]:
    command = agents.command
    uses = [role for role in ROLES if resolve_role(agents, role).backend == "command"]
    if uses and not command.recipe and not command.argv:
        yield f"agents.command.argv: needed by the back end command, or a recipe: {', '.join(RECIPES)}"
    if uses and not command.recipe and not command.dialect:
        yield f"agents.command.dialect: needed by the back end command; valid: {', '.join(DIALECTS)}"
    if uses and not command.recipe and not command.parser:
        yield f"agents.command.parser: needed by the back end command; valid: {', '.join(PARSERS)}"
    if uses:
        yield from _command_words(command)
    if not uses and (command.recipe or command.argv):
        yield "agents.command: only the back end command reads it (agents=command)"
    for key, value, options in (
        ("agents.command.recipe", command.recipe, RECIPES),
        ("agents.command.dialect", command.dialect, DIALECTS),
        ("agents.command.parser", command.parser, PARSERS),
        ("agents.api", agents.api, APIS),
    ):
        if value and value not in options:
            guess = suggest(value, options)
            yield f"{key}: '{value}' is not valid{guess}{' ' if guess else '; '}valid: {', '.join(options)}"


def _command_words(command: Command) -> Iterator[str]:
    env = list(command.env.values())
    for key, texts in (("argv", command.argv), ("env", env)):
        unknown = sorted({word for text in texts for word in _BRACED.findall(text)} - set(COMMAND_WORDS))
        if unknown:
            valid = ", ".join(COMMAND_WORDS)
            yield f"agents.command.{key}: unknown words {', '.join(unknown)} in braces; valid: {valid}"
    if command.argv and not any("{prompt}" in text or "{prompt_file}" in text for text in [*command.argv, *env]):
        yield "agents.command.argv: neither {prompt} nor {prompt_file} stands in it: the client would be told nothing"


def _limits(agents: Agents) -> Iterator[str]:
    for name, least in (("timeout_s", 1.0), ("max_turns", 1), ("max_context_tokens", 8000), ("deadline_s", 1.0)):
        value = getattr(agents, name)
        if value < least:
            yield f"agents.{name}: {value:g} is below {least:g}"
    for role in ROLES:
        own = getattr(agents, role)
        for name in ("timeout_s", "max_turns", "max_tokens", "max_usd"):
            if getattr(own, name) < 0:
                yield f"agents.{role}.{name}: {getattr(own, name):g} is below 0"
    for name in ("input_usd_per_m", "cached_input_usd_per_m", "output_usd_per_m"):
        if getattr(agents.price, name) < 0:
            yield f"agents.price.{name}: {getattr(agents.price, name):g} is below 0"


def _together(spec: Spec) -> Iterator[str]:
    """What one role's back end and the rest of the spec rule out."""
    backends = {role: resolve_role(spec.agents, role).backend for role in ROLES}
    if spec.search.policy == "random" and backends["planner"] not in ("playbook", "replay"):
        yield f"search.policy: random draws among cards; the planner {backends['planner']} proposes by itself: greedy"
    if not spec.skills.components and backends["implementer"] == "playbook":
        yield "skills.components: false leaves the implementer playbook nothing to assemble; choose another back end"
