"""Peers with environments of their own, where they are installed: started on SmolLM2, lengths and schemas held."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from vibeserve.baselines import PeerOptions, get_peer
from vibeserve.config import compose_spec
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.core.paths import cache_dir
from vibeserve.hosts import LocalHost
from vibeserve.modalities.text.wire import Collected, body_of
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


@pytest.mark.slow
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
        run_dir=tmp_path / "run", network="host",
    )  # fmt: skip
    try:
        fixed = ask(server.base_url, name, options)
        document = ask(server.base_url, name, options, payload={"response_format": FORM}, ignore_eos=False)
    finally:
        server.stop()
    assert fixed.finish_reason == "length"
    assert fixed.usage is not None and fixed.usage.completion_tokens == MAX_TOKENS
    assert document.finish_reason == "stop", document.text
    assert set(json.loads(document.text)) == {"kind", "is_open"}


def declared_flags(target: Any, name: str) -> tuple[str, ...]:
    return tuple(target.baseline[name].flags) if name in target.baseline else ()


def ask(base_url: str, name: str, options: PeerOptions, **fields: Any) -> Reply:
    """One request as the load generator sends it."""
    peer = get_peer(name)
    asked = PromptRequest(
        request_id="one", prompt=PROMPT, num_prompt_tokens=0, **{"max_tokens": MAX_TOKENS, **fields}
    )
    body = json.dumps(body_of(peer.dialect, asked, model=peer.model_name(options))).encode()
    sent = urllib.request.Request(
        f"{base_url}/v1/completions", data=body, headers={"content-type": "application/json"}
    )
    collected = Collected()
    with urllib.request.urlopen(sent, timeout=300) as answer:
        for line in answer:
            collected.read(time.monotonic(), line)
    assert collected.is_done
    return collected.reply(asked)
