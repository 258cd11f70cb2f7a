"""A minimal client of yaml-language-server over stdio: open one document, read diagnostics, ask for completions."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

VARIABLE = "VIBESERVE_YAML_LANGUAGE_SERVER"
SETTINGS = {"yaml": {"schemaStore": {"enable": False}, "validate": True, "completion": True, "hover": True}}
PATIENCE_S = 60.0


def find_server() -> str | None:
    """The server's program: what the environment names, else what is on PATH."""
    return os.environ.get(VARIABLE) or shutil.which("yaml-language-server")


class LanguageServer:
    """One server process; a context manager."""

    def __init__(self, program: str, *, root: Path) -> None:
        self._process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._inbox: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._number = 0
        threading.Thread(target=self._receive, daemon=True).start()
        workspace = {"configuration": True}
        text_document = {
            "completion": {"completionItem": {"documentationFormat": ["markdown", "plaintext"]}},
            "hover": {"contentFormat": ["plaintext"]},
        }
        capabilities = {"workspace": workspace, "textDocument": text_document}
        self.request("initialize", {"processId": None, "rootUri": root.as_uri(), "capabilities": capabilities})
        self._notify("initialized", {})
        self._notify("workspace/didChangeConfiguration", {"settings": SETTINGS})

    def __enter__(self) -> LanguageServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()

    def diagnostics(self, path: Path) -> list[dict[str, Any]]:
        """Open the document and return what the server finds wrong with it."""
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": path.read_text(encoding="utf-8")}
        self._notify("textDocument/didOpen", {"textDocument": document})
        while True:
            message = self._next()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == path.as_uri():
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found

    def completions(self, path: Path, *, line: int, character: int) -> dict[str, dict[str, Any]]:
        """Completion items by label at a position counted from 0."""
        result = self.request("textDocument/completion", self._position(path, line, character))
        return {item["label"]: item for item in result["items"]}

    def hover(self, path: Path, *, line: int, character: int) -> str:
        """The text that is shown over a position counted from 0."""
        result = self.request("textDocument/hover", self._position(path, line, character))
        contents = result["contents"] if result else ""
        return str(contents["value"] if isinstance(contents, dict) else contents)

    def request(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._next()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]

    def _position(self, path: Path, line: int, character: int) -> dict[str, Any]:
        return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}

    def _notify(self, method: str, parameters: dict[str, Any]) -> None:
        self._send({"method": method, "params": parameters})

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _next(self) -> dict[str, Any]:
        """The next message that is for us; the server's own requests are answered on the way."""
        message = self._inbox.get(timeout=PATIENCE_S)
        assert message is not None, "the language server ended"
        if "id" in message and "method" in message:
            is_asked = message["method"] == "workspace/configuration"
            items = message["params"]["items"] if is_asked else []
            result = [SETTINGS.get(item.get("section", ""), {}) for item in items] if is_asked else None
            self._send({"id": message["id"], "result": result})
        return message

    def _receive(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        while header := stream.readline():
            length = 0
            while header.strip():
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
                header = stream.readline()
            self._inbox.put(json.loads(stream.read(length)))
        self._inbox.put(None)
