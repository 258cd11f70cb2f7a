"""What is planned for is also run as it is planned, or refused before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import CPU, H100, LLAMA_8B, LLAMA_70B, OLMO, SMOLLM2, spec_of

from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import probe
from vibeserve.plan import refuse_obstacles
from vibeserve.plan.layouts import layout_obstacles
from vibeserve.plan.pins import refuse_wrong_pins
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.spec import Hardware, Model, Parallelism, Sandbox, Seed, Spec, Tier

THREE = Parallelism(tensor=3, pipeline=1, replicas=1)


def spread(
    model: Model = SMOLLM2, hardware: Hardware = CPU, layout: Parallelism = THREE, *, tier: Tier = Tier.A,
    seed: str = "",
) -> Spec:  # fmt: skip
    spec = replace(spec_of(model, hardware, parallelism=layout), sandbox=Sandbox(tier=tier))
    return replace(spec, seed=Seed(kind=seed)) if seed else spec


def test_tensor_ranks_of_a_llama_on_a_cpu_are_served() -> None:
    assert list(layout_obstacles(spread())) == []
    assert list(layout_obstacles(spread(layout=Parallelism(tensor=1, pipeline=1, replicas=1), tier=Tier.B))) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (spread(LLAMA_70B, replace(H100, count=3)), "does not apply (hardware 'cuda' is not one of cpu)"),
        (spread(OLMO), "component tensor-parallel does not apply (architecture 'olmo_hybrid' is not one of llama)"),
        (spread(tier=Tier.B), "parallelism.tensor 3: ranks connect to each other on a loopback of their own, which is "
         "there in sandbox tier A only, not in B"),
        (spread(layout=Parallelism(tensor=1, pipeline=2, replicas=1)), "parallelism.pipeline 2: no runtime of this"),
        (spread(LLAMA_8B, layout=Parallelism(tensor=1, pipeline=1, replicas=2)), "parallelism.replicas 2: no router"),
    ],
)  # fmt: skip
def test_what_no_runtime_of_this_version_does_is_an_obstacle(spec: Spec, text: str) -> None:
    (found,) = layout_obstacles(spec)
    assert text in found
    assert "valid: 1" in found or "tier A only" in found


def test_a_runtime_of_ones_own_may_have_ranks_on_any_device() -> None:
    assert list(layout_obstacles(spread(LLAMA_70B, replace(H100, count=3), seed="path"))) == []


def test_a_target_with_ranks_is_planned_and_says_what_that_means() -> None:
    spec = compose_spec(["+target=tiny_cpu", "parallelism.tensor=2", "sandbox.tier=A"], cwd=data_dir("targets").parent)
    plan = compile_unmeasured(spec, facts=probe())
    (note,) = [note for note in plan.notes if "on one CPU" in note]
    assert note.startswith("tensor 2 on one CPU: 2 processes of ")
    assert "share its cores, memory and bandwidth" in note
    assert not [note for note in plan.notes if "interconnect" in note or "idle" in note]
    refuse_obstacles(plan)


def test_a_wall_without_a_loopback_is_refused_before_anything_starts() -> None:
    spec = compose_spec(["+target=tiny_cpu", "parallelism.tensor=2", "sandbox.tier=B"], cwd=data_dir("targets").parent)
    with pytest.raises(SpecError, match=r"does not run in this version\n  parallelism\.tensor 2: ranks connect"):
        refuse_obstacles(compile_unmeasured(spec, facts=probe()))


def test_the_number_of_ranks_is_the_layouts_and_no_pin() -> None:
    more = ["parallelism.tensor=2", "search.pins.tensor_parallel_size=4"]
    spec = compose_spec(["+target=tiny_cpu", *more], cwd=data_dir("targets").parent)
    with pytest.raises(SpecError) as caught:
        refuse_wrong_pins(spec, facts=probe())
    assert caught.value.problems == (
        "search.pins.tensor_parallel_size: is parallelism.tensor of the target; declare that",
    )
