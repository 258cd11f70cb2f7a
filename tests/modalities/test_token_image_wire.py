"""Bodies, answers, requests and the rule of sampling of images token by token."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from token_samples import WORKLOAD, context, output, request_of

from vibeserve.config import compose_spec
from vibeserve.contract import Pool, SendError
from vibeserve.errors import SpecError
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.modalities.image.workload import with_payload
from vibeserve.modalities.image_tokens.wire import body_of, read_answer
from vibeserve.modalities.image_tokens.workload import configure


def test_a_body_says_everything_that_the_image_depends_on() -> None:
    asked = request_of()
    body = body_of(asked, model="m")
    assert body == {
        "model": "m", "prompt": "a house by the sea", "size": "64x64", "n": 1, "response_format": "b64_json",
        "guidance": 3.0, "temperature": 1.0, "seed": 7, "return_token_ids": True,
    }  # fmt: skip


def test_no_request_does_without_the_codes() -> None:
    """Audits send requests without what only a check asks for, and their replies are judged as well."""
    bundle = open_bundle(bundle_ref(compose_spec(["+target=tiny_janus_cpu"])))
    assert bundle.plain(request_of()) == request_of()
    assert not hasattr(bundle.workload, "plain"), "a workload that has it is judged by its other requests alone"


def test_an_answer_is_one_image() -> None:
    found = output(3)
    answer = {"created": 1, "data": [{"b64_json": found["png"], "token_ids": found["token_ids"], "seed": 7}]}
    assert read_answer(json.dumps(answer).encode()) == found
    assert read_answer(json.dumps({"data": [{"b64_json": "x"}]}).encode()) == {"png": "x", "token_ids": []}


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"data": []}', b'{"data": [{"b64_json": "x", "token_ids": "1,2"}]}'])
def test_answers_of_another_shape_fail_the_request(answer: bytes) -> None:
    with pytest.raises(SendError, match="malformed answer"):
        read_answer(answer)


def test_requests_have_a_temperature_and_no_steps(tiny_model_dir: Path) -> None:
    from vibeserve.weights import load_tokenizer
    from vibeserve.workloads.text_to_image import text_to_codes_stream

    def drawn(seed: int) -> list[Any]:
        tokenizer = load_tokenizer(tiny_model_dir)
        stream = text_to_codes_stream(WORKLOAD, tokenizer=tokenizer, size="64x64", pool=Pool.visible, seed=seed)
        return [request.payload for request in itertools.islice(stream, 4)]

    assert drawn(3) == drawn(3)
    assert not {each["prompt"] for each in drawn(3)} & {each["prompt"] for each in drawn(4)}
    assert all(set(each) == {"prompt", "size", "temperature", "guidance", "seed"} for each in drawn(3))


def test_audits_of_times_get_requests_of_one_shape() -> None:
    workload, long = configure(context()), "a house by the sea and a boat"
    assert workload.shortened(request_of()) == request_of()
    audited = [workload.audited(request_of(prompt=prompt)) for prompt in (long, long[::-1])]
    assert {len(request.payload["prompt"]) for request in audited} == {WORKLOAD.prompt_tokens_min}
    assert with_payload(audited[0], prompt=long) == request_of(prompt=long)


def test_the_contract_is_that_of_how_the_model_draws() -> None:
    names = ("tiny_janus_cpu", "tiny_image_cpu")
    by_tokens, by_flow = (bundle_ref(compose_spec([f"+target={name}"])) for name in names)
    assert by_tokens.reference == "module:vibeserve.modalities.image_tokens.reference"
    assert by_tokens.probes == "vibeserve.modalities.image_tokens"
    assert by_flow.reference == "module:vibeserve.modalities.image.reference"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["+target=tiny_janus_cpu", "workload.num_steps=8"], "num_steps: 8, but a model that draws token by token has"),
        (["+target=tiny_janus_cpu", "workload.temperature=11"], r"workload\.temperature: 11 is not in \[0, 10\]"),
        (["+target=tiny_image_cpu", "workload.temperature=1"], "temperature: a model that draws by flow has none"),
        (["+target=tiny_cpu", "workload.temperature=1"], "temperature: only a text_to_image workload has it"),
    ],
)
def test_steps_and_temperature_belong_to_one_way_to_draw(overrides: list[str], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        compose_spec(overrides)
    import re

    assert re.search(told, "\n".join(caught.value.problems))


def test_noise_depends_on_seed_position_and_code_alone() -> None:
    import numpy as np

    from vibeserve.modalities.image_tokens.sampling import gumbel_noise

    found = gumbel_noise(7, 3, num_codes=500)
    np.testing.assert_array_equal(found[:20], gumbel_noise(7, 3, num_codes=20))
    assert not np.array_equal(found, gumbel_noise(7, 4, num_codes=500))
    assert not np.array_equal(found, gumbel_noise(8, 3, num_codes=500))
    many = np.concatenate([gumbel_noise(11, position, num_codes=500) for position in range(100)])
    assert many.mean() == pytest.approx(0.5772, abs=0.03) and many.var() == pytest.approx(1.645, abs=0.08)


def test_noise_is_philox_by_its_definition() -> None:
    """The block of counter [1, 0, 0, position] and key [seed, 0], in ten rounds of plain integers."""
    from vibeserve.modalities.image_tokens.sampling import gumbel_noise

    words = philox_block((1, 0, 0, 5), (1234, 0))
    for word, found in zip(words, gumbel_noise(1234, 5, num_codes=4), strict=True):
        import math

        uniform = ((word >> 11) + 0.5) / 2**53
        assert found == pytest.approx(-math.log(-math.log(uniform)), rel=1e-12)


def philox_block(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    mask, words, keys = (1 << 64) - 1, list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * words[0], 0xCA5A826395121157 * words[2]
        words = [
            (second >> 64) ^ words[1] ^ keys[0], second & mask, (first >> 64) ^ words[3] ^ keys[1], first & mask,
        ]  # fmt: skip
        keys = [(keys[0] + 0x9E3779B97F4A7C15) & mask, (keys[1] + 0xBB67AE8584CAA73B) & mask]
    return words
