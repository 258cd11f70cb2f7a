"""Tools by name: what the model may call, how its arguments are checked, and how long a result may be."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.agents.schemas import schema_problem

MAX_RESULT_CHARS = 20_000
"""of one tool result in the context"""
SUBMIT = "submit"


class ToolError(Exception):
    """What a tool refuses, in words for the model. It never leaves the loop."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """`run` gets arguments that `parameters` (JSON Schema) accepts and returns the text that the model reads."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """Of one call."""

    text: str
    is_malformed: bool = False
    """the call itself was wrong: no such tool, or arguments that are none"""
    submitted: str | None = None
    """JSON text of the arguments of `submit`"""


class Toolbox:
    """The tools of one call; `submit` takes `output_schema`."""

    def __init__(self, tools: Sequence[Tool], *, output_schema: Mapping[str, Any]) -> None:
        submit = Tool(
            name=SUBMIT, parameters=output_schema, run=lambda arguments: "submitted",
            description="End the task with its result. Call it once, when all is done; nothing after it is read.",
        )  # fmt: skip
        self.tools = (*tools, submit)
        self._by_name = {tool.name: tool for tool in self.tools}

    def call(self, name: str, arguments: str) -> ToolOutcome:
        """Run one call as the model made it. What is wrong with it, or with what it asks for, is the text."""
        tool = self._by_name.get(name)
        if tool is None:
            return _malformed(f"there is no tool {name!r}; valid: {', '.join(self._by_name)}")
        try:
            # local models write raw line breaks into strings
            values = json.loads(arguments, strict=False, parse_constant=_no_constant) if arguments.strip() else {}
        except ValueError as error:
            return _malformed(f"the arguments of {name} are not valid JSON ({error}); {_expected(tool)}")
        if not isinstance(values, dict):
            return _malformed(f"the arguments of {name} must be one JSON object; {_expected(tool)}")
        text = json.dumps(values, ensure_ascii=False)
        if not _is_utf8(text):
            return _malformed(f"the arguments of {name} hold half of a surrogate pair, which no file takes")
        problem = schema_problem(values, schema=tool.parameters)
        if problem:
            return _malformed(f"wrong arguments of {name}: {problem}; {_expected(tool)}")
        if name == SUBMIT:
            return ToolOutcome(text="submitted", submitted=text)
        try:
            return ToolOutcome(text=cut(tool.run(values)))
        except ToolError as error:
            return ToolOutcome(text=cut(f"error: {error}"))
        except OSError as error:
            # names that are too long, a disk that is full: the task's, which the next call may mend
            return ToolOutcome(text=f"error: {name} failed: {error.strerror or error}")


def cut(text: str, *, max_chars: int = MAX_RESULT_CHARS) -> str:
    """Head and tail of a text that is too long, with the number of characters between them."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2 - 32
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def _malformed(text: str) -> ToolOutcome:
    return ToolOutcome(text=cut(f"error: {text}"), is_malformed=True)


def _expected(tool: Tool) -> str:
    properties = tool.parameters.get("properties", {})
    required = tool.parameters.get("required", [])
    if not properties:
        return f"{tool.name} takes no arguments"
    told = [key if key in required else f"{key} (optional)" for key in properties]
    return f"{tool.name} takes one JSON object with {', '.join(told)}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
