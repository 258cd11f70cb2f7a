"""Real clients in front of the scripted model: what every test of this folder needs to start one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vibeserve.agents.clients import CliBackend, CommandBackend, find_program, make_client_backend
from vibeserve.agents.ledger import Cap, Ledger, Spend
from vibeserve.agents.prices import PriceTable, load_prices
from vibeserve.agents.requests import AgentRequest, CallLimits
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.errors import AgentInfraError
from vibeserve.hosts import Host, LocalHost
from vibeserve.loopback import Script, ScriptedServer, Step
from vibeserve.sandbox import Process, Resources, probe_tiers
from vibeserve.spec import Agents, Command, Price, RoleAgent, Tier

CLIENTS = ("codex", "claude", "opencode", "gemini")
SMALL_AGENT = Path(__file__).with_name("small_agent.py")
KEY = "r01a1-implementer"
MODEL = "scripted-1"
SECRET = "sk-" + "held-by-the-proxy-0123456789"
SECRET_VARIABLE = "VIBESERVE_TEST_UPSTREAM_KEY"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"status": {"enum": ["done", "gave_up"]}, "summary": {"type": "string", "minLength": 3}},
    "required": ["status", "summary"],
    "additionalProperties": False,
}
DONE = {"status": "done", "summary": "wrote hello.py"}
PROMPT = f"Write hello.py.\nvibeserve-call: {KEY}\n"


def require(client: str) -> None:
    """Skip where the client is not installed."""
    try:
        find_program(client, install="npm")
    except AgentInfraError as error:
        pytest.skip(str(error).splitlines()[0])


def require_tier(tier: Tier) -> None:
    state = probe_tiers()[tier.value]
    if state != "available":
        pytest.skip(f"tier {tier.value}: {state}")


def declared_agents(client: str) -> tuple[str, Agents]:
    """(back end, what is declared) of a client."""
    if client in ("codex", "claude"):
        return client, Agents(backend=client)
    return "command", Agents(backend="command", command=Command(recipe=client))


@dataclass(kw_only=True)
class Bench:
    """One workspace, one ledger, one place to run clients in."""

    folder: Path
    tier: Tier = Tier.A
    host: Host = field(default_factory=LocalHost)
    run_cap: Cap = field(default_factory=Cap)
    spends: list[Spend] = field(default_factory=list)
    num_calls: int = 0
    api_key_env: str = ""

    def __post_init__(self) -> None:
        require_tier(self.tier)
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        prices: PriceTable = load_prices(Price(input_usd_per_m=1.0, cached_input_usd_per_m=0.1, output_usd_per_m=10.0))
        self.ledger = Ledger(run_cap=self.run_cap, role_caps={}, prices=prices, record=self.spends.append)

    @property
    def sandbox(self) -> ToolSandbox:
        return ToolSandbox(host=self.host, tier=self.tier, resources=Resources(max_disk_gib=1.0, tmp_gib=0.5))

    def request(self, **changes: Any) -> AgentRequest:
        """A call of the implementer; each has a folder of its own."""
        self.num_calls += 1
        record_dir = self.folder / f"call-{self.num_calls}"
        record_dir.mkdir()
        limits = CallLimits(timeout_s=changes.pop("timeout_s", 120.0), max_turns=changes.pop("max_turns", 30))
        settings: dict[str, Any] = {
            "role": "implementer", "key": KEY, "prompt": PROMPT, "workspace": self.workspace, "is_writable": True,
            "output_schema": SCHEMA, "limits": limits, "record_dir": record_dir,
        }  # fmt: skip
        return AgentRequest(**{**settings, **changes})

    def backend(self, client: str, base_url: str, *, patience_s: float = 2.0, **agent: Any) -> CliBackend:
        """The back end of a client that is installed."""
        require(client)
        name, declared = declared_agents(client)
        settings = {"api_key_env": self.api_key_env, **agent}
        return make_client_backend(
            role_agent(name, base_url, **settings), declared, ledger=self.ledger, sandbox=self.sandbox,
            patience_s=patience_s,
        )  # fmt: skip


    def small(self, base_url: str, *, patience_s: float = 2.0, **command: Any) -> CommandBackend:
        """The back end of `small_agent.py`, which is always installed."""
        template: dict[str, Any] = {
            "argv": [str(SMALL_AGENT), "{base_url}", "{model}", "{prompt_file}"], "dialect": "chat", "parser": "text",
        }  # fmt: skip
        declared = Agents(backend="command", command=Command(**{**template, **command}))
        agent = role_agent("command", base_url, api_key_env=self.api_key_env)
        return CommandBackend(agent, declared, ledger=self.ledger, sandbox=self.sandbox, patience_s=patience_s)


def role_agent(backend: str, base_url: str, **changes: Any) -> RoleAgent:
    settings: dict[str, Any] = {
        "role": "implementer", "backend": backend, "model": MODEL, "effort": "", "base_url": base_url,
        "api_key_env": "", "max_tokens": 0, "max_usd": 0.0, "timeout_s": 120.0, "max_turns": 30,
    }  # fmt: skip
    return RoleAgent(**{**settings, **changes})


@contextmanager
def scripted(*steps: Step, **settings: Any) -> Iterator[ScriptedServer]:
    """A model that goes through `steps` for every call of the implementer."""
    with ScriptedServer(script=Script(roles={"implementer": steps}), **settings) as server:
        yield server


def base_url_of(client: str, server: ScriptedServer) -> str:
    return server.root_url if client in ("claude", "gemini") else server.base_url


def outputs(server: ScriptedServer) -> str:
    """Everything that commands of the agent printed, as the model was told."""
    return "\n".join(each.body for each in server.requests)


def running(marker: str) -> list[int]:
    """Processes of this machine with `marker` among their words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker.encode() in words:
            found.append(int(folder.name))
    return found


class SearchingHost(LocalHost):
    """Looks for texts in everything that a client could write, before it is removed."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.found, self.num_files = texts, list[str](), 0

    def spawn(self, argv: Any, **settings: Any) -> Process:
        process = super().spawn(argv, **settings)
        folders = settings["wall"].writable
        kill = process.kill_tree

        def kill_and_search() -> None:
            kill()
            for folder in folders:
                self._search(folder)

        process.kill_tree = kill_and_search  # type: ignore[method-assign]
        return process

    def _search(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                self.num_files += 1
                content = path.read_bytes()
                self.found += [f"{path}: {text}" for text in self.texts if text.encode() in content]
