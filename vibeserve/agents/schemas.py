"""Structured outputs of the roles: JSON Schema, and from a valid document to the nouns.

Every object is closed and every property required, which is the subset that the providers' strict modes take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vibeserve.core.nouns import Proposal, Refusal

GAVE_UP = "gave_up: it cannot be built, or your own measurement shows no gain (give the numbers); the round ends"
REVIEW = "review"
"""gate of an agent's refusals"""
REVIEW_CLASSES = ("wrong_output", "cheating", "unsafe", "dishonest_claim", "breaks_contract")
MAX_FORECAST = 1000.0
MAX_TEXT = 2000
FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False
    }  # fmt: skip


def _text(description: str, *, min_length: int = 0) -> dict[str, Any]:
    return {"type": "string", "minLength": min_length, "maxLength": MAX_TEXT, "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "maxLength": MAX_TEXT}, "description": description}


_PARAMETER = _object(
    name={"type": "string", "description": "a parameter of the scaffold or of one of the components"},
    value={"type": ["number", "string", "boolean"]},
)
_PROPOSAL = _object(
    title=_text("one line", min_length=3),
    hypothesis=_text("what will be faster, and why", min_length=10),
    mechanism=_text("how: what the runtime will do differently", min_length=10),
    activation_evidence=_text("`functions`, `modules` or symbols that run on the new path", min_length=3),
    falsification=_text("which result proves the hypothesis wrong", min_length=3),
    forecast_ratio={
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": MAX_FORECAST,
        "description": "expected headline against the incumbent's; above 1 is better",
    },
    invariants=_texts("what must stay true of the runtime"),
    skills=_texts("skills that the implementer should open, by name"),
    components=_texts("the whole list of components of the proposed assembly; [] = none"),
    parameters={"type": "array", "items": _PARAMETER, "description": "parameters that differ from their defaults"},
    what_changed=_text("what is different now, where this is like an abandoned idea; empty otherwise"),
)

SCHEMAS: dict[str, dict[str, Any]] = {
    "planner": _object(
        decision={"enum": ["propose", "stop"], "description": "stop: nothing that is left promises a gain"},
        why=_text("of the decision, in one or two sentences", min_length=3),
        proposal={"anyOf": [_PROPOSAL, {"type": "null"}]},
    ),
    "implementer": _object(
        status={"enum": ["done", "gave_up"], "description": GAVE_UP},
        summary=_text("what was changed, for the one who judges it", min_length=3),
        activation_evidence=_text("how one sees that the new path runs"),
        risks=_text("what may be wrong with it"),
    ),
    "judge": _object(
        verdict={"enum": ["pass", "refuse"]},
        summary=_text("what was looked at", min_length=3),
        reasons={
            "type": "array",
            "items": _object(
                **{"class": {"enum": list(REVIEW_CLASSES)}},
                file=_text("path in the workspace; empty where it is about no file"),
                text=_text("what is wrong and what would mend it", min_length=10),
            ),
            "description": "of a refusal; [] = none",
        },
    ),
    "evaluator": _object(
        summary={**_text("what the measurements say", min_length=3), "maxLength": 500},
        bottlenecks={
            "type": "array",
            "items": _object(
                span=_text("where requests spend their time"),
                share={"type": "number", "minimum": 0, "maximum": 1},
                why={**_text("cause, as far as the evidence goes"), "maxLength": 200},
            ),
            "maxItems": 4,
            "description": "largest first",
        },
        advice={**_text("what to try next"), "maxLength": 400},
    ),
}
"""by role"""


def parse_output(text: str, *, schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The document in an agent's final text, or why it is none: (document, "") or ({}, reason).

    A document may stand alone, in a fenced block, or be the last object of the text.
    """
    if not text.strip():
        return {}, "the answer is empty; answer with one JSON document"
    data = _document_in(text)
    if data is None:
        return {}, f"the answer holds no JSON document; it begins: {text.strip()[:120]!r}"
    problem = schema_problem(data, schema=schema)
    return ({}, problem) if problem else (data, "")


def schema_problem(data: Any, *, schema: Mapping[str, Any]) -> str:
    """What of `data` the schema refuses, at which key; empty where it is valid."""
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=lambda error: (len(error.path), error.message))
    if not errors:
        return ""
    told = [f"{'.'.join(map(str, error.absolute_path)) or 'document'}: {error.message[:300]}" for error in errors[:5]]
    return "the JSON document is not valid: " + "; ".join(told)


def _document_in(text: str) -> Any:
    stripped = text.strip()
    fenced = FENCE.findall(stripped)
    for part in (stripped, *reversed(fenced)):
        try:
            data = json.loads(part, parse_constant=_no_constant)
        except ValueError:
            continue
        if isinstance(data, dict):
            return data
    return _last_object(stripped)


def _last_object(text: str) -> Any:
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    found, position = None, text.find("{")
    while position >= 0:
        try:
            data, end = decoder.raw_decode(text, position)
        except ValueError:
            position = text.find("{", position + 1)
            continue
        found = data if isinstance(data, dict) else found
        position = text.find("{", end)
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def proposal_of(document: Mapping[str, Any], *, proposal_id: str) -> Proposal:
    """The proposal in a planner's valid document."""
    data = document["proposal"]
    return Proposal(
        proposal_id=proposal_id, title=data["title"], hypothesis=data["hypothesis"], mechanism=data["mechanism"],
        activation_evidence=data["activation_evidence"], falsification=data["falsification"],
        forecast_ratio=float(data["forecast_ratio"]), components=tuple(sorted(set(data["components"]))),
        parameters={row["name"]: row["value"] for row in data["parameters"]}, skills=tuple(data["skills"]),
        invariants=tuple(data["invariants"]), what_changed=data["what_changed"],
    )  # fmt: skip


def refusals_of(document: Mapping[str, Any]) -> list[Refusal]:
    """An agent judge's refusals; none where it passes. A refusal without a reason is one all the same."""
    if document["verdict"] == "pass":
        return []
    rows = document["reasons"] or [{"class": "breaks_contract", "file": "", "text": document["summary"]}]
    return [Refusal(gate=REVIEW, reason_class=row["class"], text=row["text"], file=row["file"] or None) for row in rows]
