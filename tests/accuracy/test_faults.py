"""Fault injection: planted faults must be refused, honest rounding must pass (`Tolerances` are calibrated by this)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pytest
from served_replies import FAULTS, HONEST, equal_requests, greedy_replies, make_reply

from vibeserve.accuracy.judging import refusals_of
from vibeserve.accuracy.rescore import rescore
from vibeserve.accuracy.scoring import sample, score_records
from vibeserve.contract import Reference
from vibeserve.core.nouns import Chunk, PromptRequest, Refusal, Reply
from vibeserve.errors import InfraError
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.spec import Model, Spec, Workload
from vibeserve.weights import load_tokenizer


def serve(model_dir: Path, fault: str, *, num: int, prompt_tokens: int, output_tokens: int) -> list[Reply]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    {**HONEST, **FAULTS}[fault](model)
    requests = equal_requests(model_dir, num=num, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return greedy_replies(model, requests, tokenizer=load_tokenizer(model_dir))


def judged(replies: Sequence[Reply], bundle: Bundle) -> tuple[list[Refusal], dict[str, float]]:
    """What the judge finds, without the cost of a child and of loading the reference for each fault."""
    scores = score_records(bundle, replies, load=lambda: reference_of(bundle), max_replies=0, seed=0)
    return refusals_of(scores)


@lru_cache(maxsize=2)
def reference_of(bundle: Bundle) -> Reference:
    return bundle.load_reference(device="cpu", dtype="float32")


@pytest.fixture(scope="session")
def tiny_bundle(tiny_model_dir: Path) -> Bundle:
    return open_bundle(bundle_ref(Spec(workload=Workload(kind="chat")), model_dir=tiny_model_dir))


def judge_tiny(bundle: Bundle, fault: str) -> list[Refusal]:
    replies = serve(Path(bundle.ref.context.model_dir), fault, num=32, prompt_tokens=40, output_tokens=24)
    return judged(replies, bundle)[0]


@pytest.mark.parametrize("fault", HONEST)
def test_honest_rounding_passes(fault: str, tiny_bundle: Bundle) -> None:
    assert judge_tiny(tiny_bundle, fault) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_refused(fault: str, tiny_bundle: Bundle) -> None:
    assert "wrong_tokens" in {refusal.reason_class for refusal in judge_tiny(tiny_bundle, fault)}


def test_scores_of_the_child_are_those_of_its_parent(tiny_bundle: Bundle, tmp_path: Path) -> None:
    model_dir = Path(tiny_bundle.ref.context.model_dir)
    replies = serve(model_dir, "f32", num=12, prompt_tokens=40, output_tokens=12)
    tokenizer = load_tokenizer(model_dir)
    partial = make_reply(replies[0].request, replies[0].token_ids[:5], tokenizer=tokenizer)
    cut = dataclasses.replace(partial, error="cut")
    waiting = dataclasses.replace(replies[0], error="cut", chunks=())
    failed = dataclasses.replace(replies[1], error="connection reset")
    mute = dataclasses.replace(replies[2], chunks=())
    wild = make_reply(replies[3].request, [*replies[3].token_ids[:3], 10**6], tokenizer=tokenizer)
    huge = dataclasses.replace(replies[4], chunks=(Chunk(at_s=1.0, text="a", token_ids=(2**40,)),))
    offered = [cut, waiting, failed, mute, wild, huge, *replies[5:]]
    scores = rescore(offered, bundle=tiny_bundle.ref, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)
    assert scores.num_offered == 11 and scores.wall_s > 0
    distances = {reply.request_id: {each.name: each for each in reply.distances} for reply in scores.replies}
    assert distances[mute.request.request_id]["output"].missing == "a finished reply has no output"
    for odd in (wild, huge):
        assert distances[odd.request.request_id]["margin"].missing == "a served id lies outside the vocabulary"
    here = score_records(
        tiny_bundle, [cut, *replies[5:]], load=lambda: reference_of(tiny_bundle), max_replies=0, seed=1
    )
    assert [len(reply.values("margin")) for reply in here.replies] == [5] + [12] * 7
    for theirs in here.replies:
        ours = distances[theirs.request_id]
        assert ours["margin"].values == pytest.approx(theirs.values("margin"), abs=1e-3)
        if "logprob_difference" in ours:
            assert ours["logprob_difference"].values == pytest.approx(theirs.values("logprob_difference"), abs=1e-3)


def test_the_sample_keeps_a_reply_with_logprobs(tiny_bundle: Bundle) -> None:
    model_dir = Path(tiny_bundle.ref.context.model_dir)
    requests = equal_requests(model_dir, num=40, prompt_tokens=20, output_tokens=8)
    replies = [make_reply(request, [300] * 8, tokenizer=load_tokenizer(model_dir)) for request in requests]
    chosen = sample(tiny_bundle, replies, max_replies=6, seed=5)
    assert len(chosen) == 6 and any(isinstance(reply, Reply) and reply.request.logprobs for reply in chosen)


def test_a_reference_that_cannot_be_loaded_is_infrastructure(tiny_bundle: Bundle, tmp_path: Path) -> None:
    model_dir = Path(tiny_bundle.ref.context.model_dir)
    requests = equal_requests(model_dir, num=1, prompt_tokens=20, output_tokens=8)
    replies = [make_reply(requests[0], [300] * 8, tokenizer=load_tokenizer(model_dir))]
    context = dataclasses.replace(tiny_bundle.ref.context, model_dir=str(tmp_path / "none"))
    nowhere = dataclasses.replace(tiny_bundle.ref, context=context)
    with pytest.raises(InfraError, match=r"re-scoring under the reference failed \(exit 1\)\n  \| "):
        rescore(replies, bundle=nowhere, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)


ARCHITECTURES: dict[str, dict[str, float]] = {
    "gemma2": {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128},
    "mamba2": {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1},
    "olmo_hybrid": {
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128, "num_hidden_layers": 4,
    },
}  # fmt: skip
"""capped logits; a state instead of positions; both kinds of layers"""


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scoring_agrees_with_generating_whatever_the_architecture(architecture: str) -> None:
    """Padded and teacher-forced, body and head apart, is what the model itself says step by step."""
    from vibeserve.modalities.text.reference import TextReference
    from vibeserve.weights.seeded import build_seeded

    sizes = {"vocab_size": 2048, "hidden_size": 64, "num_hidden_layers": 2, **ARCHITECTURES[architecture]}
    model, tokenizer = build_seeded(architecture=architecture, seed=1, config=sizes)
    reference = TextReference(model.eval(), tokenizer=tokenizer.backend_tokenizer, device="cpu")
    requests = [
        PromptRequest(
            request_id=str(number), prompt=f"{number} the class statement " * (1 + 2 * number), num_prompt_tokens=0,
            max_tokens=4 + number,
        )
        for number in range(3)
    ]  # fmt: skip
    outputs = [reference.run(request) for request in requests]
    assert [len(output["token_ids"]) for output in outputs] == [4, 5, 6]
    for output, score in zip(outputs, reference.score_many(list(zip(requests, outputs, strict=True))), strict=True):
        assert score["problem"] == "" and score["margins"] == pytest.approx([0.0] * len(score["margins"]), abs=1e-4)
        assert score["logprobs"] == pytest.approx(output["logprobs"], abs=1e-3)


@pytest.fixture(scope="session")
def real_model_dir() -> Path:
    from omegaconf import OmegaConf

    from vibeserve.core.paths import cache_dir, data_dir
    from vibeserve.weights import materialise

    declared = OmegaConf.merge(
        OmegaConf.structured(Model), OmegaConf.load(data_dir("conf") / "model" / "smollm2_135m.yaml")
    )
    model = OmegaConf.to_object(declared)
    assert isinstance(model, Model)
    return materialise(model, cache=cache_dir()).path


@pytest.mark.audit
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("fault", [*HONEST, *FAULTS])
def test_real_model(fault: str, real_model_dir: Path) -> None:
    bundle = open_bundle(bundle_ref(Spec(workload=Workload(kind="chat")), model_dir=real_model_dir))
    replies = serve(real_model_dir, fault, num=24, prompt_tokens=128, output_tokens=64)
    refusals, figures = judged(replies, bundle)
    assert (not refusals) == (fault in HONEST), figures
