"""Peers that need nothing installed, really started behind the wall on the tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.baselines import PeerOptions, get_peer
from vibeserve.client import LoadSession
from vibeserve.core.nouns import LoadPoint, PromptRequest
from vibeserve.hosts import LocalHost
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.service import start_server
from vibeserve.spec import Spec, Tier

NUM_REQUESTS = 6
MAX_TOKENS = 9


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("transformers", "f32"),
        ("transformers_cb", "f32"),
        ("transformers_cb", "bf16"),
        ("transformers_prefix", "f32"),
        ("scaffold", ""),
    ],
)
def test_a_peer_serves_replies_of_exactly_the_asked_length(
    name: str, dtype: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    host = LocalHost()
    peer = get_peer(name)
    options = PeerOptions(
        model_dir=tiny_model_dir, dtype=dtype, max_concurrency=4, max_sequence_tokens=64, scratch_dir=tmp_path
    )
    tier = host.resolve_tier(Tier.auto, allow_none=False)
    server = start_server(peer.launch(options), host=host, tier=tier, cpus=(), threads=1, run_dir=tmp_path / "run")
    try:
        session = LoadSession(
            bundle=open_bundle(bundle_ref(Spec())), base_url=server.base_url, dialect=peer.dialect,
            model=peer.model_name(options), load=LoadPoint(name="c3", concurrency=3), requests=iter(requests()),
            join=lambda argv: host.join_argv(server.process, argv),
        )  # fmt: skip
        session.start()
        try:
            session.wait(timeout_s=300)
        finally:
            replies = session.stop()
    finally:
        server.stop()
    assert [reply.error for reply in replies] == [None] * NUM_REQUESTS
    assert {reply.finish_reason for reply in replies} == {"length"}
    assert {reply.usage.completion_tokens for reply in replies if reply.usage} == {MAX_TOKENS}


def requests() -> list[PromptRequest]:
    return [
        PromptRequest(request_id=str(number), prompt=f"{number} the word", num_prompt_tokens=0, max_tokens=MAX_TOKENS)
        for number in range(NUM_REQUESTS)
    ]
