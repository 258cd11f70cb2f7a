"""Pins are checked against what is declared before anything is spent, and they make another plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import probe
from vibeserve.plan.pins import refuse_wrong_pins
from vibeserve.plan.unmeasured import compile_unmeasured

CWD = data_dir("targets").parent


def refused(*pins: str) -> tuple[str, ...]:
    spec = compose_spec(["+target=tiny_cpu", *(f"search.pins.{pin}" for pin in pins)], cwd=CWD)
    with pytest.raises(SpecError, match="target 'tiny_cpu' pins parameters that cannot be pinned so") as caught:
        refuse_wrong_pins(spec, facts=probe())
    return caught.value.problems


def test_pins_within_some_declarations_bounds_pass() -> None:
    for pin in ("prefill_chunk_tokens=64", "max_num_seqs=16", "packed_dtype=bfloat16"):
        refuse_wrong_pins(compose_spec(["+target=tiny_cpu", f"search.pins.{pin}"], cwd=CWD), facts=probe())


@pytest.mark.parametrize(
    ("pin", "problem"),
    [
        (
            "prefil_chunk_tokens=64",
            "search.pins.prefil_chunk_tokens: no scaffold and no component has this parameter; did you mean "
            "'prefill_chunk_tokens'? valid: ",
        ),
        (
            "max_num_seqs=999",
            "search.pins.max_num_seqs: scaffold: must be from 1 to 1, got 999; continuous-batching: must be from 1 to "
            "256, got 999",
        ),
        (
            "packed_dtype=int4",
            "search.pins.packed_dtype: packed-linears: must be one of 'float32', 'bfloat16', got 'int4'",
        ),
        ("max_waiting=soon", "search.pins.max_waiting: scaffold: must be of type int, got 'soon'"),
    ],
)  # fmt: skip
def test_a_wrong_pin_is_refused_with_what_is_allowed(pin: str, problem: str) -> None:
    (found,) = refused(pin)
    assert found.startswith(problem)


def test_all_wrong_pins_are_told_at_once() -> None:
    assert len(refused("max_num_seqs=999", "nothing=1")) == 2


def test_a_pin_of_a_component_that_does_not_apply_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from loop_fakes import LIMIT, Library

    library = Library(tmp_path)
    library.add("for-cuda", parameters={"tile": LIMIT}, conditions={"hardware": ["cuda"]})
    monkeypatch.setattr(
        "vibeserve.skills.library.data_dir", lambda name: library.skills_root if name == "skills" else data_dir(name)
    )
    (found,) = refused("tile=8")
    assert found.startswith(
        "search.pins.tile: what declares it does not apply here (for-cuda: hardware 'cpu' is not one of cuda); valid: "
    )


def test_a_pin_makes_another_plan() -> None:
    ids = {
        compile_unmeasured(compose_spec(["+target=tiny_cpu", "sandbox=none", *pins], cwd=CWD), facts=probe()).plan_id
        for pins in ([], ["search.pins.max_waiting=64"], ["search.pins.max_waiting=65"], ["search=random"])
    }
    assert len(ids) == 4


def test_the_id_does_not_depend_on_the_bandwidth() -> None:
    from dataclasses import replace

    from vibeserve.plan import compile_plan

    spec = compose_spec(["+target=tiny_cpu", "sandbox=none"], cwd=CWD)
    facts = probe()
    real = compile_plan(spec, facts=replace(facts, bandwidth_gb_s=10.0))
    assert compile_unmeasured(spec, facts=facts).plan_id == real.plan_id
