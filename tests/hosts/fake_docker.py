"""A docker daemon's API on a unix socket, as far as a host uses it. Its containers are processes of this machine.

Paths, fields and the frames of a stream are those of the Docker Engine API v1.44.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import socketserver
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse


class Daemon:
    """Its state, and the server in front of it."""

    def __init__(self, path: Path, *, images: tuple[str, ...]) -> None:
        self.path, self.images = path, images
        self.containers: dict[str, dict[str, Any]] = {}
        self.commands: dict[str, dict[str, Any]] = {}
        self.numbers = itertools.count()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.lock = threading.Lock()
        daemon = self

        class Handler(_Handler):
            state = daemon

        self._server = _UnixServer(str(path), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def remove(self, container: str) -> None:
        """What runs in it is killed."""
        with self.lock:
            self.containers.pop(container, None)
            gone = [command for command in self.commands.values() if command["container"] == container]
        for command in gone:
            if command["process"] is not None and command["process"].poll() is None:
                os.killpg(command["process"].pid, signal.SIGKILL)

    def close(self) -> None:
        for container in list(self.containers):
            self.remove(container)
        self._server.shutdown()
        self._server.server_close()


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, _ = super().get_request()
        return connection, ("local", 0)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Daemon

    def do_GET(self) -> None:
        path, query = self._asked()
        if path == "/version":
            self._answer(200, {"ApiVersion": "1.44", "MinAPIVersion": "1.24", "Version": "fake"})
        elif path == "/containers/json":
            (label,) = json.loads(query["filters"][0])["label"]
            name, _, value = label.partition("=")
            rows = [each for each in self.state.containers.values() if each["Labels"].get(name) == value]
            self._answer(200, [{"Id": each["Id"]} for each in rows])
        elif path.startswith("/images/"):
            image = path.removeprefix("/images/").removesuffix("/json")
            is_there = image in self.state.images
            told = {"Id": image} if is_there else {"message": f"No such image: {image}"}
            self._answer(200 if is_there else 404, told)
        elif path.startswith("/exec/"):
            process = self.state.commands[path.split("/")[2]]["process"]
            self._answer(200, {"ExitCode": process.wait(30)})
        elif path.split("/")[2] in self.state.containers:
            self._answer(200, {"Id": path.split("/")[2], "State": {"Running": True}})
        else:
            self._answer(404, {"message": f"No such container: {path.split('/')[2]}"})

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        self.state.remove(path.split("/")[2])
        self._answer(204, None)

    def do_POST(self) -> None:
        path, _ = self._asked()
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
        parts = path.split("/")
        if path == "/containers/create":
            self._create(body)
        elif parts[3] == "attach":
            self._hold(parts[2])
        elif parts[1] == "containers" and parts[3] == "exec":
            identity = f"e{len(self.state.commands):063x}"
            self.state.commands[identity] = {"container": parts[2], "argv": body["Cmd"], "process": None}
            self._answer(201, {"Id": identity})
        elif parts[1] == "exec":
            self._run(self.state.commands[parts[2]])
        else:
            self._answer(204, None)

    def _create(self, body: dict[str, Any]) -> None:
        if body["Image"] not in self.state.images:
            self._answer(404, {"message": f"No such image: {body['Image']}"})
            return
        identity = f"c{next(self.state.numbers):063x}"
        self.state.containers[identity] = {"Id": identity, **body}
        self._answer(201, {"Id": identity, "Warnings": []})

    def _hold(self, container: str) -> None:
        """Standard input of the container's own command, `cat`: with its end the container is gone."""
        self._hijack()
        while self.connection.recv(1 << 12):
            pass
        self.state.remove(container)

    def _run(self, command: dict[str, Any]) -> None:
        self._hijack()
        process = subprocess.Popen(
            command["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        )  # fmt: skip
        command["process"] = process
        sending = threading.Lock()

        def frames(kind: int, stream: Any) -> None:
            while data := os.read(stream.fileno(), 1 << 16):
                with sending:
                    self.connection.sendall(struct.pack(">BxxxL", kind, len(data)) + data)

        pairs = ((1, process.stdout), (2, process.stderr))
        readers = [threading.Thread(target=frames, args=pair, daemon=True) for pair in pairs]
        for reader in readers:
            reader.start()
        threading.Thread(target=self._upwards, args=(process,), daemon=True).start()
        for reader in readers:
            reader.join()

    def _upwards(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin as given:
            while data := self.connection.recv(1 << 16):
                given.write(data)
                given.flush()

    def _hijack(self) -> None:
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        self.wfile.flush()
        self.close_connection = True

    def _asked(self) -> tuple[str, dict[str, list[str]]]:
        asked = urlparse(self.path)
        path = asked.path
        if path.startswith("/v1."):
            path = "/" + path.split("/", 2)[2]
        return path, parse_qs(asked.query)

    def _answer(self, status: int, document: Any) -> None:
        data = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is said."""
