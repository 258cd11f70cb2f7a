"""The rounds of `agents-loopback`: one refused, mended and accepted, and one that is refused for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vibeserve.loopback.script import Command, Step, Submit

COMPONENT = "continuous-batching"
NOTE = "NOTES.md"
FORBIDDEN = "import vllm"

BATCHING: dict[str, Any] = {
    "title": "serve several sequences in a step",
    "hypothesis": "requests queue for one slot; eight slots read the weights once for eight rows",
    "mechanism": "the scheduler admits sequences between steps and plans one row for each of them",
    "activation_evidence": "the span queue shrinks; runtime/batching.py is there",
    "falsification": "the paired headline ratio includes 1",
    "forecast_ratio": 2.0,
    "invariants": ["first come, first served", "a reply does not depend on its neighbours"],
    "skills": [COMPONENT],
    "components": [COMPONENT],
    "parameters": [],
    "what_changed": "",
}
WRONG: dict[str, Any] = {
    **BATCHING,
    "title": "answer every position with the token before it",
    "hypothesis": "a model that does not look is faster than one that does",
    "mechanism": "the sampler gives back the last token that it was given",
    "activation_evidence": "runtime/sampler.py differs",
    "forecast_ratio": 3.0,
    "invariants": [],
}
DONE = {"status": "done", "summary": "as proposed", "activation_evidence": "the span queue", "risks": "none seen"}


def two_rounds(key: str) -> Sequence[Step]:
    """What the scripted model does in the call `key`; the same for every client."""
    kind, _, role = key.partition("-")
    if role == "planner":
        proposal = {"p01": BATCHING, "p02": WRONG}.get(kind)
        decision = "propose" if proposal else "stop"
        return [Submit({"decision": decision, "why": "it is the script's turn", "proposal": proposal})]
    if role == "implementer":
        return _edits(kind)
    if role == "judge":
        looked = {"verdict": "pass", "summary": "read the patch and the scheduler", "reasons": []}
        return [Command("ls runtime && head -20 runtime/scheduler.py"), Submit(looked)]
    remark = {"span": "decode.linear", "share": 0.5, "why": "every step reads all weights"}
    return [Submit({"summary": "less queueing", "bottlenecks": [remark], "advice": "look at the matrix products"})]


def _edits(kind: str) -> Sequence[Step]:
    edits: dict[str, Sequence[Step]] = {
        # an engine is imported: the static scan refuses it, and the next attempt takes it out again
        "r01a1": [
            Command(f"printf '# Batching\\n\\nSee runtime/batching.py.\\n' > {NOTE}"),
            Command(f"printf '{FORBIDDEN}\\n' >> runtime/batching.py && tail -3 runtime/batching.py"),
            Submit(DONE),
        ],
        "r01a2": [Command(f"sed -i '/^{FORBIDDEN}$/d' runtime/batching.py && ls runtime"), Submit(DONE)],
        # every token is the one before it: probes or re-scoring refuse that, and the author gives up
        "r02a1": [Command(f"python - <<'END'\n{SPOILT}END"), Submit(DONE)],
    }
    gave_up = {**DONE, "status": "gave_up", "summary": "it cannot be right"}
    return edits.get(kind, [Submit(gave_up)])


SPOILT = """\
from pathlib import Path

path = Path("runtime/sampler.py")
text = path.read_text()
marker = "argmax("
assert marker in text, "the sampler has no argmax any more"
path.write_text(text.replace(marker, "argmin("))
"""
"""takes the least likely token for the likeliest"""
