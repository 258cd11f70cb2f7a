"""What a simulated search measures: true ratios over the seed, by assembly.

Two kinds. `smollm2_cpu` is a grid that was measured (`measure.py`). The synthetic ones are generated from the cards'
expected factors, each with an error that is drawn anew for every seed:

- `synthetic_additive`: every card does what it claims, up to its error; no card changes what another one brings.
- `synthetic_deceptive`: the same, and two cards, drawn for every seed, that lose alone and win together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.search.grid import Setting, key_of
from vibeserve.agents import Assembled
from vibeserve.errors import SpecError
from vibeserve.skills import declared_parameters, resolve
from vibeserve.skills.resolve import card_of, parameter_values

if TYPE_CHECKING:
    import numpy as np

    from benchmarks.search.table import Table

SEED_SPANS = {
    "queue": 0.55, "prefill": 0.12, "decode.linear": 0.18, "decode.attention": 0.06, "decode.other": 0.04,
    "sampling": 0.02, "tokenize": 0.01, "http": 0.02,
}  # fmt: skip
"""share of a request's wall time in a runtime that serves one request at a time under eight clients: assumed"""
CARD_ERROR = 0.3
"""standard deviation of the log of what a card brings around its claim; assumed"""
SETTING_ERROR = 0.06
"""standard deviation of the log of what another value of a parameter brings; assumed"""
LOSS_ALONE, GAIN_TOGETHER = 0.9, 1.6
"""of the deceptive pair: on everything, each alone; and both together"""


LOST = math.log(1e-3)
"""log-ratio of an assembly that could not be served when the grid was measured: no search may end with it"""


class Surface(Protocol):
    """One landscape as one search meets it."""

    def log_ratio(self, assembled: Assembled) -> float:
        """Headline over the seed's."""
        ...

    def spans(self, assembled: Assembled) -> dict[str, float]:
        """Shares of a request's wall time."""
        ...


class Landscape(Protocol):
    name: str

    def surface(self, draw: np.random.Generator) -> Surface: ...


@dataclass(kw_only=True)
class Synthetic:
    """Spans shrink by the factors of the cards that relieve them (Amdahl 1967); settings and the pair act on all."""

    name: str
    setting: Setting
    is_deceptive: bool = False

    def surface(self, draw: np.random.Generator) -> Surface:
        factors = {
            card.name: card.expected_factor * math.exp(float(draw.normal(0.0, CARD_ERROR)))
            for card in self.setting.cards
        }
        pair: tuple[str, ...] = ()
        if self.is_deceptive:
            pairs = self.setting.independent_pairs()
            pair = pairs[int(draw.integers(len(pairs)))]
        settings = {
            (name, str(value)): float(draw.normal(0.0, SETTING_ERROR))
            for card in self.setting.cards
            for name, parameter in sorted(card.parameters.items())
            for value in parameter.tune
            if value != parameter.default
        }
        return _SyntheticSurface(setting=self.setting, factors=factors, settings=settings, pair=pair)


@dataclass(kw_only=True)
class _SyntheticSurface:
    setting: Setting
    factors: Mapping[str, float]
    settings: Mapping[tuple[str, str], float]
    pair: tuple[str, ...]

    def log_ratio(self, assembled: Assembled) -> float:
        total = sum(self._times(assembled).values())
        found = -math.log(total) + sum(self._setting_effects(assembled))
        having = [name for name in self.pair if name in assembled.components]
        if len(having) == 1:
            found += math.log(LOSS_ALONE)
        elif len(having) == 2:
            found += math.log(GAIN_TOGETHER)
        return found

    def spans(self, assembled: Assembled) -> dict[str, float]:
        times = self._times(assembled)
        total = sum(times.values())
        return {name: value / total for name, value in times.items()}

    def _times(self, assembled: Assembled) -> dict[str, float]:
        """Seconds by span, of one second of the seed."""
        times = dict(SEED_SPANS)
        for card in map(card_of, resolve(assembled.components, self.setting.skills)):
            # a pair does nothing but what it does as a pair
            factor = 1.0 if card.name in self.pair else self.factors[card.name]
            for span in card.relieves:
                times[span] /= max(factor, 0.05)
        return times

    def _setting_effects(self, assembled: Assembled) -> list[float]:
        return [
            self.settings[name, str(value)]
            for name, value in assembled.parameters.items()
            if (name, str(value)) in self.settings
        ]


@dataclass(kw_only=True)
class Measured:
    """A table as it was measured. A setting that changes several parameters at once is taken as the sum of its single
    changes where it was not measured itself."""

    name: str
    setting: Setting
    table: Table
    _known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {
            key_of(each.components, each.parameters, self.setting): LOST if each.error else each.log_ratio
            for each in self.table.points
        }

    def surface(self, draw: np.random.Generator) -> Surface:
        return _MeasuredSurface(setting=self.setting, known=self._known, table=self.table)


@dataclass(kw_only=True)
class _MeasuredSurface:
    setting: Setting
    known: Mapping[str, float]
    table: Table

    def log_ratio(self, assembled: Assembled) -> float:
        return self._over_control(assembled) - self._over_control(Assembled())

    def spans(self, assembled: Assembled) -> dict[str, float]:
        """As measured at the assembly's default settings."""
        key = key_of(assembled.components, {}, self.setting)
        measured = self.table.by_key(self.setting)
        return dict(measured[key].spans) if key in measured else {}

    def _over_control(self, assembled: Assembled) -> float:
        components = assembled.components
        whole = key_of(components, assembled.parameters, self.setting)
        if whole in self.known:
            return self.known[whole]
        declared = declared_parameters(self.setting.scaffold, resolve(components, self.setting.skills))
        values = parameter_values(declared, assembled.parameters)
        base = self._of(components, {})
        changed = [(name, value) for name, value in values.items() if value != declared[name].default]
        return base + sum(self._of(components, {name: value}) - base for name, value in changed)

    def _of(self, components: Sequence[str], parameters: Mapping[str, float | int | str | bool]) -> float:
        key = key_of(components, parameters, self.setting)
        if key not in self.known:
            raise SpecError(f"the table holds no point {json.dumps([list(components), dict(parameters)])}")
        return self.known[key]


def shipped_table(target: str, folder: Path) -> Path:
    """Where a measured table lies."""
    return folder / f"{target}.json"
