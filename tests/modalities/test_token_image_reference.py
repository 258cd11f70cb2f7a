"""The reference of images token by token: what it keeps is what the whole sequence gives, and every field counts."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from image_samples import tiny_janus_dir
from token_samples import NUM_TOKENS, request_of

from vibeserve.accuracy.faults import refuse_unproven, try_faults
from vibeserve.config import compose_spec
from vibeserve.core.paths import data_dir
from vibeserve.modalities import bundle_ref
from vibeserve.modalities.image_tokens.check import MARGIN_MEAN

pytestmark = pytest.mark.slow

PLAIN = data_dir("templates") / "runtime/image_tokens/tests/plain_tokens.py"
"""the network written from its definition: whole sequences in f64, a head at a time"""


@pytest.fixture(scope="module")
def reference() -> Any:
    from vibeserve.modalities.image_tokens.reference import load

    return load(str(tiny_janus_dir()), "cpu", "float32")


def test_logits_are_those_of_the_definition_kept_and_forced(reference: Any) -> None:
    import torch
    from safetensors.torch import load_file

    folder = tiny_janus_dir() / "f32"
    config = json.loads((folder / "config.json").read_text())
    plain = runpy.run_path(str(PLAIN))["plain_logits"]
    words, codes = [5, 400, 17, 300], [3, 200, 17, 17, 91]
    forced = reference._network.forced(words, codes, is_guided=True)
    state = reference._network.begin(words, is_guided=True)
    kept = [state.logits]
    for code in codes[:-1]:
        reference._network.step(state, code)
        kept.append(state.logits)
    torch.testing.assert_close(torch.stack(kept), forced, rtol=1e-4, atol=1e-4)
    texts = [[config["bos_token_id"], *each, config["boi_token_id"]] for each in (words, [config["pad_token_id"]] * 4)]
    for branch, text in enumerate(texts):
        right = plain(load_file(folder / "model.safetensors"), config, text, codes[:-1])
        torch.testing.assert_close(forced[:, branch], right, rtol=1e-3, atol=1e-3)


def test_images_are_functions_of_their_requests(reference: Any) -> None:
    right = reference.run(request_of())
    assert right == reference.run(request_of("another name"))
    assert len(right["token_ids"]) == NUM_TOKENS and len(set(right["token_ids"])) > NUM_TOKENS // 4
    scores = reference.score(request_of(), right)
    assert max(scores["margins"]) < 1e-3 and scores["png"] == right["png"] and not scores["problem"]
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 8}, {"temperature": 1.5}, {"temperature": 0.0}, {"guidance": 4.0}, {"guidance": 1.0},
        {"prompt": "a house by the lake"},
    )  # fmt: skip
    for change in changes:
        found = reference.score(request_of(), reference.run(request_of(**change)))["margins"]
        assert sum(found) / len(found) > MARGIN_MEAN, change


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([], "no token ids"), ("1,2", "no token ids"), ([1] * 63, "63 token ids, not 64"),
        ([256] * 64, "no whole numbers from 0 to 255"), ([-1] * 64, "no whole numbers"), ([1.0] * 64, "no whole"),
        ([True] * 64, "no whole numbers"), ([None] * 64, "no whole numbers"),
    ],
)  # fmt: skip
def test_codes_that_are_none_are_told(reference: Any, codes: Any, told: str) -> None:
    found = reference.score(request_of(), {"png": "", "token_ids": codes})
    assert told in found["problem"] and not found["margins"]


def test_the_planted_faults_are_refused_and_bf16_is_not(tmp_path: Path) -> None:
    bundle = bundle_ref(compose_spec(["+target=tiny_janus_cpu"]), model_dir=tiny_janus_dir())
    refuse_unproven(try_faults(bundle, num_threads=1, run_dir=tmp_path / "faults"))


def test_it_is_what_transformers_computes(reference: Any) -> None:
    """Logits of both branches behind codes, and pixels, of the class whose layout the folder has."""
    import torch
    from safetensors.torch import load_file
    from transformers import JanusConfig, JanusForConditionalGeneration

    folder = tiny_janus_dir() / "f32"
    document = json.loads((folder / "config.json").read_text())
    vision = document["vision_config"] | {
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "projection_dim": 64,
    }  # fmt: skip
    config = JanusConfig(text_config=document["text_config"], vq_config=document["vq_config"], vision_config=vision)
    model = JanusForConditionalGeneration(config).eval()
    absent, unknown = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert not unknown
    read_only = ("model.vision_model.", "model.aligner.", "model.vqmodel.encoder.", "model.vqmodel.quant_conv.")
    assert {name for name in absent if not name.startswith((*read_only, "lm_head."))} == set()
    words, codes = [5, 400, 17, 300], [3, 200, 17, 91]
    ids = torch.tensor([[1, *words, 2], [1, 0, 0, 0, 0, 2]])
    with torch.inference_mode():
        rows = model.prepare_embeddings_for_image_generation(torch.tensor([codes[:-1]] * 2))
        x = torch.cat((model.get_input_embeddings()(ids), rows), dim=1)
        hidden = model.model.language_model(inputs_embeds=x, use_cache=False).last_hidden_state
        right = model.model.generation_head(hidden[:, -len(codes) :])
        image = [number % 256 for number in range(NUM_TOKENS)]
        pixels = model.decode_image_tokens(torch.tensor([image]))[0]
    found = reference._network.forced(words, codes, is_guided=True)
    torch.testing.assert_close(found.transpose(0, 1), right, rtol=1e-3, atol=1e-3)
    drawn = reference.pixels(image)
    assert (drawn.float() - ((pixels.clamp(-1, 1) + 1) * 127.5).round()).abs().max() <= 1
    assert drawn.float().std() > 5
