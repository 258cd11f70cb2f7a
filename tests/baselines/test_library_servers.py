"""The thin servers with their real libraries, started as peers on the tiny model."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vibeserve.baselines import PeerOptions, get_peer
from vibeserve.hosts import LocalHost
from vibeserve.service import start_server
from vibeserve.spec import Tier

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["left", "right"]}, "is_open": {"type": "boolean"}},
    "required": ["kind", "is_open"],
    "additionalProperties": False,
}


@contextmanager
def served(name: str, model_dir: Path, run_dir: Path) -> Iterator[str]:
    """Base address of the peer, behind its wall and on the host's loopback."""
    host, peer = LocalHost(), get_peer(name)
    options = PeerOptions(
        model_dir=model_dir, dtype="f32", max_concurrency=2, max_sequence_tokens=128, scratch_dir=run_dir
    )
    server = start_server(
        peer.launch(options), host=host, tier=host.resolve_tier(Tier.auto, allow_none=False), cpus=(), threads=1,
        run_dir=run_dir, network="host",
    )  # fmt: skip
    try:
        yield server.base_url
    finally:
        server.stop()


def post(base_url: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    body = json.dumps({"model": "model", "temperature": 0, "max_tokens": 48, **fields}).encode()
    request = urllib.request.Request(
        f"{base_url}/v1/completions", data=body, headers={"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_lookup_changes_no_token_and_masks_hold(tiny_model_dir: Path, tmp_path: Path) -> None:
    prompts = ["one two three one two three one two", "a = 1\nb = 2\na = 1\nb ="]
    with served("transformers_llguidance", tiny_model_dir, tmp_path / "masked") as url:
        plain = [post(url, prompt=prompt, ignore_eos=True) for prompt in prompts]
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
        status, document = post(url, prompt=prompts[0], response_format=form)
        refused = post(
            url, prompt="p", response_format={"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}
        )
        cut = post(url, prompt=prompts[0], response_format=form, max_tokens=2)
    with served("transformers_prompt_lookup", tiny_model_dir, tmp_path / "lookup") as url:
        guessed = [post(url, prompt=prompt, ignore_eos=True) for prompt in prompts]
        unconstrained = post(url, prompt="p", response_format=form)
    assert [answer[0] for answer in plain + guessed] == [200] * 4
    assert [one(answer)["token_ids"] for answer in guessed] == [one(answer)["token_ids"] for answer in plain]
    assert {answer[1]["usage"]["completion_tokens"] for answer in guessed} == {48}
    assert {one(answer)["finish_reason"] for answer in guessed} == {"length"}
    assert status == 200
    assert set(json.loads(one((status, document))["text"])) == {"kind", "is_open"}
    assert one((status, document))["finish_reason"] == "stop"
    assert (one(cut)["finish_reason"], len(one(cut)["token_ids"])) == ("length", 2)
    assert refused[0] == 400
    assert "the schema cannot be enforced" in refused[1]["error"]["message"]
    assert unconstrained[0] == 400
    assert unconstrained[1]["error"]["message"] == "'response_format' is not supported by this server"


def one(answer: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    choice: dict[str, Any] = answer[1]["choices"][0]
    return choice
