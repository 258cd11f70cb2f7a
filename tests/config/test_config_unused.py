"""Declared values that would be ignored or bound nothing are refused."""

from __future__ import annotations

import copy
from functools import cache

import pytest

from vibeserve.config import compose_spec
from vibeserve.config.unused import unused_values
from vibeserve.errors import SpecError
from vibeserve.spec import DEFAULT_MODELS, DeclaredValue, Spec, resolve_role


@cache
def composed() -> Spec:
    return compose_spec(["+target=tiny_cpu"])


def told(figure: DeclaredValue) -> list[str]:
    spec = copy.deepcopy(composed())
    spec.baseline["scaffold"].declared = [figure]
    return list(unused_values(spec))


def test_a_back_end_without_a_model_takes_no_model_and_no_effort() -> None:
    with pytest.raises(SpecError) as caught:
        compose_spec(["+target=tiny_cpu", "agents.planner.effort=high", "agents.judge.model=some"])
    text = str(caught.value)
    assert "agents.planner.effort: the back end playbook asks no model and would ignore it" in text
    assert "agents.judge.model: the back end playbook asks no model and would ignore it" in text
    with pytest.raises(SpecError, match=r"agents\.base_url: the back end playbook asks no model and would ignore it"):
        compose_spec(["+target=tiny_cpu", "agents.base_url=http://127.0.0.1:1/v1"])


def test_a_role_may_have_a_back_end_of_its_own_and_the_model_that_goes_with_it() -> None:
    spec = compose_spec(["+target=tiny_cpu", "agents=codex", "agents.model=one", "agents.judge=claude"])
    assert resolve_role(spec.agents, "planner").origin == "agent:codex/one"
    judge = resolve_role(spec.agents, "judge")
    assert (judge.backend, judge.model) == ("claude", DEFAULT_MODELS["claude"])
    with pytest.raises(SpecError, match="random draws among cards; the planner codex proposes by itself: greedy"):
        compose_spec(["+target=tiny_cpu", "agents=codex", "search=random"])


def test_a_correct_figure_is_accepted() -> None:
    assert told(DeclaredValue(metric="output_throughput", load="c4", value=20.0, source="a note")) == []


@pytest.mark.parametrize(
    ("figure", "problem"),
    [
        (
            DeclaredValue(metric="ttft_p5", value=1.0, source="a"),
            "baseline.scaffold.declared[0].metric: 'ttft_p5' is not valid; did you mean 'ttft_p50'? valid: output_thr",
        ),
        (
            DeclaredValue(metric="ttft_p50", value=0.0, source="a"),
            "baseline.scaffold.declared[0].value: 0 is not above 0",
        ),
        (
            DeclaredValue(metric="ttft_p50", load="c9", value=1.0, source="a"),
            "baseline.scaffold.declared[0].load: 'c9' is no declared load; valid: c1, c4",
        ),
    ],
)
def test_a_figure_that_is_none_is_told(figure: DeclaredValue, problem: str) -> None:
    (line,) = told(figure)
    assert line.startswith(problem)


def test_a_figure_needs_its_source() -> None:
    with pytest.raises(SpecError, match="source"):
        compose_spec(["+target=tiny_cpu", "+baseline.scaffold.declared=[{metric: ttft_p50, value: 1}]"])
