"""The precision audit's own arithmetic: what is nudged, what is compared, and what slope refuses."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from vibeserve.core.nouns import Chunk, PromptRequest, Reply
from vibeserve.live_audits.precision import Slope, differences, judge_slope, slope_of
from vibeserve.weights.nudged import nudge, nudged


def codes(weight, *, size: int):  # type: ignore[no-untyped-def]
    groups = weight.view(weight.shape[0], -1, size)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    return (groups / scale).round(), scale


@pytest.mark.parametrize("size", [32, 64, 128, 256])
def test_nudged_weights_are_the_same_in_int8_and_others_in_bf16(size: int) -> None:
    import torch

    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16).float()
    moved = nudged(weight)
    before, scale = codes(weight, size=size)
    after, same_scale = codes(moved, size=size)
    assert torch.equal(before, after) and torch.equal(scale, same_scale)
    steps = ((moved - weight).view_as(before.view(64, -1, size)) / scale).pow(2).mean().sqrt()
    assert 0.25 < float(steps) < 0.45, "as much as int8 itself takes away"
    assert torch.equal(moved, moved.to(torch.bfloat16).float())


def test_a_copy_changes_the_layers_alike_in_every_format(tiny_model_dir: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    assert nudge(tiny_model_dir, destination=tmp_path / "copy") == 28
    for part in ("f32", "bf16"):
        before, after = (
            load_file(next((root / part).glob("*.safetensors"))) for root in (tiny_model_dir, tmp_path / "copy")
        )
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        assert len(changed) == 14 and not [name for name in changed if "embed" in name or "lm_head" in name]
    assert not (tmp_path / "copy" / "weights.json").exists()
    (tmp_path / "empty").mkdir()
    assert nudge(tmp_path / "empty", destination=tmp_path / "nothing") == 0


def reply(ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Reply:
    request = PromptRequest(request_id="r", prompt="p", num_prompt_tokens=1, max_tokens=len(ids), logprobs=1)
    return Reply(request=request, chunks=(Chunk(0.1, "x", ids),), token_logprobs=logprobs)


def test_tokens_count_up_to_where_the_texts_part() -> None:
    whole, moved = reply((1, 2, 3), (-1.0, -2.0, -3.0)), reply((1, 2, 4), (-1.5, -2.0, -9.0))
    (pairs,) = differences([whole], [moved], expected=[(-1.0, -2.0, -3.0)], expected_moved=[(-1.4, -2.1, -3.3)])
    assert pairs == [pytest.approx((-0.4, -0.5)), pytest.approx((-0.1, 0.0))]
    missing = reply((1, 2, 3), ())
    assert differences([missing], [moved], expected=[(-1.0,) * 3], expected_moved=[(-1.0,) * 3]) == [[]]


def series(*, share: float, noise_nats: float, seed: int, num: int = 16) -> Slope:
    """Differences of 0.04 nats by the reference, of which the server shows `share`, with noise of its own."""
    generator = random.Random(seed)
    rows = [
        [(x, share * x + generator.gauss(0.0, noise_nats)) for x in (generator.gauss(0.0, 0.04) for _ in range(32))]
        for _ in range(num)
    ]
    found = slope_of(rows)
    assert found is not None
    return found


@pytest.mark.parametrize("noise_nats", [0.0, 1e-6, 0.03])
def test_a_server_that_uses_its_weights_is_never_refused(noise_nats: float) -> None:
    words = {judge_slope(series(share=1.0, noise_nats=noise_nats, seed=seed)).state for seed in range(200)}
    assert words == {"passed"}


@pytest.mark.parametrize(("share", "noise_nats"), [(0.0, 0.0), (0.0, 0.03), (0.35, 0.0)])
def test_weights_that_did_not_change_are_refused(share: float, noise_nats: float) -> None:
    for seed in range(50):
        found = judge_slope(series(share=share, noise_nats=noise_nats, seed=seed))
        assert [each.reason_class for each in found.refusals] == ["lower_precision"]
    assert "change 0.00 [0.00, 0.00] of what they must, at least 0.7 is required (512 tokens)" in (
        judge_slope(series(share=0.0, noise_nats=0.0, seed=1)).result.text
    )


def test_noise_that_hides_the_weights_says_nothing() -> None:
    found = judge_slope(series(share=1.0, noise_nats=0.3, seed=1))
    assert found.state == "not run" and "the server's noise hides them" in found.not_applicable


def test_nothing_to_compare_is_refused() -> None:
    assert slope_of([[], []]) is None
    assert judge_slope(None).refusals[0].text == "no log-probability could be compared on nudged weights"
