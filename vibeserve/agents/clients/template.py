"""Any other command-line agent, by a template; recipes for Gemini CLI and opencode are shipped (`recipes.json`).

Tried with Gemini CLI 0.61 and opencode 1.18. Instructions that lie in the workspace are left aside by opencode; Gemini
CLI reads a GEMINI.md there whatever it is told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from vibeserve.agents.clients.call import Call, read_end
from vibeserve.agents.clients.core import CliBackend
from vibeserve.agents.clients.parsing import PARSERS, Parsed
from vibeserve.agents.ledger import Ledger
from vibeserve.agents.proxy import DIALECTS
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.core.documents import from_data
from vibeserve.errors import SpecError
from vibeserve.spec import COMMAND_WORDS, Agents, Command, RoleAgent

_BRACED = re.compile(r"\{([a-z_]+)\}")
_VARIABLES = {
    "responses": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "chat": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "messages": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
}
"""dialect -> (variable of the key, of the address): set for every client"""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one client is started and read."""

    argv: tuple[str, ...]
    dialect: str
    parser: str
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)
    """JSON documents by their name below {config_dir}; words in their texts are filled, too"""
    install: str = ""
    needs_model: bool = False


@lru_cache(maxsize=1)
def recipes() -> dict[str, Recipe]:
    """Those that are shipped, by name."""
    data = json.loads(Path(__file__).with_name("recipes.json").read_text(encoding="utf-8"))
    return {name: from_data(Recipe, each) for name, each in data.items()}


def recipe_of(command: Command, *, agent: RoleAgent) -> Recipe:
    """The declared template; what it leaves empty comes from its recipe. SpecError lists everything that is wrong."""
    known = recipes()
    if command.recipe and command.recipe not in known:
        raise SpecError(
            f"agents.command.recipe: unknown recipe '{command.recipe}'", problems=[f"valid: {', '.join(known)}"]
        )
    base = known.get(command.recipe) or Recipe(argv=(), dialect="", parser="")
    recipe = Recipe(
        argv=tuple(command.argv) or base.argv, dialect=command.dialect or base.dialect,
        parser=command.parser or base.parser, env={**base.env, **command.env}, files=base.files,
        install=base.install if not command.argv else "", needs_model=base.needs_model and not command.argv,
    )  # fmt: skip
    problems = list(_problems(recipe, agent))
    if problems:
        raise SpecError("agents.command cannot be run", problems=problems, hint="see docs/agents.md")
    return recipe


def _problems(recipe: Recipe, agent: RoleAgent) -> Iterator[str]:
    if not recipe.argv:
        yield f"agents.command.argv: empty; give the words of a command line, or a recipe ({', '.join(recipes())})"
    for key, value, valid in (
        ("dialect", recipe.dialect, tuple(DIALECTS)),
        ("parser", recipe.parser, tuple(PARSERS)),
    ):
        if value not in valid:
            yield f"agents.command.{key}: '{value}' is not valid; valid: {', '.join(valid)}"
    texts = [*recipe.argv, *recipe.env.values()]
    unknown = sorted({word for text in texts for word in _BRACED.findall(text) if word not in COMMAND_WORDS})
    if unknown:
        yield f"agents.command: unknown words {', '.join(unknown)} in braces; valid: {', '.join(COMMAND_WORDS)}"
    if not any("{prompt}" in text or "{prompt_file}" in text for text in texts) and recipe.argv:
        yield "agents.command: neither {prompt} nor {prompt_file} stands anywhere in it"
    if not agent.model and (recipe.needs_model or any("{model}" in text for text in texts)):
        yield "agents.model: empty, and the command names {model}"
    if agent.effort:
        yield "agents.effort: a command would ignore it; write it into agents.command.argv"


class CommandBackend(CliBackend):
    """`agents=command`, `agents=gemini`, `agents=opencode`"""

    def __init__(
        self, agent: RoleAgent, declared: Agents, *, ledger: Ledger, sandbox: ToolSandbox, **settings: Any
    ) -> None:
        super().__init__(agent, declared, ledger=ledger, sandbox=sandbox, **settings)
        self._recipe = recipe_of(declared.command, agent=agent)
        self.program = self._recipe.argv[0]
        self.install = self._recipe.install or f"install {self.program}, or name its folder in VIBESERVE_AGENT_PATH"
        self.dialect = self._recipe.dialect

    def files(self, call: Call) -> Mapping[Path, str]:
        return {
            call.config_dir / name: json.dumps(_filled(document, call), indent=1)
            for name, document in self._recipe.files.items()
        }

    def argv(self, call: Call) -> list[str]:
        return [call.fill(word) for word in self._recipe.argv[1:]]

    def env(self, call: Call) -> dict[str, str]:
        key, address = _VARIABLES[self.dialect]
        own = {name: call.fill(value) for name, value in self._recipe.env.items()}
        return {key: call.client_key, address: call.base_url, **own}

    def parse(self, output: str, call: Call) -> Parsed:
        parsed = PARSERS[self._recipe.parser](output)
        written = read_end(call.output_file).strip()
        return Parsed(text=written, turns=parsed.turns, error=parsed.error) if written else parsed


def _filled(document: Any, call: Call) -> Any:
    if isinstance(document, str):
        return call.fill(document)
    if isinstance(document, Mapping):
        return {call.fill(key): _filled(value, call) for key, value in document.items()}
    return [_filled(each, call) for each in document] if isinstance(document, list) else document
