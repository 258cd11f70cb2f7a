"""The stock client against the scaffold and against assemblies of the components, each a process of its own.

The same contract without sockets, at every border, travels with each runtime: `tests/test_contract.py` there.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vibeserve.skills import Skill, resolve

ASSEMBLIES = {
    "scaffold": (),
    "predicted": ("batched-sampling", "native-forward", "predicted-outputs"),
    "json": ("batched-sampling", "json-jump-forward"),
    "stock": ("chunked-prefill", "packed-linears"),
    "int8": ("continuous-batching", "int8-groupwise-linears", "native-forward"),
}
SERVED = ("scaffold", "json")
"""the others differ in seams that no client sees; they pass the contract without sockets"""
PROMPT = "Once upon a time"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"const": "naïve – 東京 🙂"}, "is_open": {"type": "boolean"}},
    "required": ["name", "is_open"],
    "additionalProperties": False,
}
NUM_CROWD = 48


def test_the_assemblies_hold_every_component(shipped_skills: list[Skill]) -> None:
    """Every one that fits the Llama scaffold on a CPU."""
    cards = {skill.name: skill.card.conditions for skill in shipped_skills if skill.card is not None}
    fitting = {
        name
        for name, conditions in cards.items()
        if "text" in (conditions.modalities or ("text",))
        and "llama" in (conditions.architectures or ("llama",))
        and "cpu" in (conditions.hardware or ("cpu",))
        and "one" in (conditions.ranks or ("one",))
    }
    held = {skill.name for names in ASSEMBLIES.values() for skill in resolve(names, shipped_skills)}
    assert held == fitting


@contextmanager
def served(workspace: Path, model_dir: Path, log: Path) -> Iterator[str]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    argv = [sys.executable, "-m", "runtime", "--model-dir", str(model_dir), "--port", str(port), "--threads", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("wb") as stream:
        server = subprocess.Popen(argv, cwd=workspace, stdout=stream, stderr=stream, env=environment)
    try:
        for _ in range(600):
            assert server.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SERVED)
def test_the_stock_client_finds_the_api_that_it_knows(
    built_workspace, tiny_model_dir: Path, tmp_path: Path, name: str
) -> None:
    import openai

    with served(built_workspace(*ASSEMBLIES[name]), tiny_model_dir, tmp_path / "server.log") as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
        model = client.models.list().data[0].id
        options: dict[str, Any] = {"model": model, "prompt": PROMPT, "max_tokens": 16, "temperature": 0}
        check_completions(client, options)
        check_chat(client, model)
        check_limits(client, model)
        check_crowd(client, options)
        check_leaving(client, url, options)


def check_completions(client: Any, options: dict[str, Any]) -> None:
    """Seeds, choices, stop strings, log-probabilities; streamed as whole."""
    fixed = {**options, "extra_body": {"ignore_eos": True}}
    whole = client.completions.create(**fixed, logprobs=2)
    text = whole.choices[0].text
    assert (whole.usage.completion_tokens, whole.choices[0].finish_reason) == (16, "length")
    assert len(whole.choices[0].logprobs.token_logprobs) == 16
    stream = list(client.completions.create(**fixed, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].text for event in stream if event.choices) == text
    assert stream[-1].usage.completion_tokens == 16
    stop = text[len(text) // 2 : len(text) // 2 + 4]
    stopped = client.completions.create(**fixed, stop=[stop])
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == (text[: text.index(stop)], "stop")
    sampled = [client.completions.create(**{**fixed, "temperature": 1, "seed": 7, "n": 2}) for _ in range(2)]
    texts = [[choice.text for choice in reply.choices] for reply in sampled]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 2
    predicted = client.completions.create(
        **{**options, "extra_body": {"ignore_eos": True, "prediction": {"type": "content", "content": text}}}
    )
    assert predicted.choices[0].text == text


def check_chat(client: Any, model: str) -> None:
    """A document under a schema whose characters are of several tokens each, streamed as whole."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    options: dict[str, Any] = {
        "model": model, "messages": [{"role": "user", "content": "A place."}], "max_completion_tokens": 200,
        "temperature": 0, "response_format": form,
    }  # fmt: skip
    whole = client.chat.completions.create(**options)
    assert json.loads(whole.choices[0].message.content)["name"] == "naïve – 東京 🙂"
    pieces = [event.choices[0].delta.content or "" for event in client.chat.completions.create(**options, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    assert not any("\ufffd" in piece for piece in pieces)


def check_limits(client: Any, model: str) -> None:
    import openai

    limit = client.models.list().data[0].model_extra["max_model_len"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[5] * (limit - 2), max_tokens=3)
    for number in (limit, limit + 1, limit - 2, 3):
        assert str(number) in str(caught.value)
    schema = {"type": "object", "properties": {"a": {"type": "string", "contentEncoding": "base64"}}, "not": {}}
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match=r"Unimplemented keys: .*not"):
        client.completions.create(model=model, prompt="x", extra_body={"response_format": form})


def check_crowd(client: Any, options: dict[str, Any]) -> None:
    """Many more than there are slots: every one has its answer, or a clear refusal."""
    import openai

    expected = client.completions.create(**options).choices[0].text

    def ask(_: int) -> str:
        try:
            text: str = client.completions.create(**options).choices[0].text
            return text
        except (openai.RateLimitError, openai.InternalServerError) as error:
            assert error.response.headers["retry-after"]
            return expected

    with ThreadPoolExecutor(NUM_CROWD) as pool:
        assert set(pool.map(ask, range(NUM_CROWD))) == {expected}


def check_leaving(client: Any, url: str, options: dict[str, Any]) -> None:
    """A closed connection is noticed, and its slot is free again."""
    deadline = time.monotonic() + 60
    long = {**options, "max_tokens": 400, "stream": True, "extra_body": {"ignore_eos": True}}
    while not re.search(r'finished_reason="abort"} [1-9]', metrics(url)):
        assert time.monotonic() < deadline
        stream = client.completions.create(**long)
        next(iter(stream))
        stream.close()
        time.sleep(0.1)
    while not re.search(r"vllm:kv_cache_usage_perc{[^}]*} 0\.0\b", metrics(url)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.completions.create(**options).choices[0].finish_reason


def metrics(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())
