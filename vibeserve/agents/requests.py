"""The port between a role and whatever plays it: one request, one result.

A back end carries a request out; it neither validates the output nor retries. That, the caps and the records are the
caller's (`agents.caller`), so that every back end is held to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Of one call."""

    timeout_s: float
    max_turns: int


@dataclass(frozen=True, kw_only=True)
class AgentRequest:
    """One call of an agent."""

    role: str
    """planner, implementer, judge or evaluator"""
    key: str
    """session key, once in a run, such as `r02a1-implementer`: records, resumes and spend go by it"""
    prompt: str
    workspace: Path
    """working directory of the agent; `is_writable` says whether its edits there are the answer"""
    is_writable: bool
    output_schema: Mapping[str, Any]
    """JSON Schema (draft 2020-12) of the structured output"""
    limits: CallLimits
    record_dir: Path
    """folder of this call alone, on the controller: logs, transcript, configuration of a client. Never in a wall, but
    for what a back end mounts from it by name"""
    read_only: tuple[Path, ...] = ()
    """beside the workspace: skills, the model's files"""
    feedback: str = ""
    """why the output of the same request was refused; empty on the first try"""


@dataclass(frozen=True, kw_only=True)
class AgentUsage:
    """Tokens as the API's `usage` counts them.

    `cached_input_tokens` is a part of `input_tokens`, `reasoning_tokens` one of `output_tokens`.
    """

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    num_requests: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: AgentUsage) -> AgentUsage:
        return AgentUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            num_requests=self.num_requests + other.num_requests,
        )


@dataclass(frozen=True, kw_only=True)
class ExitFacts:
    """How a call ended."""

    reason: str
    """done, timed_out, max_turns, cap, died"""
    returncode: int | None = None
    """of a command-line agent"""
    seconds: float = 0.0
    num_turns: int = 0
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One line of a transcript, as a person would read it."""

    kind: str
    """message, reasoning, tool_call, tool_result, note"""
    text: str
    name: str = ""
    """of the tool"""


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What a back end brings back."""

    text: str
    """the final message, or the arguments of the submitting tool: it should be the JSON document that was asked for"""
    exit: ExitFacts
    usage: AgentUsage = field(default_factory=AgentUsage)
    usd: float | None = None
    """None: the model has no price"""
    transcript: Sequence[Turn] = ()


class AgentBackend(Protocol):
    """Carries requests out. Raises `AgentInfraError` for what a repetition may mend (429, 5xx, lost network, quota);
    everything else an agent does is a result, a call that a cap ended too."""

    @property
    def name(self) -> str: ...

    @property
    def resumes(self) -> bool:
        """A request that an API's failure cut short goes on where it stood: its workspace is not to be put back."""
        ...

    def run(self, request: AgentRequest) -> AgentResult: ...
