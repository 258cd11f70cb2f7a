"""Peers with environments of their own, where they are installed: started on SmolLM2, lengths and schemas held."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vibeserve.baselines import PeerOptions, get_peer
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.core.nouns import LoadPoint, PromptRequest, Reply
from vibeserve.core.paths import cache_dir
from vibeserve.hosts import LocalHost
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.service import start_server
from vibeserve.spec import Tier
from vibeserve.weights import materialise

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["left", "right"]}, "is_open": {"type": "boolean"}},
    "required": ["kind", "is_open"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
PROMPT = "def add(a, b):\n    return a + b\n\n\ndef add_again(a, b):\n"
MAX_TOKENS = 24
MORE_FLAGS = {"vllm": ("--enforce-eager",), "vllm_ngram": ("--enforce-eager",)}
"""what a compiler would take minutes for is not what is tested here"""


@pytest.mark.audit
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama_cpp", "openvino", "vllm", "vllm_ngram"])
def test_an_installed_peer_holds_lengths_and_schemas(name: str, tmp_path: Path) -> None:
    peer = get_peer(name)
    if peer.installed_version() is None:
        pytest.skip(f"{name} is not installed; {peer.install_command}")
    target = compose_spec(["+target=json_cpu"])
    model = materialise(target.model, cache=cache_dir())
    options = PeerOptions(
        model_dir=model.path, dtype="bf16" if peer.dtypes else "", max_concurrency=4, max_sequence_tokens=256,
        scratch_dir=tmp_path, flags=(*MORE_FLAGS.get(name, ()), *declared_flags(target, name)),
    )  # fmt: skip
    host = LocalHost()
    server = start_server(
        peer.launch(options), host=host, tier=host.resolve_tier(Tier.auto, allow_none=False), cpus=(), threads=1,
        run_dir=tmp_path / "run",
    )  # fmt: skip
    try:
        session = LoadSession(
            bundle=open_bundle(bundle_ref(target, model_dir=model.path)), base_url=server.base_url,
            dialect=peer.dialect, model=peer.model_name(options), load=LoadPoint(name="c2", concurrency=2),
            requests=iter(requests()), join=lambda argv: host.join_argv(server.process, argv),
        )  # fmt: skip
        session.start()
        try:
            session.wait(timeout_s=300)
        finally:
            replies = {reply.request.request_id: reply for reply in session.stop() if isinstance(reply, Reply)}
    finally:
        server.stop()
    assert {name: reply.error for name, reply in replies.items()} == {"fixed": None, "document": None}
    fixed, document = replies["fixed"], replies["document"]
    assert fixed.finish_reason == "length"
    assert fixed.usage is not None and fixed.usage.completion_tokens == MAX_TOKENS
    assert document.finish_reason == "stop", document.text
    assert set(json.loads(document.text)) == {"kind", "is_open"}


def declared_flags(target: Any, name: str) -> tuple[str, ...]:
    return tuple(target.baseline[name].flags) if name in target.baseline else ()


def requests() -> list[PromptRequest]:
    shared: dict[str, Any] = {"prompt": PROMPT, "num_prompt_tokens": 0, "max_tokens": MAX_TOKENS}
    return [
        PromptRequest(request_id="fixed", **shared),
        PromptRequest(request_id="document", payload={"response_format": FORM}, ignore_eos=False, **shared),
    ]
