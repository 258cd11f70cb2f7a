"""Codex CLI (`codex exec`): the Responses API, one JSON document a line, the last message by a schema.

Flags and events: https://developers.openai.com/codex/cli/reference and .../codex/noninteractive, tried with 0.171.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vibeserve.agents.clients.call import Call, read_end
from vibeserve.agents.clients.core import CliBackend
from vibeserve.agents.clients.parsing import Parsed, parse_codex_jsonl
from vibeserve.agents.clients.strict import strict_schema

PROVIDER = "vibeserve"
KEY_VARIABLE = "VIBESERVE_CLIENT_KEY"
NUM_RETRIES = 4
_FLAGS = (
    "exec", "--json", "--ephemeral", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check",
    # the wall is ours; Codex's own would need namespaces that the inside cannot make
    "--sandbox", "danger-full-access",
    "--disable", "shell_snapshot", "--disable", "multi_agent",
)  # fmt: skip
_SETTINGS = {
    "model_provider": PROVIDER,
    "approval_policy": "never",
    "analytics.enabled": False,
    "check_for_update_on_startup": False,
    "web_search": "disabled",
    # instructions that lie in the workspace are the candidate's, not ours
    "project_doc_max_bytes": 0,
}


class CodexBackend(CliBackend):
    """`agents=codex`"""

    program = "codex"
    install = "npm install -g @openai/codex"
    dialect = "responses"

    def files(self, call: Call) -> Mapping[Path, str]:
        return {call.schema_file: json.dumps(strict_schema(call.request.output_schema))}

    def argv(self, call: Call) -> list[str]:
        settings = [f"{name}={json.dumps(value)}" for name, value in _SETTINGS.items()]
        settings.append(f"model_providers.{PROVIDER}={_provider(call.base_url)}")
        if self._agent.effort:
            settings.append(f"model_reasoning_effort={json.dumps(self._agent.effort)}")
        return [
            *_FLAGS, *(word for setting in settings for word in ("--config", setting)),
            *(("--model", call.model) if call.model else ()), "--cd", str(call.request.workspace),
            "--output-schema", str(call.schema_file), "--output-last-message", str(call.output_file),
            "--", call.prompt,
        ]  # fmt: skip

    def env(self, call: Call) -> dict[str, str]:
        return {"CODEX_HOME": str(call.config_dir), KEY_VARIABLE: call.client_key}

    def parse(self, output: str, call: Call) -> Parsed:
        parsed = parse_codex_jsonl(output)
        last = read_end(call.output_file).strip()
        return Parsed(text=last, turns=parsed.turns) if last and parsed.text else parsed


def _provider(base_url: str) -> str:
    """A TOML table."""
    retries = f"request_max_retries={NUM_RETRIES}, stream_max_retries={NUM_RETRIES}"
    return f'{{name="{PROVIDER}", base_url="{base_url}", wire_api="responses", env_key="{KEY_VARIABLE}", {retries}}}'
