"""Fault injection: planted faults must be refused, honest rounding must pass (`Tolerances` are calibrated by this)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from served_replies import FAULTS, HONEST, equal_requests, greedy_replies, make_reply

from vibeserve.accuracy import ReplyScores, Scores, accuracy_refusals, reply_refusals, rescore
from vibeserve.core.nouns import Refusal, Reply
from vibeserve.errors import InfraError
from vibeserve.spec import Model, Tolerances
from vibeserve.weights import load_tokenizer


def serve(model_dir: Path, fault: str, *, num: int, prompt_tokens: int, output_tokens: int) -> list[Reply]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(model_dir / "f32", dtype=torch.float32).eval()
    {**HONEST, **FAULTS}[fault](model)
    requests = equal_requests(model_dir, num=num, prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return greedy_replies(model, requests, tokenizer=load_tokenizer(model_dir))


def score_here(replies: Sequence[Reply], model_dir: Path) -> Scores:
    """What `rescore` does in its child, without the cost of a new process for each fault."""
    from vibeserve.accuracy.rescorer import score_job

    entries = [{"prompt": reply.request.prompt, "token_ids": list(reply.token_ids)} for reply in replies]
    answers = score_job({"model_dir": str(model_dir), "replies": entries})
    return Scores(
        replies=tuple(
            ReplyScores(
                request_id=reply.request.request_id,
                margins=tuple(answer["margins"]),
                logprobs=tuple(answer["logprobs"]),
                served_logprobs=reply.token_logprobs,
                asked_logprobs=reply.request.logprobs > 0,
            )
            for reply, answer in zip(replies, answers, strict=True)
        )
    )


def judge_tiny(model_dir: Path, fault: str) -> list[Refusal]:
    replies = serve(model_dir, fault, num=32, prompt_tokens=40, output_tokens=24)
    assert reply_refusals(replies, tokenizer=load_tokenizer(model_dir)) == []
    return accuracy_refusals(score_here(replies, model_dir), tolerances=Tolerances())[0]


@pytest.mark.parametrize("fault", HONEST)
def test_honest_rounding_passes(fault: str, tiny_model_dir: Path) -> None:
    assert judge_tiny(tiny_model_dir, fault) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_refused(fault: str, tiny_model_dir: Path) -> None:
    assert "wrong_tokens" in {refusal.reason_class for refusal in judge_tiny(tiny_model_dir, fault)}


def test_rescore_by_child_equals_scoring_here(tiny_model_dir: Path, tmp_path: Path) -> None:
    replies = serve(tiny_model_dir, "f32", num=12, prompt_tokens=40, output_tokens=12)
    tokenizer = load_tokenizer(tiny_model_dir)
    cut = dataclasses.replace(
        make_reply(replies[0].request, replies[0].token_ids[:5], tokenizer=tokenizer), error="cut"
    )
    failed = dataclasses.replace(replies[1], error="connection reset")
    mute = dataclasses.replace(replies[2], chunks=())
    wild = make_reply(replies[3].request, [*replies[3].token_ids[:3], 10**6], tokenizer=tokenizer)
    offered = [cut, failed, mute, wild, *replies[4:]]
    scores = rescore(offered, model_dir=tiny_model_dir, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)
    assert scores.num_offered == 11 and scores.wall_s > 0
    assert scores.unscored == {
        mute.request.request_id: "a reply carries no token ids",
        wild.request.request_id: "a served id lies outside the vocabulary",
    }
    expected = score_here([cut, *replies[4:]], tiny_model_dir).replies
    assert [reply.request_id for reply in scores.replies] == [reply.request_id for reply in expected]
    assert [reply.num_tokens for reply in scores.replies] == [5] + [12] * 8
    for ours, theirs in zip(scores.replies, expected, strict=True):
        assert ours.margins == pytest.approx(theirs.margins, abs=1e-3)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-3)


def test_sample_is_seeded_and_keeps_a_reply_with_logprobs(tiny_model_dir: Path) -> None:
    from vibeserve.accuracy.rescore import _sample

    requests = equal_requests(tiny_model_dir, num=40, prompt_tokens=20, output_tokens=8)
    replies = [make_reply(request, [300] * 8, tokenizer=load_tokenizer(tiny_model_dir)) for request in requests]
    chosen = _sample(replies, max_replies=6, seed=5)
    assert len(chosen) == 6 and chosen == _sample(replies, max_replies=6, seed=5) != _sample(
        replies, max_replies=6, seed=6
    )
    assert any(reply.request.logprobs for reply in chosen)
    assert len(_sample(replies, max_replies=0, seed=5)) == 40


def test_judge_that_cannot_run_is_infrastructure(tiny_model_dir: Path, tmp_path: Path) -> None:
    requests = equal_requests(tiny_model_dir, num=1, prompt_tokens=20, output_tokens=8)
    replies = [make_reply(requests[0], [300] * 8, tokenizer=load_tokenizer(tiny_model_dir))]
    with pytest.raises(InfraError, match=r"re-scoring under the reference failed \(exit 1\)\n  \| "):
        rescore(replies, model_dir=tmp_path / "none", num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)


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
    replies = serve(real_model_dir, fault, num=24, prompt_tokens=128, output_tokens=64)
    refusals, figures = accuracy_refusals(score_here(replies, real_model_dir), tolerances=Tolerances())
    assert (not refusals) == (fault in HONEST), figures
