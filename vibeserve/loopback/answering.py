"""From a step of the script to the answer of one request: in the client's own tools and its own API's words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vibeserve.loopback.dialects import Answer, Asked, usage_of
from vibeserve.loopback.script import HUGE_BYTES, MALFORMED, REFUSAL, Command, Fault, Say, Step, Submit

SUBMIT_TOOLS = ("submit", "StructuredOutput")
"""of our own loop; of Claude Code with a schema"""
BESIDE = "A side question."
"""answer to a request that offers no tools: clients ask for titles and summaries"""
SILENT = "The script says nothing about this call."
HUGE_COMMAND = f"head -c {HUGE_BYTES} /dev/zero | tr '\\0' x"
ENDLESS_COMMAND = "echo again"
_PURPOSE = "scripted"

_SHELLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "run_command": lambda text: {"command": text},
    # without it Codex puts a command into the background after ten seconds
    "exec_command": lambda text: {"cmd": text, "yield_time_ms": 30_000},
    "shell_command": lambda text: {"command": text},
    "shell": lambda text: {"command": ["bash", "-c", text]},
    "Bash": lambda text: {"command": text, "description": _PURPOSE},
    "bash": lambda text: {"command": text, "description": _PURPOSE},
    "run_shell_command": lambda text: {"command": text, "description": _PURPOSE},
}
"""shell tools by name -> their arguments: of our own loop, Codex, Claude Code, opencode, Gemini CLI"""


def is_beside(asked: Asked) -> bool:
    """Whether the request is none of the agent's turns."""
    return not asked.tools


def answer_to(asked: Asked, step: Step | None, *, key: str) -> Answer:
    """The answer that `step` stands for; faults of the server (HTTP_FAULTS) are not answers."""
    said = _say(asked, step)
    ident = hashlib.sha256(f"{key}/{asked.num_results}/{len(asked.said)}".encode()).hexdigest()[:20]
    written = json.dumps(said.get("arguments")) if "tool" in said else said["text"]
    return Answer(ident=ident, usage=usage_of(asked, written=written), **said)


def _say(asked: Asked, step: Step | None) -> dict[str, Any]:
    if step is None:
        return {"text": BESIDE if is_beside(asked) else SILENT}
    if isinstance(step, Command):
        return _shell_call(asked.tools, step.text)
    if isinstance(step, Submit):
        return _submission(asked.tools, step.document)
    if isinstance(step, Say):
        return {"text": step.text}
    return _fault(asked.tools, step)


def _fault(tools: Sequence[str], fault: Fault) -> dict[str, Any]:
    if fault.kind == "endless":
        return _shell_call(tools, ENDLESS_COMMAND)
    if fault.kind == "huge":
        return _shell_call(tools, HUGE_COMMAND)
    texts = {"malformed": MALFORMED, "empty": "", "refusal": REFUSAL}
    return {"text": texts[fault.kind], "is_refusal": fault.kind == "refusal"}


def _shell_call(tools: Sequence[str], text: str) -> dict[str, Any]:
    for name, arguments in _SHELLS.items():
        if name in tools:
            return {"tool": name, "arguments": arguments(text)}
    return {"text": f"No shell tool is offered, of {', '.join(tools) or 'none'}."}


def _submission(tools: Sequence[str], document: object) -> dict[str, Any]:
    for name in SUBMIT_TOOLS:
        if name in tools and isinstance(document, Mapping):
            return {"tool": name, "arguments": document}
    return {"text": json.dumps(document)}
