"""Seeded weights of Moonshine Streaming: sizes as declared, the same every time, words that hang on what is heard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from speech_samples import recordings, tiny_speech_dir

from vibeserve.errors import WeightsError
from vibeserve.spec import Workload


def test_windows_look_ahead_in_the_first_and_the_last_layers() -> None:
    from vibeserve.weights.seeded_speech import windows_of

    assert windows_of(6, left_frames=16, lookahead_frames=12) == [[16, 4], [16, 4], [16, 0], [16, 0], [16, 4], [16, 4]]
    assert windows_of(3, left_frames=16, lookahead_frames=6) == [[16, 4], [16, 0], [16, 4]]
    assert windows_of(2, left_frames=8, lookahead_frames=0) == [[8, 0], [8, 0]]
    published = windows_of(14, left_frames=16, lookahead_frames=12)
    assert [ahead for _, ahead in published] == [4, 4, *[0] * 10, 4, 4]


@pytest.mark.parametrize(
    ("architecture", "config", "told"),
    [
        ("whisper", {}, "no seeded weights of 'whisper' for speech"),
        ("moonshine_streaming", {"widht": 3}, "widht unknown"),
    ],
)
def test_what_cannot_be_made_is_refused(architecture: str, config: dict[str, int], told: str) -> None:
    from vibeserve.weights.seeded_speech import build_seeded_speech

    with pytest.raises(WeightsError, match=told):
        build_seeded_speech(architecture=architecture, seed=0, config=config, encoder={})


@pytest.mark.slow
def test_the_declared_sizes_are_those_of_the_class() -> None:
    import torch
    from omegaconf import OmegaConf
    from transformers import MoonshineStreamingConfig, MoonshineStreamingForConditionalGeneration

    from vibeserve.core.paths import data_dir
    from vibeserve.weights.seeded_speech import encoder_options

    declared = OmegaConf.load(data_dir("conf") / "model" / "moonshine_streaming_small.yaml")
    encoder = OmegaConf.to_container(declared.speech_encoder)
    config = MoonshineStreamingConfig(**declared.source.config, encoder_config=encoder_options(dict(encoder)))  # type: ignore[arg-type]
    with torch.device("meta"):
        model = MoonshineStreamingForConditionalGeneration(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == declared.num_parameters
    assert config.encoder_config.sliding_windows == [[16, 4], [16, 4], [16, 0], [16, 0], [16, 4], [16, 4]]


@pytest.mark.slow
def test_the_folder_holds_a_model_that_listens() -> None:
    from vibeserve.modalities.speech.reference import load

    folder = tiny_speech_dir()
    assert {path.name for path in folder.iterdir()} >= {"f32", "bf16", "weights.json"}
    assert json.loads((folder / "bf16" / "config.json").read_text())["eos_token_id"] == 2
    reference = load(str(folder), "cpu", "float32")
    requests = recordings(4, Workload(kind="streaming_asr", audio_s_min=2, audio_s_max=2, chunk_s=0.5))
    ids = [reference.run(request)["final"]["token_ids"] for request in requests]
    assert len({tuple(each) for each in ids}) >= 3 and all(len(each) == 13 for each in ids)
    scored = reference.score(requests[0], reference.run(requests[0]))
    assert max(margin for each in scored["transcripts"] for margin in each["margins"]) < 1e-4


@pytest.mark.slow
def test_the_reference_applies_the_windows() -> None:
    """Without an attention mask the class attends to everything, and says nothing of it."""
    import torch

    from vibeserve.modalities.speech.reference import SpeechReference

    reference = SpeechReference(Path(tiny_speech_dir()), device="cpu", dtype="float32")
    (request,) = recordings(1, Workload(kind="streaming_asr", audio_s_min=2, audio_s_max=2, chunk_s=0.5))
    whole = reference.encoded(request.payload, end_ms=2000)[0]
    part = reference.encoded(request.payload, end_ms=1000)[0]
    num_final = len(part) - 6
    torch.testing.assert_close(whole[:num_final], part[:num_final], rtol=1e-4, atol=1e-5)
    assert (whole[num_final : len(part)] - part[num_final:]).abs().max() > 1e-3


@pytest.mark.slow
def test_wrong_transcripts_are_scored_as_such() -> None:
    from vibeserve.modalities.speech.reference import load

    reference = load(str(tiny_speech_dir()), "cpu", "float32")
    (request,) = recordings(1)
    right = reference.run(request)["partials"][0]

    def problem(**changes: object) -> str:
        (scored,) = reference.score(request, {"partials": [{**right, **changes}], "final": None})["transcripts"]
        return str(scored["problem"]) or f"{max(scored['margins']):.1f}"

    assert problem() == "0.0"
    assert problem(audio_end_ms=9000) == "a transcript of audio that the recording does not have"
    assert problem(token_ids=[*right["token_ids"], right["token_ids"][-1]]) == "100.0"
    assert problem(token_ids=[99999]) == problem(token_ids=[2]) == "token ids that no transcript holds"
    assert float(problem(token_ids=[])) > 1.0
    assert float(problem(token_ids=right["token_ids"][:-1])) > 1.0
