"""How a model is spread over devices, what is refused, and what would fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import CPU, H100, L4, LLAMA_8B, LLAMA_70B, OLMO, SMOLLM2, chat, closed, shared, spec_of

from vibeserve.errors import SpecError
from vibeserve.plan.parallelism import choose_layout
from vibeserve.spec import Hardware, Model, Parallelism, Spec

AUTO = Parallelism()


def layout_of(spec: Spec, *, capacity_gib: float | None = 79.6) -> tuple[int, int, int]:
    layout, _ = choose_layout(spec, capacity_gib=capacity_gib)
    return layout.tensor, layout.pipeline, layout.replicas


def refused(spec: Spec, *, capacity_gib: float | None = 79.6) -> str:
    with pytest.raises(SpecError) as caught:
        choose_layout(spec, capacity_gib=capacity_gib)
    return str(caught.value)


def h100(count: int) -> Hardware:
    return replace(H100, count=count)


def test_auto_is_the_smallest_tensor_parallelism_that_fits_then_replicas() -> None:
    assert layout_of(spec_of(LLAMA_8B, h100(1), parallelism=AUTO)) == (1, 1, 1)
    assert layout_of(spec_of(LLAMA_8B, h100(4), parallelism=AUTO)) == (1, 1, 4)
    assert layout_of(spec_of(LLAMA_70B, h100(2), parallelism=AUTO)) == (2, 1, 1)
    assert layout_of(spec_of(LLAMA_70B, h100(8), parallelism=AUTO)) == (2, 1, 4)


def test_auto_takes_powers_of_two_and_may_leave_devices_idle() -> None:
    assert layout_of(spec_of(LLAMA_70B, h100(3), parallelism=AUTO)) == (2, 1, 1)


def test_auto_never_splits_a_head() -> None:
    # nine heads: no power of two above one divides them
    model = replace(SMOLLM2, num_parameters=70_553_706_496)
    text = refused(spec_of(model, h100(2), parallelism=AUTO))
    assert "one rank needs" in text
    # 30 value heads of the recurrent layers: four ranks do not divide them, two do
    assert layout_of(spec_of(OLMO, h100(4), shared(), parallelism=AUTO), capacity_gib=12) == (2, 1, 2)


def test_explicit_values_are_taken_and_auto_fills_the_rest() -> None:
    explicit = Parallelism(tensor=2, pipeline=2, replicas=1)
    assert layout_of(spec_of(LLAMA_70B, h100(4), parallelism=explicit)) == (2, 2, 1)
    assert layout_of(spec_of(LLAMA_8B, h100(4), parallelism=Parallelism(tensor=2))) == (2, 1, 2)
    assert layout_of(spec_of(LLAMA_8B, h100(4), parallelism=Parallelism(replicas=2))) == (2, 1, 2)
    assert layout_of(spec_of(LLAMA_8B, h100(4), parallelism=Parallelism(pipeline=4))) == (1, 4, 1)
    assert layout_of(spec_of(LLAMA_8B, h100(4), parallelism=Parallelism(tensor=2, replicas=1))) == (2, 2, 1)


def test_a_product_that_is_not_the_count_is_refused_with_the_valid_layouts() -> None:
    text = refused(spec_of(LLAMA_8B, h100(2), parallelism=Parallelism(tensor=2, pipeline=2, replicas=1)))
    assert text.splitlines() == [
        "parallelism: tensor 2, pipeline 2, replicas 1 is no layout of 2 x h100 (sm 90): the product must be 2",
        "  valid: tensor 1, pipeline 1, replicas 2; tensor 1, pipeline 2, replicas 1; tensor 2, pipeline 1, replicas 1",
        "next: correct parallelism.*, or leave it at 0 (auto)",
    ]


@pytest.mark.parametrize(
    ("model", "parallelism", "why"),
    [
        (SMOLLM2, Parallelism(tensor=2), "tensor 2 does not divide model.num_heads 9"),
        (
            replace(OLMO, num_heads=32, num_kv_heads=32),
            Parallelism(tensor=4),
            "tensor 4 does not divide model.linear_state.num_value_heads 30",
        ),
        (
            replace(LLAMA_8B, intermediate_size=14338),
            Parallelism(tensor=4),
            "tensor 4 does not divide model.intermediate_size 14338",
        ),
        (
            replace(LLAMA_8B, num_heads=24, num_kv_heads=6, intermediate_size=0),
            Parallelism(tensor=4),
            "tensor 4 and model.num_kv_heads 6: neither divides the other",
        ),
        (
            replace(LLAMA_8B, num_layers=3),
            Parallelism(pipeline=4),
            "pipeline 4 is above model.num_layers 3",
        ),
    ],
)
def test_a_split_that_the_model_does_not_allow_is_refused(model: Model, parallelism: Parallelism, why: str) -> None:
    text = refused(spec_of(model, h100(4), parallelism=parallelism), capacity_gib=None)
    assert f"\n  {why}\n  valid: tensor 1" in text


def test_long_lists_of_layouts_are_cut() -> None:
    text = refused(spec_of(LLAMA_8B, h100(64), parallelism=Parallelism(tensor=64)))
    assert "; and " in text and " more" in text


def test_the_sockets_of_a_cpu_are_one_device_that_only_tensor_ranks_share() -> None:
    two = replace(CPU, count=2)
    assert layout_of(spec_of(SMOLLM2, two, parallelism=AUTO)) == (1, 1, 1)
    assert layout_of(spec_of(SMOLLM2, two, parallelism=Parallelism(tensor=3))) == (3, 1, 1)
    for layout in (Parallelism(replicas=2), Parallelism(pipeline=2), Parallelism(tensor=3, replicas=2)):
        text = refused(spec_of(SMOLLM2, two, parallelism=layout))
        assert "is no layout of one CPU: it is one device, which only tensor ranks may share" in text
        assert "valid: tensor 1, pipeline 1, replicas 1; tensor 3, pipeline 1, replicas 1\n" in text
    text = refused(spec_of(SMOLLM2, CPU, parallelism=Parallelism(tensor=2)))
    assert "tensor 2 does not divide model.num_heads 9" in text


def test_ranks_of_a_cpu_share_its_memory() -> None:
    layout, memory = choose_layout(spec_of(SMOLLM2, CPU, parallelism=Parallelism(tensor=3)), capacity_gib=24)
    _, whole = choose_layout(spec_of(SMOLLM2, CPU, parallelism=AUTO), capacity_gib=24)
    assert (layout.tensor, memory.capacity_gib) == (3, 8)
    assert memory.weights_gib == pytest.approx(whole.weights_gib / 3)
    text = refused(spec_of(SMOLLM2, CPU, parallelism=Parallelism(tensor=3)), capacity_gib=1.8)
    assert "one rank needs" in text and "its capacity is 0.6 GiB" in text


def test_what_does_not_fit_is_refused_with_every_number_and_what_would() -> None:
    text = refused(spec_of(LLAMA_70B, h100(1), parallelism=AUTO))
    assert text.splitlines() == [
        # 70,553,706,496 x 2 = 131.4 GiB; 8 x 640 x 327,680 = 1.6 GiB; 512 x 73,728 + 8 x 128,256 values of four bytes
        "the model does not fit: one rank needs 133.6 GiB, its capacity is 79.6 GiB",
        "  weights 131.4, KV cache 1.6 (shared prefixes 0.0), state 0.0, workspace 0.6 GiB",
        "  at tensor 1, pipeline 1, replicas 1, load c8: 8 requests in flight on one replica",
        "  would fit: hardware.count=2 with tensor 2, pipeline 1, replicas 1",
        "next: change one of these, or select another hardware",
    ]


def test_shorter_lengths_are_not_offered_where_the_weights_alone_are_too_large() -> None:
    text = refused(spec_of(LLAMA_70B, CPU, parallelism=AUTO), capacity_gib=23.5)
    assert "  would fit: nothing but a smaller model\n" in text


def test_fewer_requests_may_fit() -> None:
    text = refused(
        spec_of(OLMO, L4, shared(loads=closed(100), headline_load="c100"), parallelism=AUTO), capacity_gib=22.5
    )
    # 22.5 GiB less weights 13.841, prefix 3.75, its snapshot 0.051, process 0.5, activations 0.906 leaves 3.452 GiB;
    # a request takes 256 x 122,880 + 54,743,040 bytes and 401,408 of logits: 0.0807 GiB
    assert "would fit: 42 requests in flight at most; hardware.count=2 with tensor" in text


def test_a_smaller_dtype_may_fit() -> None:
    text = refused(spec_of(replace(LLAMA_8B, dtype="float32"), h100(1), parallelism=AUTO), capacity_gib=24)
    assert "model.dtype=bfloat16" in text


def test_nothing_may_fit() -> None:
    text = refused(spec_of(SMOLLM2, CPU, chat(loads=closed(1)), parallelism=AUTO), capacity_gib=0.5)
    assert "would fit: nothing but a smaller model or shorter lengths" in text
