"""Logits are those of the network's definition, whatever a model keeps and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from plain_tokens import plain_logits
from runtime.model import Model

TEXTS: tuple[tuple[int, ...], ...] = ((1, *range(300, 312), 2), (1, *[0] * 12, 2))
CODES = (17, 200, 3, 3, 91, 250)
TOLERANCE = 0.03
"""relative: components may compute in bf16; what is wrong is off by more (`test_text_and_codes_count`)"""


def relative(found: torch.Tensor, right: torch.Tensor) -> float:
    return float((found - right).norm() / right.norm())


@torch.inference_mode()
def logits_of(model: Model, texts: Sequence[Sequence[int]], codes: Sequence[int]) -> torch.Tensor:
    """[num_branches, 1 + num, num_codes]"""
    state, first = model.begin(texts)
    return torch.stack([first, *(model.step(state, code) for code in codes)], dim=1)


def test_logits_are_those_of_the_definition(model: Model, model_dir: Path, tensors: dict[str, torch.Tensor]) -> None:
    config = json.loads((model_dir / "bf16" / "config.json").read_text())
    found = logits_of(model, TEXTS, CODES)
    assert found.dtype == torch.float32
    for text, each in zip(TEXTS, found, strict=True):
        assert relative(each, plain_logits(tensors, config, text, CODES)) < TOLERANCE


def test_branches_do_not_change_each_other(model: Model) -> None:
    together = logits_of(model, TEXTS, CODES)
    for text, found in zip(TEXTS, together, strict=True):
        (alone,) = logits_of(model, [text], CODES)
        assert relative(found, alone) < TOLERANCE


def test_images_do_not_change_each_other(model: Model) -> None:
    """Two of them, a code each in turn."""
    right = logits_of(model, TEXTS, CODES[:2])
    with torch.inference_mode():
        one, _ = model.begin(TEXTS)
        other, _ = model.begin([text[::-1] for text in TEXTS])
        model.step(one, CODES[0])
        model.step(other, CODES[3])
        found = model.step(one, CODES[1])
    assert relative(found, right[:, -1]) < TOLERANCE


def test_text_and_codes_count(model: Model) -> None:
    """A negative control: other words, their order, and other codes give other logits."""
    right = logits_of(model, TEXTS[:1], CODES)[0, -1]
    first, *words, last = TEXTS[0]
    for text, codes in (
        ((first, *words[::-1], last), CODES), ((first, *words[:6], last), CODES), (TEXTS[1], CODES),
        (TEXTS[0], CODES[::-1]), (TEXTS[0], CODES[1:]),
    ):  # fmt: skip
        assert relative(logits_of(model, [text], codes)[0, -1], right) > 2 * TOLERANCE
