"""The exception tree. Each class knows its exit code and carries its facts as data.

VibeServeError
|-- SpecError            2    what was declared cannot be run; nothing was spent
|   `-- ContractError          a file of the target's folder failed, or broke its contract; may come late
|-- RefusedError         3    a gate refused, or the result is not certified
|-- GoalMissedError      3    certified, but `--require-goal` was given and a goal is missed
|-- BudgetError          4    the budget ended before the work did
|   `-- AgentCapError          a cap on an agent's tokens or cost forbids its next request
`-- InfraError           5    the machine, not the candidate
    |-- MissingBaselineError   a required baseline is not installed
    |-- AgentInfraError        a model's API, not the agent: worth another try later
    |-- StorageError           a disk is full or read-only: nothing is said about a candidate, nothing is lost
    |-- VersionError           a document of another schema_version
    |-- ServerError            a server did not start, died or hung; carries its log tail
    `-- WeightsError           the model's files could not be had
"""

from __future__ import annotations

from collections.abc import Sequence


class VibeServeError(Exception):
    """Base of every error that a user may see without a traceback."""

    exit_code = 1


class SpecError(VibeServeError):
    """A target, an override or a combination of both cannot be run.

    `problems` holds one line per fault: where, what, and the valid options.
    """

    exit_code = 2

    def __init__(self, message: str, *, problems: Sequence[str] = (), hint: str = "") -> None:
        self.problems = tuple(problems)
        self.hint = hint
        lines = [message, *(f"  {problem}" for problem in self.problems)]
        if hint:
            lines.append(f"next: {hint}")
        super().__init__("\n".join(lines))


class ContractError(SpecError):
    """A file of the target's folder failed, or does not do what its contract says: no candidate's doing, never a score.

    It may come in the middle of a run, which it ends.
    """


class RefusedError(VibeServeError):
    """A gate refused what was offered. `reasons` are the typed refusals as documents."""

    exit_code = 3

    def __init__(self, message: str, *, reasons: Sequence[object] = ()) -> None:
        self.reasons = tuple(reasons)
        super().__init__(message)


class GoalMissedError(VibeServeError):
    """The result is certified and a declared goal is missed (`--require-goal`)."""

    exit_code = 3


class BudgetError(VibeServeError):
    """The budget ended before the work did."""

    exit_code = 4


class AgentCapError(BudgetError):
    """A cap on tokens or cost is reached: the agent's next request is not sent. `scope` is `run` or the role."""

    def __init__(self, message: str, *, scope: str) -> None:
        self.scope = scope
        super().__init__(message)


class InfraError(VibeServeError):
    """The machine failed, not the candidate. Never a score."""

    exit_code = 5


class MissingBaselineError(InfraError):
    """A required baseline is not installed; the message holds the command that installs it, or another next step."""

    def __init__(self, name: str, *, install: str, why: str = "is not installed") -> None:
        self.name = name
        super().__init__(f"required baseline '{name}' {why}\nnext: {install}")


class AgentInfraError(InfraError):
    """A model's API failed: 429, 5xx, lost network, quota. `retry_after_s` is what it asked to wait, if anything.

    `is_lasting`: no repetition mends it (a wrong key, an unknown model, a client that is not installed).
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None, is_lasting: bool = False) -> None:
        self.retry_after_s = retry_after_s
        self.is_lasting = is_lasting
        super().__init__(message)


class StorageError(InfraError):
    """A disk is full, or takes nothing. What was being done did not happen; it is done again by the same command."""


class VersionError(InfraError):
    """A document that another version of VibeServe wrote, in a form that this one does not read."""

    def __init__(self, path: object, *, found: object, known: object) -> None:
        super().__init__(
            f"{path} has schema_version {found}; this version of VibeServe reads {known}\n"
            "next: use the version that wrote it, or move the file away to have it made anew"
        )


class ServerError(InfraError):
    """A server did not start, died, hung or broke its wall. `outcome` is one of `died timed_out build_failed
    out_of_memory out_of_disk out_of_processes runs_when_stopped forbidden_call uncounted`."""

    def __init__(self, name: str, *, outcome: str, detail: str, log_tail: str) -> None:
        self.name = name
        self.outcome = outcome
        self.detail = detail
        self.log_tail = log_tail
        tail = "\n".join(f"  | {line}" for line in log_tail.splitlines()[-12:])
        super().__init__(f"server '{name}' {outcome}: {detail}" + (f"\n{tail}" if tail else ""))


class WeightsError(InfraError):
    """The model's files could not be had, or do not match their declared digest."""
