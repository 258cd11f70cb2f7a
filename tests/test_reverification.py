"""An artifact does not choose the rules by which it is judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vibeserve.config import compose_spec
from vibeserve.core.manifest import Manifest
from vibeserve.errors import RefusedError
from vibeserve.reverification import loosened, refuse_own_rules
from vibeserve.spec import Spec, Tolerances


@pytest.fixture(scope="module")
def spec() -> Spec:
    return compose_spec(["+target=tiny_cpu"])


def manifest(**changes: str) -> Manifest:
    facts = {"target": "tiny_cpu", "plan_id": "0" * 16, "status": "certified", "level": "quick", "created_at": ""}
    return Manifest(**{**facts, **changes}, sandbox_tier="A", hardware={})  # type: ignore[arg-type]


def test_the_frameworks_own_tolerances_pass_and_stricter_ones_too(spec: Spec) -> None:
    refuse_own_rules(spec, manifest=manifest(), plan_id="")
    refuse_own_rules(spec, manifest=manifest(), plan_id="0" * 16)
    assert loosened(replace(Tolerances(), top1_agreement_min=0.99, logprob_share=4)) == []


@pytest.mark.parametrize(
    "milder",
    [{"top1_agreement_min": 0.0}, {"mean_margin_max_nats": 9.0}, {"logprob_share": 0}, {"logprob_share": 1000},
     {"disagreement_margin_max_nats": float("nan")}],
)  # fmt: skip
def test_milder_tolerances_are_refused_by_name(spec: Spec, milder: dict[str, float]) -> None:
    forged = replace(spec, evaluation=replace(spec.evaluation, tolerances=replace(Tolerances(), **milder)))
    with pytest.raises(RefusedError, match=f"evaluation[.]tolerances: {next(iter(milder))} is") as info:
        refuse_own_rules(forged, manifest=manifest(), plan_id="")
    assert {reason.reason_class for reason in info.value.reasons} == {"own_rules"}  # type: ignore[attr-defined]


def test_a_spec_of_another_target_or_plan_is_refused(spec: Spec) -> None:
    with pytest.raises(RefusedError, match=r"spec\.yaml is of target 'tiny_cpu', manifest\.json of 'smollm2_cpu'"):
        refuse_own_rules(spec, manifest=manifest(target="smollm2_cpu"), plan_id="")
    with pytest.raises(RefusedError, match=r"compiles to plan 1{16}, manifest\.json claims 0{16}"):
        refuse_own_rules(spec, manifest=manifest(), plan_id="1" * 16)
