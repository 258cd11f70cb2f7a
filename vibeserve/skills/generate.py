"""Text of the files that the assembler writes itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vibeserve.skills.card import Parameter, Value
from vibeserve.skills.loader import Skill
from vibeserve.skills.resolve import card_of

PARAMETERS_HEAD = '''\
"""Parameters of this assembly. Written by the assembler; the values are this runtime's only source of defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters:
    """One value per declared parameter of the scaffold and its components."""

'''


def parameters_module(declared: Mapping[str, Parameter], values: Mapping[str, Value]) -> str:
    """Source of `runtime/parameters.py`."""
    lines = []
    for name, parameter in declared.items():
        value = float(values[name]) if parameter.type == "float" else values[name]
        lines.append(f"    {name}: {parameter.type} = {literal(value)}\n")
        if parameter.doc:
            lines.append(f'    """{parameter.doc}"""\n')
    return PARAMETERS_HEAD + "".join(lines)


def literal(value: Value) -> str:
    """Python literal with double quotes around strings."""
    import json

    return json.dumps(value) if isinstance(value, str) else repr(value)


def readme(
    text: str, components: Sequence[Skill], declared: Mapping[str, Parameter], values: Mapping[str, Value]
) -> str:
    """The scaffold's README with the sections on this assembly."""
    lines = [text.rstrip("\n"), "", "## Components", ""]
    if components:
        lines += ["| component | seams | what it is |", "|---|---|---|"]
        for skill in components:
            description = " ".join(skill.description.split()).replace("|", "\\|")
            lines.append(f"| {skill.name} | {', '.join(card_of(skill).seams) or '-'} | {description} |")
    else:
        lines.append("None: this is the scaffold as it ships.")
    lines += ["", "## Parameters", "", "| parameter | value | meaning |", "|---|---|---|"]
    lines += [f"| {name} | {literal(values[name])} | {parameter.doc} |" for name, parameter in declared.items()]
    return "\n".join(lines) + "\n"
