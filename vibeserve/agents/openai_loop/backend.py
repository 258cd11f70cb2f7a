"""Back end `openai` behind the port: one request in, one result out."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve import spec
from vibeserve.agents.ledger import Ledger
from vibeserve.agents.openai_loop.client import ClientFactory, ModelClient, Wire, default_client
from vibeserve.agents.openai_loop.conversation import Conversation
from vibeserve.agents.openai_loop.dialects import Asked
from vibeserve.agents.openai_loop.loop import BACKEND, CallState, Loop, Timer, turns_notice
from vibeserve.agents.openai_loop.reach import walk
from vibeserve.agents.openai_loop.shelf import SkillShelf
from vibeserve.agents.openai_loop.tools import make_kit
from vibeserve.agents.requests import AgentRequest, AgentResult
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.errors import AgentInfraError

FEEDBACK = "Your answer to this task was refused: {feedback}\nMend that and submit again."
MAX_KEPT = 8


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A conversation that a later request with the same key may go on with."""

    asks: tuple[Any, ...]
    workspace: Mapping[str, tuple[int, ...]]
    """as the conversation left it"""
    state: CallState
    is_finished: bool
    """with an answer; otherwise an API's failure cut it short"""


class OpenAIBackend:
    """Plays one role. Safe to use from several threads.

    A request that an API's failure cut short goes on where it stood when it comes again, and one that comes again with
    feedback goes on from its answer; both only while the workspace is as the conversation left it.
    """

    def __init__(
        self, agent: spec.RoleAgent, declared: spec.Agents, *, ledger: Ledger, sandbox: ToolSandbox, skills: SkillShelf,
        make_client: ClientFactory = default_client,
    ) -> None:  # fmt: skip
        self._agent, self._ledger, self._sandbox, self._skills = agent, ledger, sandbox, skills
        self._max_context_tokens = declared.max_context_tokens
        self._wire = Wire(declared=declared.api)
        self._make_client = make_client
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    resumes = True

    @property
    def name(self) -> str:
        return BACKEND

    def run(self, request: AgentRequest) -> AgentResult:
        """Carry `request` out. AgentInfraError for what a repetition may mend, or `is_lasting` for what none does;
        InfraError when no wall can be built. A cap that is reached ends the call (reason `cap`) and raises nothing."""
        state = self._begin(request)
        timer = Timer(request.limits.timeout_s, used_s=state.used_s)
        kit = make_kit(request, sandbox=self._sandbox, skills=self._skills, left_s=timer.left_s)
        model = ModelClient(self._agent, wire=self._wire, make_client=self._make_client)
        loop = Loop(
            request=request, model=model, kit=kit, ledger=self._ledger, timer=timer, state=state,
            max_context_tokens=self._max_context_tokens,
            asked=Asked(
                model=self._agent.model, instructions=kit.instructions, tools=kit.toolbox.tools,
                effort=self._agent.effort, key=request.key,
            ),
        )  # fmt: skip
        try:
            result = loop.run()
        except AgentInfraError:
            self._keep(request, state, is_finished=False)
            raise
        finally:
            model.close()
        if result.exit.reason == "done":
            self._keep(request, state, is_finished=True)
        return result

    def _begin(self, request: AgentRequest) -> CallState:
        """A conversation that goes on, or a new one."""
        with self._lock:
            kept = self._kept.pop(request.key, None)
        feedback = FEEDBACK.format(feedback=request.feedback)
        if kept is not None and kept.asks[0] == _asks(request) and kept.workspace == _state_of(request.workspace):
            if not kept.is_finished and kept.asks[1] == request.feedback:
                return kept.state
            if kept.is_finished and request.feedback:
                kept.state.conversation.say(feedback)
                return CallState(conversation=kept.state.conversation)
        conversation = Conversation()
        # one message: templates of some models take no two of the same side in a row
        parts = [request.prompt, *([feedback] if request.feedback else [])]
        if request.limits.max_turns == 1:
            parts.append(turns_notice(1))
        conversation.say("\n\n".join(parts))
        return CallState(conversation=conversation)

    def _keep(self, request: AgentRequest, state: CallState, *, is_finished: bool) -> None:
        kept = _Kept(
            asks=(_asks(request), request.feedback), workspace=_state_of(request.workspace), state=state,
            is_finished=is_finished,
        )  # fmt: skip
        with self._lock:
            self._kept[request.key] = kept
            while len(self._kept) > MAX_KEPT:
                del self._kept[next(iter(self._kept))]


def _asks(request: AgentRequest) -> tuple[Any, ...]:
    """What a request is about: the same, whatever its limits and its folder for records are."""
    return (
        request.role, request.prompt, request.workspace, request.is_writable, dict(request.output_schema),
        request.read_only,
    )  # fmt: skip


def _state_of(workspace: Path) -> dict[str, tuple[int, ...]]:
    """What `stat` tells of everything in the workspace: two that are equal hold the same files, untouched meanwhile."""
    return {
        str(path): (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns) for path, found in walk(workspace)
    }
