"""What a request may hold, by command; and what no request may touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vibeserve.agents.schemas import SCHEMAS, schema_problem
from vibeserve.control.wording import value_problem
from vibeserve.planning.backlog import MAX_TITLE_CHARS, MAX_WHY_CHARS
from vibeserve.planning.memory import MAX_NOTE_CHARS
from vibeserve.spec import ROLES

FIXED = (
    "evaluation", "workload", "baseline", "sandbox", "goals", "model", "hardware", "contract", "parallelism", "host",
    "seed", "allow_engines", "target",
)  # fmt: skip
"""groups of the spec that say what is claimed and how it is judged: another value makes another plan"""
FIXED_KEYS = ("level", "budget.level", "require_goal")
"""of groups that can be steered otherwise: what certification runs, and what counts as success"""
NEW_PLAN = "that is a new plan"
BUDGETS = ("rounds", "wall_s", "tokens", "usd")
STEERED_BACKENDS = ("playbook", "openai", "codex", "claude", "command", "external")
BACKEND_FIELDS = ("backend", "model", "effort", "base_url", "api_key_env")
VALUE = {"type": ["number", "string", "boolean"]}
ITEM_MOVES = ("park", "abandon", "reopen", "done")
NOTE_MOVES = ("add", "edit", "remove")


def _object(required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False
    }  # fmt: skip


def _text(max_length: int, *, min_length: int = 0) -> dict[str, Any]:
    return {"type": "string", "minLength": min_length, "maxLength": max_length}


_WHY = _text(MAX_WHY_CHARS)
_NAMES = {"type": "array", "items": {"type": "string"}}
_AMOUNT = {"type": "number", "minimum": 0}
PROPOSAL_SCHEMA: Mapping[str, Any] = SCHEMAS["planner"]["properties"]["proposal"]["anyOf"][0]
SHAPES: dict[str, dict[str, Any]] = {
    "pause": _object(why=_WHY),
    "resume": _object(why=_WHY),
    "stop": _object(why=_WHY),
    "constrain": _object(
        ban=_NAMES, lift=_NAMES, why=_WHY,
        only={"type": "object", "additionalProperties": {"type": "array", "minItems": 1, "items": VALUE}},
    ),
    "veto": _object(["item"], item={"type": "string"}, why=_WHY),
    "pin": _object(values={"type": "object", "additionalProperties": VALUE}, lift=_NAMES, why=_WHY),
    "propose": _object(["proposal"], proposal=PROPOSAL_SCHEMA, why=_WHY),
    "budget": _object(
        rounds={"type": "integer", "minimum": 0}, wall_s=_AMOUNT, tokens={"type": "integer", "minimum": 0},
        usd=_AMOUNT, why=_WHY,
    ),
    "backend": _object(
        ["roles"], why=_WHY,
        roles={
            "type": "object", "minProperties": 1, "propertyNames": {"enum": list(ROLES)},
            "additionalProperties": _object(
                ["backend"], backend={"enum": list(STEERED_BACKENDS)},
                **{name: {"type": "string"} for name in BACKEND_FIELDS[1:]},
            ),
        },
    ),
    "backlog": _object(
        ["action"], action={"enum": ["add", *ITEM_MOVES]}, item={"type": "string"}, mechanism=_WHY, why=_WHY,
        title=_text(MAX_TITLE_CHARS),
    ),
    "note": _object(
        ["action"], action={"enum": list(NOTE_MOVES)}, note={"type": "string"}, text=_text(MAX_NOTE_CHARS)
    ),
}  # fmt: skip
"""JSON Schema of a request's arguments"""
PLANNING = ("backlog", "note")
"""commands that edit planning state: without an owner they are carried out at once"""
AT_ANY_TIME = ("pause", "resume", *PLANNING)
"""commands that make sense after the search has ended, too"""
BEFORE_THE_SEARCH = (*AT_ANY_TIME, "stop")
"""commands that are carried out before it has begun; the others wait for it, because they speak of what it knows"""


def fixed_names(names: Iterable[str]) -> list[str]:
    """Those that a run cannot change: in a fixed group, or a fixed key."""
    return [name for name in names if name in FIXED_KEYS or name.split(".")[0].split("[")[0] in FIXED]


def shape_problem(command: str, arguments: Mapping[str, Any]) -> str:
    """What is wrong with a request by itself; empty where nothing is."""
    if command not in SHAPES:
        return f"there is no command '{command}'; valid: {', '.join(SHAPES)}"
    fixed = fixed_names(_named(arguments))
    if fixed:
        return f"{', '.join(fixed)}: {NEW_PLAN}"
    problem = _too_long(command, arguments) or _unknown(command, arguments)
    problem = problem or _invalid(command, arguments)
    return problem or _empty(command, arguments) or _incomplete(command, arguments)


def _invalid(command: str, arguments: Mapping[str, Any]) -> str:
    """What a value is not. A proposal is a JSON document; anything else was typed as words."""
    if command == "propose":
        return schema_problem(dict(arguments), schema=SHAPES[command])
    return value_problem(command, dict(arguments), schema=SHAPES[command])


def _named(arguments: Mapping[str, Any]) -> list[str]:
    """Every name that a request gives something to: its own keys and those of its mappings."""
    names = list(arguments)
    for name in ("values", "only", "roles"):
        value = arguments.get(name)
        names += list(value) if isinstance(value, Mapping) else []
    return names


def _too_long(command: str, arguments: Mapping[str, Any]) -> str:
    """Told apart, because the schema's own words quote the whole text."""
    limits = {name: each.get("maxLength") for name, each in SHAPES[command]["properties"].items()}
    lengths = {name: len(value) for name, value in arguments.items() if isinstance(value, str) and limits.get(name)}
    return "; ".join(
        f"{name} has {num} characters, at most {limits[name]}" for name, num in lengths.items() if num > limits[name]
    )


def _empty(command: str, arguments: Mapping[str, Any]) -> str:
    said = {name for name, value in arguments.items() if name != "why" and value not in ([], {})}
    asks = {"constrain": "ban, only, lift", "pin": "values, lift", "budget": ", ".join(BUDGETS)}
    return f"it asks for nothing; valid: {asks[command]}" if command in asks and not said else ""


def _unknown(command: str, arguments: Mapping[str, Any]) -> str:
    """Keys that the command does not take, in the words of a command line."""
    unknown = [name for name in arguments if name not in SHAPES[command]["properties"]]
    if not unknown:
        return ""
    valid = ", ".join(name for name in SHAPES[command]["properties"] if name != "why")
    takes = f"valid: {valid}" if valid else "it takes nothing more"
    return f"{command} does not know {', '.join(map(repr, unknown))}; {takes}"


def _incomplete(command: str, arguments: Mapping[str, Any]) -> str:
    """Keys that one action of a command needs and another one does not."""
    action = arguments.get("action", "")
    needed: tuple[str, ...] = ()
    if command == "backlog":
        needed = ("title",) if action == "add" else ("item", "why") if action == "abandon" else ("item",)
    if command == "note":
        needed = ("text",) if action == "add" else ("note", "text") if action == "edit" else ("note",)
    missing = [name for name in needed if not str(arguments.get(name, "")).strip()]
    return f"{command} {action} needs {' and '.join(missing)}" if missing else ""


def told(command: str, arguments: Mapping[str, Any]) -> str:
    """A request in words, on one line."""
    return " ".join([command, *_parts(command, arguments)])


def _parts(command: str, arguments: Mapping[str, Any]) -> list[str]:
    if command == "constrain":
        only = [f"{name} only {','.join(map(str, values))}" for name, values in arguments.get("only", {}).items()]
        return [*(f"ban {name}" for name in arguments.get("ban", ())), *only, *_lifted(arguments)]
    if command == "pin":
        return [*(f"{name}={value}" for name, value in arguments.get("values", {}).items()), *_lifted(arguments)]
    if command == "propose":
        return [str(arguments.get("proposal", {}).get("title", ""))]
    if command == "budget":
        return [f"{name}={arguments[name]:g}" for name in BUDGETS if name in arguments]
    if command == "backend":
        return [
            f"{role}={','.join(str(value) for value in fields.values())}"
            for role, fields in arguments.get("roles", {}).items()
        ]
    return [str(arguments[name]) for name in ("action", "item", "note", "title", "text") if arguments.get(name)]


def _lifted(arguments: Mapping[str, Any]) -> list[str]:
    return [f"lift {name}" for name in arguments.get("lift", ())]
