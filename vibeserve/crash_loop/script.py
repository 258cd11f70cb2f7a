"""What the scripted model does in the runs that are killed: one round, in which every role is asked once or more."""

from __future__ import annotations

from collections.abc import Sequence

from vibeserve.loopback.script import Command, Step, Submit
from vibeserve.loopback.scripts import BATCHING, DONE


def one_round(key: str) -> Sequence[Step]:
    """A proposal, an implementation in three turns, a review in two, a remark; then nothing more."""
    kind, _, role = key.partition("-")
    if role == "planner":
        proposal = BATCHING if kind == "p01" else None
        return [Submit({"decision": "propose" if proposal else "stop", "why": "as scripted", "proposal": proposal})]
    if role == "implementer":
        return [
            Command("printf '# Batching\\n' > NOTES.md"),
            Command("printf '\\nSee runtime/batching.py.\\n' >> NOTES.md"),
            Submit(DONE),
        ]
    if role == "judge":
        passed = {"verdict": "pass", "summary": "read the patch", "reasons": []}
        return [Command("ls runtime"), Submit(passed)]
    remark = {"span": "decode.linear", "share": 0.5, "why": "every step reads all weights"}
    return [Submit({"summary": "less queueing", "bottlenecks": [remark], "advice": "the matrix products"})]
