"""What a person has ruled out for the rest of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vibeserve.skills.card import Parameter, Value


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """Both hold for what is proposed from now on. A banned component that the incumbent has already may stay in it."""

    banned: tuple[str, ...] = ()
    """components"""
    allowed: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """parameter -> the only values that it may have"""

    def __bool__(self) -> bool:
        return bool(self.banned or self.allowed)

    def bans(self, components: Sequence[str], *, incumbent: Sequence[str]) -> list[str]:
        """Those that a proposal would bring in."""
        return [name for name in components if name in self.banned and name not in incumbent]

    def permits(self, name: str, value: Value) -> bool:
        return name not in self.allowed or value in self.allowed[name]

    def possible(self, name: str, parameter: Parameter) -> tuple[Value, ...]:
        """The allowed values that a declaration gives leave to; a parameter without a constraint is none of ours."""
        return tuple(value for value in self.allowed[name] if parameter.problem(value) is None)

    def settled(self, declared: Mapping[str, Parameter], values: Mapping[str, Value]) -> dict[str, Value]:
        """`values`, those that are not allowed replaced by the first that is and that the declaration permits."""
        changed = {
            name: possible[0]
            for name, value in values.items()
            if name in declared and not self.permits(name, value) and (possible := self.possible(name, declared[name]))
        }
        return {**values, **changed}

    def broken_by(
        self, declared: Mapping[str, Parameter], parameters: Mapping[str, Value]
    ) -> Iterator[tuple[str, Value]]:
        """(parameter, value) that are not allowed, defaults included. Where a declaration is narrower than all that is
        allowed, its own bounds win, as with pins."""
        for name, parameter in declared.items():
            value = parameters.get(name, parameter.default)
            if not self.permits(name, value) and self.possible(name, parameter):
                yield name, value

    def lines(self) -> list[str]:
        """One each, for a prompt or a list."""
        bans = [f"component {name} is banned" for name in self.banned]
        return [*bans, *(f"{name} may only be {', '.join(map(str, values))}" for name, values in self.allowed.items())]
