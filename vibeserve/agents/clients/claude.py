"""Claude Code (`claude -p`): the Messages API, one JSON document a line, the answer by a schema.

Flags and variables: https://docs.anthropic.com/en/docs/claude-code/cli-reference and .../settings, tried with 2.1.
"""

from __future__ import annotations

import json

from vibeserve.agents.clients.call import Call
from vibeserve.agents.clients.core import CliBackend
from vibeserve.agents.clients.parsing import Parsed, parse_claude_json

NUM_RETRIES = 4
_READING = ("Bash", "Read", "Glob", "Grep")
_WRITING = (*_READING, "Edit", "Write")
_FLAGS = (
    "--print", "--verbose", "--output-format", "stream-json", "--permission-mode", "bypassPermissions",
    "--no-session-persistence", "--strict-mcp-config", "--disable-slash-commands",
    # instructions and settings that lie in the workspace are the candidate's, not ours
    "--bare", "--setting-sources", "user",
)  # fmt: skip


class ClaudeBackend(CliBackend):
    """`agents=claude`"""

    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    dialect = "messages"

    def argv(self, call: Call) -> list[str]:
        return [
            *_FLAGS, "--tools", ",".join(_WRITING if call.request.is_writable else _READING),
            "--json-schema", json.dumps(dict(call.request.output_schema)),
            *(("--model", call.model) if call.model else ()),
            *(("--effort", self._agent.effort) if self._agent.effort else ()),
            "--", call.prompt,
        ]  # fmt: skip

    def env(self, call: Call) -> dict[str, str]:
        # what it would ask a smaller model goes to the declared one: its price and its caps are known
        models = ("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL")
        return {
            "CLAUDE_CONFIG_DIR": str(call.config_dir),
            "ANTHROPIC_BASE_URL": call.base_url,
            "ANTHROPIC_API_KEY": call.client_key,
            "CLAUDE_CODE_MAX_RETRIES": str(NUM_RETRIES),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
            "DISABLE_AUTOUPDATER": "1",
            # as root it refuses to leave its own permission checks out without this
            "IS_SANDBOX": "1",
            **(dict.fromkeys(models, call.model) if call.model else {}),
        }

    def parse(self, output: str, call: Call) -> Parsed:
        return parse_claude_json(output)
