"""Agents: who plans, implements, judges and explains, and what they may take."""

from __future__ import annotations

from dataclasses import dataclass, field

ROLES = ("planner", "implementer", "judge", "evaluator")
BACKENDS = ("playbook", "openai", "codex", "claude", "command", "external", "replay")
MODEL_FREE = ("playbook", "replay")
"""back ends that ask no model at all"""
DEFAULT_MODELS = {"openai": "gpt-6.2-sol", "codex": "gpt-6.2-sol", "claude": "claude-sonnet-5-5"}
"""where none is declared"""
UNMETERED = (*MODEL_FREE, "external")
"""back ends whose requests to a model, if any, are not ours to count"""
COMMAND_WORDS = (
    "prompt", "prompt_file", "workspace", "model", "base_url", "schema_file", "output_file", "config_dir",
)  # fmt: skip
"""what may stand in braces in `agents.command`"""


@dataclass(kw_only=True)
class Price:
    """What a model costs that the price table does not have, USD per million tokens; all 0 = the table's."""

    input_usd_per_m: float = 0.0
    """prompt tokens that no cache had"""
    cached_input_usd_per_m: float = 0.0
    """prompt tokens that the provider's cache had"""
    output_usd_per_m: float = 0.0
    """reasoning tokens included"""


@dataclass(kw_only=True)
class Command:
    """Back end command: any command-line agent, by template (`docs/agents.md`)."""

    recipe: str = ""
    """gemini or opencode: what is empty below comes from there"""
    argv: list[str] = field(default_factory=list)
    """words with {prompt} {prompt_file} {workspace} {model} {base_url} {schema_file} {output_file} {config_dir}"""
    env: dict[str, str] = field(default_factory=dict)
    """the same words may stand in the values"""
    dialect: str = ""
    """what it speaks to a model: responses, chat, messages or gemini"""
    parser: str = ""
    """how its output is read: text, codex_jsonl, claude_json, opencode_jsonl or gemini_json"""


@dataclass(kw_only=True)
class Agent:
    """One role. What is empty or 0 is taken from `agents` itself."""

    backend: str = ""
    """playbook, openai, codex, claude, command, external, replay"""
    model: str = ""
    effort: str = ""
    base_url: str = ""
    api_key_env: str = ""
    max_tokens: int = 0
    """of all calls of this role in a run; 0 = the budget's alone"""
    max_usd: float = 0.0
    """of all calls of this role in a run; 0 = the budget's alone"""
    timeout_s: float = 0.0
    max_turns: int = 0


@dataclass(kw_only=True)
class Agents:
    """One back end for every role, but for the roles that name their own."""

    backend: str = "playbook"
    """playbook, openai, codex, claude, command, external, replay"""
    model: str = ""
    """empty = the back end's usual one (`docs/agents.md`)"""
    effort: str = ""
    """reasoning effort, in the model's own words: low, medium, high"""
    base_url: str = ""
    """of the model's API, such as http://127.0.0.1:8000/v1; empty = the provider's own"""
    api_key_env: str = ""
    """name of the environment variable that holds the key; empty = the provider's own name"""
    api: str = "auto"
    """openai: responses, chat, or auto (responses first, chat where the server has no such route)"""
    timeout_s: float = 1800.0
    """of one call, after which its whole process tree is killed"""
    max_turns: int = 80
    """answers of the model in one call"""
    max_context_tokens: int = 120_000
    """openai: above that, old tool results are left out of the context"""
    deadline_s: float = 7200.0
    """external: how long a request waits in the mailbox"""
    mailbox: str = ""
    """external: folder of the mailbox; empty = the run's own"""
    recording: str = ""
    """replay: an artifact, or a copy of its folder `recording`"""
    price: Price = field(default_factory=Price)
    command: Command = field(default_factory=Command)
    planner: Agent = field(default_factory=Agent)
    implementer: Agent = field(default_factory=Agent)
    judge: Agent = field(default_factory=Agent)
    evaluator: Agent = field(default_factory=Agent)


@dataclass(kw_only=True)
class Skills:
    components: bool = True
    """false: agents see the skills' notes and no component; nothing can be assembled"""
    path: list[str] = field(default_factory=list)
    """further folders of skills: paths from the target's folder, or package:NAME, an entry point of an installed one"""
    exclude: list[str] = field(default_factory=list)
    """skills that this target does without, and with them what extends them"""


@dataclass(frozen=True, kw_only=True)
class RoleAgent:
    """One role with everything resolved."""

    role: str
    backend: str
    model: str
    effort: str
    base_url: str
    api_key_env: str
    max_tokens: int
    max_usd: float
    timeout_s: float
    max_turns: int

    @property
    def origin(self) -> str:
        """`agent:<back end/model>`, as authorship names it."""
        return f"agent:{self.backend}/{self.model}" if self.model else f"agent:{self.backend}"


def resolve_role(declared: Agents, role: str) -> RoleAgent:
    """The agent of `role`, one of `ROLES`."""
    own: Agent = getattr(declared, role)
    # a role with a back end of its own has a model, an address and a key of its own, too
    is_other = bool(own.backend) and own.backend != declared.backend
    shared = Agents(backend=own.backend) if is_other else declared
    backend = own.backend or shared.backend
    return RoleAgent(
        role=role, backend=backend, model=own.model or shared.model or DEFAULT_MODELS.get(backend, ""),
        effort=own.effort or shared.effort, base_url=own.base_url or shared.base_url,
        api_key_env=own.api_key_env or shared.api_key_env, max_tokens=own.max_tokens, max_usd=own.max_usd,
        timeout_s=own.timeout_s or declared.timeout_s, max_turns=own.max_turns or declared.max_turns,
    )  # fmt: skip
