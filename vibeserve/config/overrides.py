"""Overrides of the command line, checked against the schema before Hydra sees them: its messages name no options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vibeserve.config.explain import one_line
from vibeserve.config.faults import COMMAND_LINE, Fault
from vibeserve.config.interpolation import interpolation_fault, key_fault
from vibeserve.config.open_keys import ENTRIES, MAPPINGS, mapping_of
from vibeserve.config.schema import COMPOSABLE, FILLED_BY_LOADER, body_schema, schema_at
from vibeserve.config.wording import schema_faults, where
from vibeserve.config.words import unknown
from vibeserve.errors import SpecError
from vibeserve.spec import ROLES

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

HINT = "vibeserve plan NAME shows a target; vibeserve schema spec lists every key"
MAX_CHARACTERS = 4096
"""of one override"""
MAX_SHOWN = 80
ROLE_KEYS = tuple(f"agents.{role}" for role in ROLES)


@dataclass(kw_only=True)
class Overrides:
    """`groups` holds the chosen option (or options) by group, `values` the other assignments in their order, `removed`
    the keys of entries to leave out."""

    groups: dict[str, Any] = field(default_factory=dict)
    values: list[tuple[str, Any]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def split_target(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """The name given by `+target=NAME` (None when there is none) and the other overrides."""
    names = []
    others = []
    for override in map(_role_backend, overrides):
        key, separator, value = override.partition("=")
        if key.lstrip("+~") != "target":
            others.append(override)
        elif key == "target":
            problem = f"'{override}' lacks its plus: a target is added to the configuration"
            raise SpecError(problem, hint=f"vibeserve +{override}")
        elif separator and value.strip("'\"") and not key.startswith("~"):
            names.append(value.strip("'\""))
        else:
            raise SpecError(f"'{override}' names no target", hint="vibeserve +target=NAME (`vibeserve list`)")
    if len(names) > 1 or any("," in name or "(" in name for name in names):
        given = " and ".join(names)
        raise SpecError(f"one run builds one target, given: {given}", hint="a sweep: vibeserve -m +target=A,B")
    return (names[0] if names else None), others


def read_overrides(overrides: Sequence[str], *, options: dict[str, list[str]]) -> Overrides:
    """Every override parsed and checked; `options` are the valid ones by group. Faults are collected."""
    read = Overrides()
    for text in overrides:
        parsed, fault = _parse(text)
        problems = [fault] if fault else list(_problems(parsed, read, options)) if parsed else []
        told = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
        read.faults += [Fault(place=COMMAND_LINE, text=f"{told}: {problem}") for problem in problems]
        if parsed is None or problems:
            continue
        key, value = parsed.key_or_group, _plain(parsed)
        if parsed.is_delete():
            read.removed.append(key)
        elif key in options and not isinstance(value, dict):
            read.groups[key] = [str(item) for item in value] if isinstance(value, list) else str(value)
        else:
            read.values.append((key, value))
    return read


def _role_backend(text: str) -> str:
    """`agents.judge=claude` chooses the back end of a role."""
    key, separator, value = text.partition("=")
    is_name = separator and value.isidentifier() and value != "null"
    return f"{key}.backend={value}" if is_name and key in ROLE_KEYS else text


def entry_faults(read: Overrides, entries: dict[str, list[str]]) -> Iterator[Fault]:
    """Assignments and removals that name an entry which the files do not state; `entries` has those, by mapping."""
    replaced = [key for key, value in read.values if isinstance(value, list)]
    for key, value in read.values:
        mapping = mapping_of(key, ENTRIES)
        if mapping and mapping not in replaced:
            names = [key] if key != mapping else [f"{key}.{name}" for name in value] if isinstance(value, dict) else []
            for name in names:
                yield from _entry_fault(name, mapping, entries[mapping], told="; a new one is declared in a file")
    for key in read.removed:
        mapping = mapping_of(key)
        yield from _entry_fault(key, mapping, entries[mapping], told="")


def _entry_fault(key: str, mapping: str, known: list[str], *, told: str) -> Iterator[Fault]:
    rest = key.removeprefix(f"{mapping}.")
    # a name may have dots in it (r0.5)
    if not any(rest == name or rest.startswith(f"{name}.") for name in known):
        what = f"{mapping} has no entry '{rest.partition('.')[0]}', there are: {', '.join(known) or '(none)'}{told}"
        yield Fault(place=COMMAND_LINE, text=f"{key}: {what}")


def _parse(text: str) -> tuple[Override | None, str]:
    """The parsed override, or what is wrong with its syntax."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if len(text) > MAX_CHARACTERS:
        return None, f"{len(text)} characters; at most {MAX_CHARACTERS} are read"
    if "=" not in text and not text.startswith("~"):
        return None, "has no value; an override is KEY=VALUE or GROUP=OPTION"
    fault = syntax_fault(text)
    if fault:
        return None, fault
    try:
        return OverridesParser.create().parse_overrides([text])[0], ""
    except HydraException as error:
        return None, one_line(error).removeprefix(f"Error parsing override '{text}' ")


def syntax_fault(text: str) -> str:
    """Where and how `text` is no override; empty when it is one."""
    column = _fault_column(text)
    if column is None:
        return ""
    at = repr(text[column]) if column < len(text) else "the end"
    return f"the syntax is not right at column {column + 1} ({at}); quote a value: KEY='VALUE'"


def _fault_column(text: str) -> int | None:
    """Where Hydra's grammar ends to understand `text`, counted from 0; None when it understands all of it.

    Hydra's own message has no position.
    """
    from antlr4 import CommonTokenStream, InputStream
    from antlr4.error.ErrorListener import ErrorListener
    from hydra.grammar.gen.OverrideLexer import OverrideLexer
    from hydra.grammar.gen.OverrideParser import OverrideParser

    columns: list[int] = []

    class Listener(ErrorListener):  # type: ignore[misc]
        def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, message: str, error: Any) -> None:
            columns.append(column)

    lexer = OverrideLexer(InputStream(text))
    parser = OverrideParser(CommonTokenStream(lexer))
    for part in (lexer, parser):
        part.removeErrorListeners()
        part.addErrorListener(Listener())
    parser.override()  # type: ignore[no-untyped-call]
    return min(columns, default=None)


def _plain(override: Override) -> Any:
    """The value as plain data: Hydra keeps quoted strings as objects of its own."""
    return _unquoted(override.value())


def _unquoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(_unquoted(key)): _unquoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unquoted(item) for item in value]
    return value


def _problems(override: Override, read: Overrides, options: dict[str, list[str]]) -> Iterator[str]:
    key = override.key_or_group
    if override.is_sweep_override():
        yield "several values need a sweep: vibeserve -m ..."
    elif override.package is not None:
        yield "packages (@) are not used here; an option fills its own group"
    elif key.split(".")[0] == "hydra" or key.startswith("hydra/"):
        yield "what concerns Hydra is for sweeps: vibeserve -m ..."
    elif override.is_delete():
        yield from _delete_problems(key, options)
    elif key in options and not isinstance(override.value(), dict):
        yield from _group_problems(key, _plain(override), read, options[key], is_added=override.is_add())
    elif "/" in key:
        yield unknown("group", key, options)
    else:
        yield from _value_problems(override, key)


def _delete_problems(key: str, options: dict[str, list[str]]) -> Iterator[str]:
    above, _, name = key.rpartition(".")
    if above in MAPPINGS and name:
        return
    if key in options:
        yield f"a group is not removed but replaced; valid: {', '.join(options[key])}"
    else:
        yield key_fault(key) or f"every key has a value; state another one: {key}=VALUE"


def _group_problems(group: str, value: Any, read: Overrides, valid: list[str], *, is_added: bool) -> Iterator[str]:
    if group in read.groups:
        yield f"{group} is chosen twice"
    if is_added:
        yield f"{group} has an option already; write {group}=OPTION"
    elif value is None:
        yield f"names no option; valid: {', '.join(valid)}"
    elif isinstance(value, list) and group not in COMPOSABLE:
        yield f"{group} takes one option, not a list"
    else:
        for name in value if isinstance(value, list) else [value]:
            if str(name) not in valid:
                yield unknown(group, str(name), valid)


def _value_problems(override: Override, key: str) -> Iterator[str]:
    fault = key_fault(key)
    if fault:
        yield fault
        return
    first, _, name = key.partition(".")
    if first == "target" and name in FILLED_BY_LOADER:
        yield f"{key} is filled from the target's file; name another target with +target=NAME"
        return
    if override.is_add() and not override.is_force_add() and not mapping_of(key):
        yield f"{key} has a value already; write {key}=VALUE"
        return
    value, raw = _plain(override), str(override.input_line).partition("=")[2]
    texts = [text for text in _texts(value) if interpolation_fault(text)]
    if texts:
        yield from (interpolation_fault(text) for text in texts)
        return
    schema = schema_at(body_schema(), key)
    if schema.get("type") == "string" and isinstance(value, bool | int | float) and str(value) == raw:
        return  # `model.revision=1234`: the text is what was typed
    for path, what in schema_faults(value, schema, name=key.rpartition(".")[2]):
        yield f"{where((key, *path))}: {what}" if path else what


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
