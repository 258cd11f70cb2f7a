"""The card of a component (`component.yaml`): what it fills, where it applies, what it is expected to win."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

SEAMS = (
    "weights",
    "linear",
    "attention",
    "encoder",
    "decoder",
    "recurrence",
    "model",
    "kv_cache",
    "scheduler",
    "sampler",
    "tokenizer",
    "constraints",
    "http",
    "placement",
)
"""modules of a scaffold that a component may replace"""

SPANS = ("queue", "prefill", "decode.linear", "decode.attention", "decode.other", "sampling", "tokenize", "http")
"""parts of a request's wall time that the runtime reports"""

PARAMETER_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
PRECISIONS = ("same_bytes", "any")
RANKS = ("one", "several")
STATUSES = ("proven", "unproven")

Value = int | float | str | bool


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One tunable value of a component or of the scaffold."""

    type: str
    """int, float, str, bool"""
    default: Value
    range: tuple[float, float] | None = None
    """int, float: inclusive bounds"""
    choices: tuple[Value, ...] = ()
    tune: tuple[Value, ...] = ()
    """values worth trying, for the search"""
    doc: str = ""

    def problem(self, value: Value) -> str | None:
        """Why `value` is not one of this parameter, or None."""
        kind = PARAMETER_TYPES[self.type]
        accepted = (int, float) if kind is float else (kind,)
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            return f"must be of type {self.type}, got {value!r}"
        if self.range is not None and not self.range[0] <= float(value) <= self.range[1]:
            return f"must be from {self.range[0]:g} to {self.range[1]:g}, got {value!r}"
        if self.choices and value not in self.choices:
            return f"must be one of {', '.join(map(repr, self.choices))}, got {value!r}"
        return None


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Where a component works at all. An empty list sets no condition."""

    architectures: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    """kinds: cpu, cuda, mps"""
    cpu_flags_any: tuple[str, ...] = ()
    """at least one of these flags of /proc/cpuinfo"""
    cpu_flags_all: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    """tables that it may enter: same_bytes, any"""
    reuse: tuple[str, ...] = ()
    """reuse that the workload must declare: none, prefix"""
    prediction: tuple[str, ...] = ()
    """kinds of prediction, one of which clients must send under the headline load: edits, pre_edit, exact, useless"""
    workloads: tuple[str, ...] = ()
    """kinds of workload (`docs/workloads.md`)"""
    ranks: tuple[str, ...] = ()
    """over how many processes a model may be spread (`parallelism.tensor`): one, several"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A component's machine-readable side. `files` maps paths in the skill to paths in the workspace."""

    schema_version: int = 1
    name: str
    seams: tuple[str, ...] = ()
    files: Mapping[str, str]
    extends: tuple[str, ...] = ()
    """components that it needs; where both fill a seam this one's module is taken"""
    conflicts: tuple[str, ...] = ()
    conditions: Conditions = field(default_factory=Conditions)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    relieves: tuple[str, ...] = ()
    """spans that become shorter"""
    expected_factor: float = 1.0
    """how many times faster the relieved spans become, against the same assembly without it"""
    expected_factor_note: str = ""
    weight_bits: int = 0
    """bits per weight that decode reads; 0 = leaves them as they are"""
    native: bool = False
    """brings C++ sources that the workspace's build step compiles"""
    status: str = "proven"
    """unproven: it has not run on the hardware that it is for; only `search.allow_unproven` admits it"""


def parse_card(data: Any, *, name: str) -> tuple[Card | None, list[str]]:
    """Card from parsed YAML and all its problems; the card is None where there is any. `name` is the skill's."""
    if not isinstance(data, dict):
        return None, ["must be a mapping"]
    problems = unknown_keys(data, Card, "")
    problems += [f"{key}: is required" for key in ("schema_version", "name", "files") if key not in data]
    conditions, nested = parse_conditions(data.get("conditions", {}))
    parameters, more = parse_parameters(data.get("parameters", {}))
    problems += nested + more
    list_keys = ("seams", "extends", "conflicts", "relieves")
    lists: dict[str, Any] = {key: string_list(data, key, problems) for key in list_keys}
    scalars = _scalars(data, problems)
    files = data.get("files", {})
    if not (isinstance(files, dict) and files and all(isinstance(x, str) for pair in files.items() for x in pair)):
        problems.append("files: must map paths in the skill to paths in the workspace")
    if problems:
        return None, problems
    values: dict[str, Any] = {**lists, **scalars, "files": dict(files)}
    card = Card(**values, conditions=conditions, parameters=parameters)
    problems = _semantic_problems(card, name)
    return (None if problems else card), problems


def parse_parameters(data: Any) -> tuple[dict[str, Parameter], list[str]]:
    """Parameters by name from parsed YAML, and all problems."""
    if not isinstance(data, dict):
        return {}, ["parameters: must map names to declarations"]
    parameters: dict[str, Parameter] = {}
    problems: list[str] = []
    for name, declared in data.items():
        parameter, found = _parse_parameter(declared)
        problems += [f"parameters.{name}: {problem}" for problem in found]
        if not (isinstance(name, str) and name.isidentifier()):
            problems.append(f"parameters.{name}: is not a Python identifier")
        if parameter is not None:
            parameters[name] = parameter
    return parameters, problems


def unknown_keys(data: Mapping[str, Any], cls: type, prefix: str) -> list[str]:
    """One problem for every key of `data` that dataclass `cls` does not have."""
    valid = [item.name for item in fields(cls)]
    return [f"{prefix}{key}: unknown key; valid: {', '.join(valid)}" for key in data if key not in valid]


def _parse_parameter(data: Any) -> tuple[Parameter | None, list[str]]:
    if not isinstance(data, dict) or "type" not in data or "default" not in data:
        return None, ["must be a mapping with at least 'type' and 'default'"]
    problems = unknown_keys(data, Parameter, "")
    if data["type"] not in PARAMETER_TYPES:
        problems.append(f"type {data['type']!r} is unknown; valid: {', '.join(PARAMETER_TYPES)}")
    for key in ("range", "choices", "tune"):
        if not isinstance(data.get(key, []), list):
            problems.append(f"{key} must be a list")
    bounds = data.get("range")
    if isinstance(bounds, list) and not (len(bounds) == 2 and all(isinstance(x, int | float) for x in bounds)):
        problems.append("range must be [low, high]")
    if problems:
        return None, problems
    lists = {key: tuple(data[key]) for key in ("range", "choices", "tune") if key in data}
    parameter = Parameter(**{**data, **lists})
    for label, value in (("default", parameter.default), *(("tune", value) for value in parameter.tune)):
        problem = parameter.problem(value)
        if problem is not None:
            problems.append(f"{label} {problem}")
    return parameter, problems


def parse_conditions(data: Any) -> tuple[Conditions, list[str]]:
    """Conditions from parsed YAML, and all problems."""
    if not isinstance(data, dict):
        return Conditions(), ["conditions: must be a mapping"]
    problems = unknown_keys(data, Conditions, "conditions.")
    lists = {item.name: string_list(data, item.name, problems, prefix="conditions.") for item in fields(Conditions)}
    problems += [
        f"conditions.{key}: {value!r} is unknown; valid: {', '.join(valid)}"
        for key, valid in (("precision", PRECISIONS), ("ranks", RANKS))
        for value in lists[key]
        if value not in valid
    ]
    return Conditions(**lists), problems


def string_list(data: Mapping[str, Any], key: str, problems: list[str], *, prefix: str = "") -> tuple[str, ...]:
    """The strings at `key`; what is no list of strings is one more of `problems`."""
    value = data.get(key, [])
    if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        problems.append(f"{prefix}{key}: must be a list of strings")
        return ()
    return tuple(value)


def _scalars(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    kinds: dict[str, tuple[type, ...]] = {
        "schema_version": (int,),
        "name": (str,),
        "expected_factor": (int, float),
        "expected_factor_note": (str,),
        "weight_bits": (int,),
        "native": (bool,),
        "status": (str,),
    }
    values = {key: data[key] for key in kinds if key in data}
    for key, value in values.items():
        if not isinstance(value, kinds[key]) or (isinstance(value, bool) and kinds[key] != (bool,)):
            problems.append(f"{key}: must be {' or '.join(kind.__name__ for kind in kinds[key])}, got {value!r}")
    return values


def _semantic_problems(card: Card, name: str) -> list[str]:
    problems: list[str] = []
    if card.schema_version != 1:
        problems.append(f"schema_version: {card.schema_version} is unknown; valid: 1")
    if card.status not in STATUSES:
        problems.append(f"status: '{card.status}' is unknown; valid: {', '.join(STATUSES)}")
    if card.name != name:
        problems.append(f"name: '{card.name}' differs from the skill's name '{name}'")
    problems += [
        f"seams: '{seam}' is not a seam; valid: {', '.join(SEAMS)}" for seam in card.seams if seam not in SEAMS
    ]
    problems += [
        f"relieves: '{span}' is not a span; valid: {', '.join(SPANS)}" for span in card.relieves if span not in SPANS
    ]
    problems += [
        f"seams: '{seam}' is claimed but no file goes to runtime/{seam}.py"
        for seam in card.seams
        if seam in SEAMS and f"runtime/{seam}.py" not in card.files.values()
    ]
    for source, target in card.files.items():
        problems += _file_problems(card, source, target)
    if len(set(card.files.values())) < len(card.files):
        problems.append("files: two files go to one path")
    if card.expected_factor <= 0:
        problems.append(f"expected_factor: must be above 0, got {card.expected_factor}")
    return problems


def _file_problems(card: Card, source: str, target: str) -> list[str]:
    problems = []
    if not source.startswith("assets/") or ".." in source.split("/"):
        problems.append(f"files: '{source}' must lie under assets/")
    if not target.startswith(("runtime/", "tests/")) or ".." in target.split("/"):
        problems.append(f"files: '{target}' must lie under runtime/ or tests/")
    seam = target.removeprefix("runtime/").removesuffix(".py")
    if seam in SEAMS and target == f"runtime/{seam}.py" and seam not in card.seams:
        problems.append(f"files: '{target}' replaces seam '{seam}', which 'seams' does not list")
    if target.endswith((".cpp", ".h")) and not card.native:
        problems.append(f"files: '{target}' is native code, but 'native' is false")
    return problems
