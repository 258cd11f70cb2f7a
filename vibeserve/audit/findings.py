"""One finding of the static scan, and how it becomes a typed refusal."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.audit.policy import ALTERNATIVES
from vibeserve.core.nouns import Refusal


@dataclass(frozen=True, order=True)
class Finding:
    """`file` is relative to the workspace; `line` 0 = the file as a whole."""

    file: str
    line: int
    reason_class: str
    what: str

    def refusal(self) -> Refusal:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return Refusal(
            gate="scan",
            reason_class=self.reason_class,
            file=where,
            text=f"{where}: {self.what}. Valid: {ALTERNATIVES[self.reason_class]}",
        )
