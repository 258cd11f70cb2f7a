"""The scaffold as a process: equality with transformers, the stock client, drain and exit status."""

from __future__ import annotations

import http.client
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from runtime_process import RunningServer, serving

pytestmark = pytest.mark.slow

PROMPTS = ("The command changes", "def main(", "  A list:\n\n- one\n- two\n- ")


def expected_ids(model_dir: Path, prompt_ids: list[int], num_tokens: int) -> list[int]:
    """Greedy tokens of transformers on the same bf16 weights, computed in f32; no prompt here meets the end token."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir / "bf16", dtype=torch.float32)
    output = model.generate(
        torch.tensor([prompt_ids]), max_new_tokens=num_tokens, min_new_tokens=num_tokens, do_sample=False
    )
    ids: list[int] = output[0, len(prompt_ids) :].tolist()
    return ids


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_equals_transformers(scaffold_server: RunningServer, tiny_model_dir: Path, prompt: str) -> None:
    body = {"prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    (choice,) = scaffold_server.post("/v1/completions", body)["choices"]
    assert choice["token_ids"] == expected_ids(tiny_model_dir, choice["prompt_token_ids"], 32)


def test_stock_client(scaffold_server: RunningServer) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{scaffold_server.url}/v1", api_key="none")
    name = client.models.list().data[0].id
    assert client.models.retrieve(name).id == name
    completion = client.completions.create(model=name, prompt="Once", max_tokens=8, temperature=0)
    assert completion.usage is not None
    assert completion.usage.completion_tokens <= 8
    stream = client.completions.create(
        model=name, prompt="Once", max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == completion.choices[0].text
    assert chunks[-1].usage == completion.usage


def test_stock_client_chat(scaffold_server: RunningServer) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{scaffold_server.url}/v1", api_key="none")
    name = client.models.list().data[0].id
    messages: Any = [{"role": "user", "content": "Name a colour."}]
    options: Any = {"model": name, "messages": messages, "max_completion_tokens": 8, "temperature": 0}
    whole = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    assert whole.choices[0].logprobs is not None
    stream = client.chat.completions.create(**options, stream=True)
    pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert "".join(piece or "" for piece in pieces) == whole.choices[0].message.content
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    constrained = client.chat.completions.create(**{**options, "max_completion_tokens": 64}, response_format=form)
    assert json.loads(constrained.choices[0].message.content or "")["a"] in (1, 2)


def test_stock_client_errors(scaffold_server: RunningServer) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{scaffold_server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="another", prompt="x")
    name = client.models.list().data[0].id
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.completions.create(model=name, prompt=[5] * 100_000)
    with pytest.raises(openai.BadRequestError, match="'best_of' is not supported"):
        client.completions.create(model=name, prompt="x", best_of=2)


def test_a_dropped_connection_frees_the_slot(scaffold_server: RunningServer) -> None:
    deadline = time.monotonic() + 60
    # a client that is held up may read a whole reply before it hangs up: that is no abort, so it tries again
    while not re.search(r'finished_reason="abort"} [1-9]', scaffold_server.text("/metrics")):
        assert time.monotonic() < deadline
        drop_a_request(scaffold_server)
        time.sleep(0.2)
    while 'vllm:kv_cache_usage_perc{model_name="tiny_llama"} 0.0' not in scaffold_server.text("/metrics"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def drop_a_request(server: RunningServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    connection.getresponse().readline()
    connection.sock.close()
    connection.close()


def test_the_log_is_json_without_prompts(scaffold_server: RunningServer) -> None:
    scaffold_server.post("/v1/completions", {"prompt": "a very secret prompt", "max_tokens": 1})
    entries = [json.loads(line) for line in scaffold_server.log.read_text().splitlines()]
    assert any(entry.get("path") == "/v1/completions" for entry in entries)
    assert "secret" not in scaffold_server.log.read_text()


def test_sigterm_drains_and_exits_cleanly(text_workspace: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    with serving(text_workspace, tiny_model_dir, log=tmp_path / "log") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = {"prompt": "Once", "max_tokens": 300, "ignore_eos": True, "stream": True, "temperature": 0}
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        response.readline()
        server.process.send_signal(signal.SIGTERM)
        rest = response.read().decode()
        assert rest.endswith("data: [DONE]\n\n")
        assert '"finish_reason":"length"' in rest
        connection.close()
        assert server.process.wait(timeout=30) == 0


def test_api_key_file(text_workspace: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    import openai

    key = tmp_path / "key"
    key.write_text("secret\n")
    arguments = ("--api-key-file", str(key), "--served-model-name", "mine")
    with serving(text_workspace, tiny_model_dir, log=tmp_path / "log", arguments=arguments) as server:
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong").models.list()
        models = openai.OpenAI(base_url=f"{server.url}/v1", api_key="secret").models.list()
        assert [model.id for model in models.data] == ["mine"]


def test_a_wrong_model_folder_ends_the_process(text_workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"config\.json"), serving(text_workspace, tmp_path, log=tmp_path / "log"):
        pass
