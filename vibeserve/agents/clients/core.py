"""What every command-line agent has in common: one process behind a wall, one proxy, one result."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.agents.clients.call import Call, read_end
from vibeserve.agents.clients.parsing import Parsed
from vibeserve.agents.clients.program import Program, find_program
from vibeserve.agents.clients.watching import PATIENCE_S, Watch
from vibeserve.agents.ledger import Ledger
from vibeserve.agents.proxy import Proxy, admitted, forwarded_argv, upstream_of
from vibeserve.agents.requests import AgentRequest, AgentResult, ExitFacts
from vibeserve.agents.sandboxed import ToolSandbox, agent_wall
from vibeserve.errors import AgentInfraError
from vibeserve.sandbox import Exceeded, Wall, forget_process
from vibeserve.sandbox.layout import wall_python
from vibeserve.spec import Agents, RoleAgent

LOG = "client.log"
"""standard output of the client"""
READ_TIMEOUT_S = 600.0
KEPT_VARIABLES = ("TZ", "LC_ALL", "LC_CTYPE")
"""of the host's environment"""
_DETAIL_CHARS = 600
_CANNOT_BIND = 125
_VERSIONED = ("responses", "chat")
"""dialects whose clients take a base URL with its version"""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the process ended."""

    why: str
    """empty: by itself"""
    returncode: int
    timeout_s: float
    seconds: float
    exceeded: Exceeded | None
    stdout: str
    stderr: str


class CliBackend(ABC):
    """One role's client. A subclass says how it is started and read."""

    program: str
    """name of the executable"""
    install: str
    """command that installs it"""
    dialect: str
    """of its traffic"""

    def __init__(
        self, agent: RoleAgent, declared: Agents, *, ledger: Ledger, sandbox: ToolSandbox,
        patience_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        self._agent, self._declared, self._ledger, self._sandbox = agent, declared, ledger, sandbox
        self._patience_s = patience_s

    resumes = False
    """a client starts anew"""

    @property
    def name(self) -> str:
        return self._agent.backend

    @abstractmethod
    def argv(self, call: Call) -> list[str]:
        """What follows the program."""

    @abstractmethod
    def env(self, call: Call) -> dict[str, str]:
        """What it needs beside the wall's own environment."""

    @abstractmethod
    def parse(self, output: str, call: Call) -> Parsed:
        """What it printed."""

    def files(self, call: Call) -> Mapping[Path, str]:
        """Further files of the call, or other texts for those it has."""
        return {}

    def run(self, request: AgentRequest) -> AgentResult:
        """Start the client once and wait for its end. Raises AgentInfraError and AgentCapError as the port says."""
        self._ledger.check(request.role)
        program = find_program(self.program, install=self.install)
        host = self._sandbox.host
        host.sweep_orphans(request.record_dir)
        with self._proxy(request) as proxy:
            port = host.lease_port()
            suffix = "/v1" if self.dialect in _VERSIONED else ""
            call = Call(
                request=request, model=self._agent.model, base_url=f"http://127.0.0.1:{port}{suffix}",
                client_key=proxy.client_key,
            )  # fmt: skip
            try:
                _write(self.files(call))
                ended = self._carry_out(call, program, proxy, port=port)
                return self._result(call, ended, proxy)
            finally:
                call.clear()

    def _proxy(self, request: AgentRequest) -> Proxy:
        agent = self._agent
        upstream = upstream_of(self.dialect, base_url=agent.base_url, api_key_env=agent.api_key_env)
        return Proxy(
            role=request.role, key=request.key, backend=self.name, model=agent.model, ledger=self._ledger,
            upstreams=[upstream], record_dir=request.record_dir, max_turns=request.limits.max_turns,
            read_timeout_s=min(READ_TIMEOUT_S, request.limits.timeout_s),
        )  # fmt: skip

    def _carry_out(self, call: Call, program: Program, proxy: Proxy, *, port: int) -> Ended:
        argv = [*program.argv, *self.argv(call)]
        # its complaints would come between the documents that it prints
        apart = ["/bin/sh", "-c", 'exec "$@" 2>"$0"', str(call.stderr_file), *argv]
        wall = admitted(self._wall(call, program), socket=proxy.socket, port=port)
        record_dir, log = call.request.record_dir, call.request.record_dir / LOG
        start_s = time.monotonic()
        process = self._sandbox.host.spawn(
            forwarded_argv(apart, socket=proxy.socket, port=port), wall=wall, log=log, record_dir=record_dir
        )
        watch = Watch(proxy=proxy, timeout_s=call.request.limits.timeout_s, patience_s=self._patience_s)
        try:
            why = watch.run(process)
        finally:
            process.kill_tree()
            forget_process(process, record_dir)
        return Ended(
            why=why, returncode=process.popen.returncode, timeout_s=watch.timeout_s,
            seconds=time.monotonic() - start_s, exceeded=process.exceeded, stdout=read_end(log),
            stderr=read_end(call.stderr_file),
        )  # fmt: skip

    def _wall(self, call: Call, program: Program) -> Wall:
        home, scratch = call.home, call.scratch
        folders = ":".join((*map(str, program.folders), "/usr/local/bin", "/usr/bin", "/bin"))
        own = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        places = {
            "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_STATE_HOME": str(home / ".local/state"), "XDG_CACHE_HOME": str(home / ".cache"),
            "NO_PROXY": "127.0.0.1,localhost", "TERM": "dumb",
        }  # fmt: skip
        wall = agent_wall(
            self._sandbox, call.request, read_only=(*program.read_only, call.given), writable=(scratch,),
            env={**own, **places, **self.env(call)},
        )  # fmt: skip
        return replace(wall, env={**wall.env, "PATH": f"{wall_python(wall).parent}:{folders}"})

    def _result(self, call: Call, ended: Ended, proxy: Proxy) -> AgentResult:
        parsed = self.parse(ended.stdout, call)
        is_answered = bool(parsed.text) and not parsed.error and ended.returncode == 0
        if not proxy.stop_reason and not is_answered:
            self._raise_failure(ended, parsed, proxy)
        return AgentResult(
            text=parsed.text, transcript=parsed.turns, usage=proxy.usage, usd=proxy.usd,
            exit=ExitFacts(
                reason=_reason(ended, parsed, proxy), returncode=ended.returncode, seconds=round(ended.seconds, 3),
                num_turns=proxy.num_turns, detail=_detail(ended, parsed, proxy),
            ),
        )  # fmt: skip

    def _raise_failure(self, ended: Ended, parsed: Parsed, proxy: Proxy) -> None:
        """What is not the agent's doing: the API failed, or the client never asked it."""
        if proxy.last_failure is not None:
            raise proxy.last_failure
        if proxy.num_turns > 0:
            return
        if ended.why == "timed_out":
            raise AgentInfraError(f"{self.program} got no answer from the model within {ended.timeout_s:g} s")
        if ended.returncode == _CANNOT_BIND:
            raise AgentInfraError(f"{self.program} was not started: {_last(ended.stdout)}")
        told = proxy.last_refusal or parsed.error or _last(ended.stderr) or _last(ended.stdout) or "nothing was printed"
        limit = f", {ended.exceeded.value}" if ended.exceeded is not None else ""
        raise AgentInfraError(
            f"{self.program} ended with status {ended.returncode}{limit} before the model answered: {told}\n"
            f"next: look at agents.model and at the version of the client; {self.install}",
            is_lasting=True,
        )


def _write(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _reason(ended: Ended, parsed: Parsed, proxy: Proxy) -> str:
    if proxy.stop_reason:
        return proxy.stop_reason
    if ended.why == "timed_out":
        return "timed_out"
    return "done" if parsed.text or (ended.returncode == 0 and not parsed.error) else "died"


def _detail(ended: Ended, parsed: Parsed, proxy: Proxy) -> str:
    """What a person would want to know of an end that is not as it should be."""
    if proxy.cap_error is not None:
        return str(proxy.cap_error)
    if proxy.stop_reason:
        return f"all {proxy.num_turns} answers of the call are used up"
    if ended.why == "timed_out":
        return f"killed after its {ended.timeout_s:g} s"
    if ended.exceeded is not None and not parsed.text:
        return f"it ran into a limit: {ended.exceeded.value}"
    if parsed.error or ended.returncode != 0:
        return (parsed.error or proxy.last_refusal or _last(ended.stderr))[-_DETAIL_CHARS:]
    return ""


def _last(text: str) -> str:
    """The last lines, short."""
    return text.strip()[-_DETAIL_CHARS:]
