"""One call of an agent, held to the same rules whatever the back end: structured output, one more try with the reason,
patience with a model's API, caps, records, and nothing asked twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from vibeserve.agents.ledger import Ledger
from vibeserve.agents.requests import AgentBackend, AgentRequest, AgentResult, AgentUsage, CallLimits, ExitFacts, Turn
from vibeserve.agents.schemas import parse_output
from vibeserve.core.documents import read_document, write_document
from vibeserve.core.nouns import Refusal
from vibeserve.errors import AgentCapError, AgentInfraError, RefusedError
from vibeserve.progress import Progress
from vibeserve.prompts import shortened
from vibeserve.spec import RoleAgent

GATE = "agent"
FIRST_WAIT_S, MAX_WAIT_S = 2.0, 120.0
MAX_TRIES = 2
"""an output that cannot be used is asked for once more, with the reason"""
ANSWER, TRANSCRIPT, PROMPT = "answer.json", "transcript.json", "prompt.md"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Document: an agent's valid answer, kept beside its transcript so that no call is paid for twice."""

    schema_version: int = 1
    key: str
    role: str
    backend: str
    model: str
    prompt_digest: str
    output: dict[str, Any]
    exit: ExitFacts
    usage: AgentUsage
    usd: float | None
    num_tries: int


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """Document: every turn of a call, tries in a row."""

    schema_version: int = 1
    key: str
    turns: tuple[Turn, ...]


@dataclass(kw_only=True)
class AgentCaller:
    """Calls one role's back end. `folder` keeps a folder per session key."""

    agent: RoleAgent
    backend: AgentBackend
    ledger: Ledger
    folder: Path
    progress: Progress
    remaining_s: Callable[[], float]
    """what is left of the search's time"""
    sleep: Callable[[float], None] = time.sleep
    finished: Callable[[str, Sequence[Turn]], None] = lambda key, turns: None
    """is told the transcript of every call, by its key"""
    _turns: list[Turn] = field(default_factory=list)

    def ask(
        self, *, key: str, prompt: str, workspace: Path, is_writable: bool, schema: Mapping[str, Any],
        read_only: tuple[Path, ...] = (), restart: Callable[[], None] = lambda: None,
        settle: Callable[[Mapping[str, Any]], None] = lambda output: None,
    ) -> Answer:  # fmt: skip
        """The valid answer to `prompt`, from the record where the same was asked before.

        `restart` puts the workspace back as it was, before a request is repeated that an API's failure cut short.
        `settle` keeps what belongs to a valid answer, before the answer itself is kept.
        RefusedError (gate `agent`) for an answer that cannot be used, AgentCapError, AgentInfraError when the time is
        over before the API answers, or when waiting mends nothing.
        """
        folder = self.folder / key
        digest = sha256(prompt.encode()).hexdigest()
        kept = self.kept(key, prompt_digest=digest)
        if kept is not None:
            return kept
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROMPT).write_text(prompt, encoding="utf-8")
        request = AgentRequest(
            role=self.agent.role, key=key, prompt=prompt, workspace=workspace, is_writable=is_writable,
            output_schema=schema, record_dir=folder, read_only=read_only,
            limits=CallLimits(timeout_s=self.agent.timeout_s, max_turns=self.agent.max_turns),
        )  # fmt: skip
        self._turns = []
        try:
            return self._answer(request, digest=digest, restart=restart, settle=settle)
        finally:
            write_document(folder / TRANSCRIPT, Transcript(key=key, turns=tuple(self._turns)))
            self.finished(key, self._turns)

    def kept(self, key: str, *, prompt_digest: str) -> Answer | None:
        """The answer to the same prompt that an earlier process of this run got."""
        path = self.folder / key / ANSWER
        if not path.is_file():
            return None
        answer = read_document(path, Answer)
        return answer if answer.prompt_digest == prompt_digest else None

    def _answer(
        self, request: AgentRequest, *, digest: str, restart: Callable[[], None],
        settle: Callable[[Mapping[str, Any]], None],
    ) -> Answer:  # fmt: skip
        problem = ""
        for number in range(1, MAX_TRIES + 1):
            result = self._run_patiently(replace(request, feedback=problem), restart=restart)
            self._turns.extend(result.transcript)
            output, problem = parse_output(result.text, schema=request.output_schema)
            if problem and result.exit.reason == "died" and result.exit.detail:
                problem = f"the agent ended without an answer: {shortened(result.exit.detail, max_chars=300)}"
            if not problem:
                answer = Answer(
                    key=request.key, role=self.agent.role, backend=self.agent.backend, model=self.agent.model,
                    prompt_digest=digest, output=output, exit=result.exit, num_tries=number,
                    usage=self.ledger.usage(key=request.key), usd=self.ledger.usd(key=request.key),
                )  # fmt: skip
                settle(output)
                write_document(request.record_dir / ANSWER, answer)
                return answer
            self._turns.append(Turn(kind="note", text=f"refused: {problem}"))
            self._refuse_ended(result, request)
            self.progress.event(request.key, f"{problem}; asked once more" if number < MAX_TRIES else problem)
        raise _refused(request, "unusable_output", problem)

    def _refuse_ended(self, result: AgentResult, request: AgentRequest) -> None:
        """An output that is missing because the call was ended is not asked for again."""
        if result.exit.reason == "cap":
            self.ledger.check(self.agent.role)
            raise AgentCapError(result.exit.detail or "a cap ended the call", scope=self.agent.role)
        if result.exit.reason in ("timed_out", "max_turns"):
            limit = f"{request.limits.timeout_s:g} s" if result.exit.reason == "timed_out" else "its turns"
            raise _refused(request, result.exit.reason, f"the {request.role} had no answer within {limit}")

    def _run_patiently(self, request: AgentRequest, *, restart: Callable[[], None]) -> AgentResult:
        """Waits where a model's API fails, longer each time, as long as the search has time."""
        wait_s = FIRST_WAIT_S
        while True:
            self.ledger.check(self.agent.role)
            timeout_s = min(request.limits.timeout_s, max(1.0, self.remaining_s()))
            try:
                return self.backend.run(replace(request, limits=replace(request.limits, timeout_s=timeout_s)))
            except AgentInfraError as error:
                pause_s = max(wait_s, error.retry_after_s or 0.0)
                self._turns.append(Turn(kind="note", text=f"the model's API failed: {error}"))
                if error.is_lasting or self.remaining_s() <= pause_s:
                    raise
                first = str(error).splitlines()[0]
                self.progress.event(request.key, f"{first}; again in {pause_s:.0f} s")
                self.sleep(pause_s)
                wait_s = min(2 * wait_s, MAX_WAIT_S)
                if not self.backend.resumes:
                    restart()


def _refused(request: AgentRequest, reason_class: str, text: str) -> RefusedError:
    refusal = Refusal(gate=GATE, reason_class=reason_class, text=text)
    return RefusedError(f"{request.key}: {text}", reasons=[refusal])
