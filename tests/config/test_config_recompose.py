"""Another spec from one that was composed before."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.config.recompose import recompose
from vibeserve.core.documents import to_data
from vibeserve.errors import SpecError
from vibeserve.spec import Level, Spec

ROOT = Path(__file__).resolve().parents[2]


@cache
def _tiny() -> Spec:
    return compose_spec(["+target=tiny_cpu"], cwd=ROOT)


def again(*overrides: str) -> Spec:
    return recompose(_tiny(), overrides, cwd=ROOT)


def refused(*overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        again(*overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_without_overrides_it_is_the_same() -> None:
    assert to_data(again()) == to_data(_tiny())


def test_values_groups_and_entries_change_and_nothing_else() -> None:
    pins, size = "search.pins.max_num_seqs=4", "model.source.config.vocab_size=9"
    spec = again("model.source.seed=3", "budget=small", pins, size)
    assert spec.model.source.seed == 3 and spec.model.source.config["vocab_size"] == 9
    assert spec.budget.level is Level.standard and spec.search.pins == {"max_num_seqs": 4}
    assert spec.workload == _tiny().workload and spec.goals == _tiny().goals


def test_an_option_replaces_the_whole_group() -> None:
    spec = again("baseline=[transformers,scaffold]")
    assert set(spec.baseline) == {"transformers", "scaffold"}


def test_an_entry_is_removed() -> None:
    more = recompose(_tiny(), ["search.pins.max_num_seqs=4"], cwd=ROOT)
    assert recompose(more, ["~search.pins.max_num_seqs"], cwd=ROOT).search.pins == {}


@pytest.mark.parametrize(
    ("override", "text"),
    [
        ("+target=smollm2_cpu", "+target=smollm2_cpu: the artifact says which target it is of"),
        ("budget=hug", "budget=hug: "),
        ("model.revison=x", "model.revison=x: "),
        ("budget.rounds=many", "budget.rounds=many: "),
        ("nothing", "an override is KEY=VALUE or GROUP=OPTION"),
        ("~search.pins.none", "~search.pins.none: there is no such entry"),
        ("search.patience=0", "search.patience: 0 is below 1"),
        ("seed.kind=git", "seed.url: needed when seed.kind is git"),
    ],
)
def test_what_does_not_compose_is_refused(override: str, text: str) -> None:
    assert text in refused(override)
