"""The loop of one call: ask, run the tools that were called, ask again; until a result, or a limit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from vibeserve.agents.ledger import Ledger, Spend, total_usd
from vibeserve.agents.openai_loop.client import Answered, ModelClient
from vibeserve.agents.openai_loop.conversation import Conversation, ModelTurn, ToolCall, described
from vibeserve.agents.openai_loop.dialects import Asked
from vibeserve.agents.openai_loop.exchanges import ExchangeLog
from vibeserve.agents.openai_loop.failures import Failure, Kind
from vibeserve.agents.openai_loop.tools import Kit
from vibeserve.agents.requests import AgentRequest, AgentResult, AgentUsage, ExitFacts, Turn
from vibeserve.errors import AgentCapError

BACKEND = "openai"
MAX_MALFORMED = 3
"""calls in a row that are none: the model has lost the thread"""
WARN_TURNS = 5
WARN_SHARE = 0.15
"""of the time limit: with less left the model is told"""
MIN_CONTEXT_TOKENS = 2_000
NOT_RUN = "[not run: the task had ended]"


@dataclass(kw_only=True)
class CallState:
    """Where a call stands; a call that an API's failure cut short goes on from here."""

    conversation: Conversation
    num_turns: int = 0
    """answers of the model to this request"""
    used_s: float = 0.0
    """up to the last answer: waiting for a server that fails is not the agent's time"""
    text: str = ""
    """the model's last words"""
    transcript: list[Turn] = field(default_factory=list)
    spends: list[Spend] = field(default_factory=list)
    num_malformed: int = 0
    """in a row"""
    is_warned: bool = False


@dataclass(frozen=True, kw_only=True)
class _End:
    reason: str
    detail: str = ""


class Timer:
    """Seconds of one call."""

    def __init__(self, limit_s: float, *, used_s: float = 0.0) -> None:
        self.limit_s = limit_s
        self._start_s = time.monotonic() - used_s

    def used_s(self) -> float:
        return time.monotonic() - self._start_s

    def left_s(self) -> float:
        return self.limit_s - self.used_s()


@dataclass(kw_only=True)
class Loop:
    request: AgentRequest
    model: ModelClient
    asked: Asked
    kit: Kit
    ledger: Ledger
    timer: Timer
    state: CallState
    max_context_tokens: int

    def run(self) -> AgentResult:
        """To the end of the call. AgentInfraError where the API fails; `state` then says how far it came."""
        log = ExchangeLog(folder=self.request.record_dir)
        end: _End | None = None
        while end is None:
            end = self._step(log)
            self.state.used_s = self.timer.used_s()
        return self._result(end)

    def _step(self, log: ExchangeLog) -> _End | None:
        """One answer of the model and what it asks for; how the call ended, if it did."""
        if self.timer.left_s() <= 0:
            return _End(reason="timed_out", detail=f"after {self.timer.limit_s:g} s")
        if self.state.num_turns >= self.request.limits.max_turns:
            return _End(reason="max_turns", detail=f"{self.state.num_turns} answers without a result")
        self._trim(self.max_context_tokens)
        try:
            answer = self.model.ask(
                self.state.conversation, asked=self.asked, left_s=self.timer.left_s, log=log, note=self._note,
                check=lambda: self.ledger.check(self.request.role),
            )  # fmt: skip
        except AgentCapError as error:
            return _End(reason="cap", detail=str(error))
        if isinstance(answer, Failure):
            return self._without_answer(answer)
        self._count(answer)
        return self._heard(answer.turn)

    def _count(self, answer: Answered) -> None:
        """One more answered request. One that a killed process was answered is counted where that did not get to it."""
        paid = [spend for spend in self.ledger.of(key=self.request.key) if spend.backend == BACKEND]
        if 0 <= answer.recorded_index < len(paid):
            self.state.spends.append(paid[answer.recorded_index])
            return
        spend = self.ledger.add(
            role=self.request.role, key=self.request.key, backend=BACKEND, model=self.asked.model, usage=answer.usage,
            is_estimate=answer.is_estimate,
        )  # fmt: skip
        self.state.spends.append(spend)

    def _without_answer(self, failure: Failure) -> _End | None:
        if failure.kind is Kind.OVERDUE and self.state.num_turns == 0:
            # a server that never answers is no agent that is slow
            raise failure.error()
        if failure.kind is Kind.OVERDUE:
            return _End(reason="timed_out", detail=failure.text)
        if failure.kind is Kind.CONTENT:
            return _End(reason="died", detail=failure.text)
        # the server's context is shorter than declared: half of what it refused
        shorter = self.state.conversation.num_tokens(num_fixed_chars=self._num_fixed_chars) // 2
        if shorter >= MIN_CONTEXT_TOKENS and self._trim(shorter):
            self.max_context_tokens = shorter
            return None
        hint = "next: lower agents.max_context_tokens to what the server takes"
        return _End(reason="died", detail=f"{failure.text}\n{hint}")

    def _heard(self, turn: ModelTurn) -> _End | None:
        state = self.state
        state.num_turns += 1
        state.conversation.answer(turn)
        for kind, text in (("reasoning", turn.reasoning), ("message", turn.text), ("message", turn.refusal)):
            if text:
                state.transcript.append(Turn(kind=kind, text=text))
        state.text = turn.text or state.text
        if turn.calls:
            return self._run_calls(turn.calls)
        if turn.refusal:
            state.text = turn.refusal
            return _End(reason="done", detail="the model refused")
        state.text = turn.text
        facts = [] if turn.text else ["the answer is empty"]
        facts += ["the server cut it short"] if turn.is_cut else []
        return _End(reason="done", detail=", ".join(facts))

    def _run_calls(self, calls: Sequence[ToolCall]) -> _End | None:
        """In order. Every call gets a result, those behind the end of the task, too."""
        end: _End | None = None
        for call in calls:
            self.state.transcript.append(Turn(kind="tool_call", name=call.name, text=call.arguments))
            if end is None:
                text, end = self._run_call(call)
            else:
                text = NOT_RUN
            self.state.conversation.result(call, text)
            self.state.transcript.append(Turn(kind="tool_result", name=call.name, text=text))
        if end is None:
            self._warn()
        return end

    def _run_call(self, call: ToolCall) -> tuple[str, _End | None]:
        if self.timer.left_s() <= 0:
            return NOT_RUN, _End(reason="timed_out", detail=f"after {self.timer.limit_s:g} s")
        outcome = self.kit.toolbox.call(call.name, call.arguments)
        self.state.num_malformed = self.state.num_malformed + 1 if outcome.is_malformed else 0
        if outcome.submitted is not None:
            self.state.text = outcome.submitted
            return outcome.text, _End(reason="done")
        if self.state.num_malformed >= MAX_MALFORMED:
            return outcome.text, _End(
                reason="died", detail=f"{MAX_MALFORMED} wrong tool calls in a row; the last: {outcome.text}"
            )
        return outcome.text, None

    def _warn(self) -> None:
        """Tell the model, behind the last result, that a limit is near."""
        left = self.request.limits.max_turns - self.state.num_turns
        notices = [turns_notice(left)] if left in (1, WARN_TURNS) else []
        left_s = self.timer.left_s()
        if not self.state.is_warned and left_s < WARN_SHARE * self.timer.limit_s:
            self.state.is_warned = True
            notices.append(f"[{max(0.0, left_s):.0f} seconds left: submit now]")
        for notice in notices:
            self.state.conversation.append_to_last(f"\n\n{notice}")
            self._note(notice)

    def _trim(self, max_tokens: int) -> bool:
        left_out = self.state.conversation.trim(max_tokens=max_tokens, num_fixed_chars=self._num_fixed_chars)
        if left_out:
            names = ", ".join(described(result.call) for result in left_out)
            self._note(f"left out of the context from here on: results of {names}")
        return bool(left_out)

    @property
    def _num_fixed_chars(self) -> int:
        tools = sum(len(tool.description) + len(json.dumps(tool.parameters)) for tool in self.asked.tools)
        return len(self.asked.instructions) + tools

    def _note(self, text: str) -> None:
        self.state.transcript.append(Turn(kind="note", text=text))

    def _result(self, end: _End) -> AgentResult:
        spends = self.state.spends
        return AgentResult(
            text=self.state.text, usage=sum((spend.usage for spend in spends), start=AgentUsage()),
            usd=total_usd(spends), transcript=tuple(self.state.transcript),
            exit=ExitFacts(
                reason=end.reason, detail=end.detail, num_turns=self.state.num_turns,
                seconds=self.timer.used_s(),
            ),
        )  # fmt: skip


def turns_notice(left: int) -> str:
    """For the model, behind what it reads next."""
    return f"[{left} turn{'s' if left > 1 else ''} left: {'submit now' if left == 1 else 'come to an end and submit'}]"
