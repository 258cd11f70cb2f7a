"""A request, a run that waits for its answer in a thread, and what a player writes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vibeserve import spec
from vibeserve.agents.mailbox import ExternalBackend, RequestFolder
from vibeserve.agents.requests import AgentRequest, AgentResult, CallLimits

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["done", "gave_up"]},
        "summary": {"type": "string", "minLength": 3, "maxLength": 2000, "description": "what was changed"},
    },
    "required": ["status", "summary"],
    "additionalProperties": False,
}
OUTPUT = {"status": "done", "summary": "made it faster"}
KEY = "r01a1-implementer"
FILES = {"service.yaml": "argv: []\n", "runtime/model.py": "HIDDEN = 64\n"}
LONG_S = 60.0
"""of waiting for what always comes"""


def make_workspace(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def make_request(tmp_path: Path, **other: Any) -> AgentRequest:
    workspace = tmp_path / "run" / "workspaces" / "r01a1"
    if not workspace.exists():
        make_workspace(workspace)
    given: dict[str, Any] = {
        "role": "implementer", "key": KEY,
        "prompt": f"Edit {workspace}/x in {workspace}. Not {workspace}b or {workspace}.base.",
        "workspace": workspace, "is_writable": True, "output_schema": SCHEMA,
        "limits": CallLimits(timeout_s=60.0, max_turns=1), "record_dir": tmp_path / "run" / "calls" / KEY,
    }  # fmt: skip
    return AgentRequest(**{**given, **other})


def mailbox_of(tmp_path: Path) -> Path:
    return tmp_path / "run" / "mailbox"


def folder_of(tmp_path: Path) -> RequestFolder:
    return RequestFolder(mailbox_of(tmp_path) / KEY)


def make_backend(tmp_path: Path, *, deadline_s: float = 3600.0, **other: Any) -> ExternalBackend:
    declared = spec.Agents(backend="external", deadline_s=deadline_s)
    agent = spec.resolve_role(declared, "implementer")
    return ExternalBackend(agent, declared, mailbox=mailbox_of(tmp_path), **{"poll_s": 0.02, **other})


class Waiting:
    """A run that waits for an answer, in a thread."""

    def __init__(self, backend: ExternalBackend, request: AgentRequest) -> None:
        self._result: AgentResult | Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(backend, request), daemon=True)
        self._thread.start()

    def _run(self, backend: ExternalBackend, request: AgentRequest) -> None:
        try:
            self._result = backend.run(request)
        except Exception as error:  # noqa: BLE001
            self._result = error

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> AgentResult:
        self._thread.join(LONG_S)
        assert not self._thread.is_alive(), "it waits still"
        if isinstance(self._result, Exception):
            raise self._result
        assert self._result is not None
        return self._result


def until(condition: Callable[[], Any]) -> Any:
    """What `condition` gives when it is true at last."""
    end_s = time.monotonic() + LONG_S
    while time.monotonic() < end_s:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it never came")


def opened(tmp_path: Path, *, tries: int = 1) -> RequestFolder:
    """The folder of the request, once it is asked for the `tries`-th time."""
    folder = folder_of(tmp_path)

    def is_asked() -> bool:
        request = folder.read()
        return request is not None and request.tries == tries and request.state == "open"

    until(is_asked)
    return folder


def put_result(folder: RequestFolder, **other: Any) -> None:
    """What a tool that knows the schema alone does: write, then rename."""
    document = {"key": KEY, "tries": 1, "output": OUTPUT, **other}
    put_text(folder, json.dumps(document))


def put_text(folder: RequestFolder, text: str) -> None:
    (folder.path / ".mine").write_text(text)
    (folder.path / ".mine").rename(folder.path / "result.json")
