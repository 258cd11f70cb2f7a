"""A machine that is reached by pipes. It builds, serves and is measured; the controller keeps agents, keys, journal,
decisions and what is right."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve import spec
from vibeserve.core.documents import from_data, to_data
from vibeserve.errors import InfraError
from vibeserve.hosts.connection import (
    CALL_TIMEOUT_S,
    DEFAULT_ROOT,
    PROGRAM,
    Connection,
    HostLostError,
    not_found,
    shell_command,
)
from vibeserve.hosts.idle import Idle
from vibeserve.hosts.trees import Tree, framework_tree, receiver_source, tree_of, write_objects
from vibeserve.hosts.ways import Way
from vibeserve.sandbox import Finished, Process, Wall

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts

RUN_CHARS = 120
HELLO_TIMEOUT_S = 120.0


class PipedHost:
    """See `port.Host`. Connected at the first call; a connection that was lost is made anew by the next one.

    Paths given to it are the controller's: what lies there is sent once by content, and words that name it are
    replaced by where it lies on the host.
    """

    kind = ""

    def __init__(self, declared: spec.Host, *, way: Way) -> None:
        self._way = way
        self._generation = way.generation
        self._python = declared.python or "python3"
        self._root_text = declared.root or DEFAULT_ROOT
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self._root = ""
        self._framework = ""
        self._placed: dict[str, str] = {}
        """folder here and its digest -> folder there"""
        self.run_name = "none"
        """of the run whose processes the program there belongs to; the next connection sweeps what is left of it"""
        self.on_event: Callable[[dict[str, Any]], None] = lambda event: None
        self.num_reconnects = 0
        self._idle = Idle(way.idle_s, self.close)

    # -- the port

    def probe(self) -> HardwareFacts:
        from vibeserve.hardware import HardwareFacts

        return from_data(HardwareFacts, self.call("probe"))

    def bandwidth_gb_s(self, cpus: Sequence[int]) -> float:
        return float(self.call("bandwidth_gb_s", cpus=list(cpus)))

    def resolve_tier(self, declared: spec.Tier, *, allow_none: bool) -> spec.Tier:
        return spec.Tier(self.call("resolve_tier", declared=declared.value, allow_none=allow_none))

    def lease_port(self) -> int:
        return int(self.call("lease_port"))

    def spawn(self, argv: Sequence[str], *, wall: Wall, log: Path, record_dir: Path | None = None) -> Process:
        raise InfraError(f"{self.where} starts servers and bounded commands; nothing else is started there")

    def run(self, argv: Sequence[str], *, wall: Wall, log: Path, timeout_s: float) -> Finished:
        """The command in a copy of what the wall names; what it leaves in `wall.writable` is fetched back here."""
        self.placed(*wall.read_only, wall.workdir)
        given = {"argv": self.there(list(argv)), "wall": self.there(to_data(replace(wall, python=None)))}
        answer = self.call("run", log=log.name, timeout_s=timeout_s, **given)
        for folder in wall.writable:
            self._fetch(folder, answer["files"].get(self.there(str(folder)), {}))
        self.forget(wall.workdir)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(answer["log"])
        return from_data(Finished, answer["finished"])

    def join_argv(self, process: Process, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> list[str]:
        """A child of ours runs here and reaches a server by its forwarded address."""
        return list(argv)

    def sweep_orphans(self, run_dir: Path) -> int:
        """Name the run; the program there kills what an earlier one of the same run left. Returns how many died."""
        self.run_name = re.sub(r"[^A-Za-z0-9_.-]", "-", "-".join(run_dir.parts[-2:]))[-RUN_CHARS:]
        with self._lock:
            self._close()
            self._way.named(self.run_name)
            return int(self.call("swept"))

    # -- beyond the port

    @property
    def where(self) -> str:
        return self._way.where

    @property
    def is_line_buffered(self) -> bool:
        """The way hands output on by whole lines: what is no text of lines has to be made one."""
        return self._way.is_line_buffered

    @property
    def root(self) -> str:
        """The host's folder of ours."""
        self._connected()
        return self._root

    def call(self, method: str, **given: Any) -> Any:
        """What our program there answers to `method` (`remote.agent`). HostLostError where it cannot be reached."""
        limit_s = max(CALL_TIMEOUT_S, 2 * float(given.get("timeout_s", 0.0)))
        with self._idle.busy(method):
            return self._connected().call(method, given, limit_s=limit_s)

    def placed(self, *folders: Path) -> None:
        """Have the content of these folders (and files) on the host, each as a tree."""
        wanted: dict[str, Tree] = {}
        for folder in dict.fromkeys(folders):
            if not folder.exists() or self._is_known(folder):
                continue
            tree = tree_of(folder) if folder.is_dir() else tree_of(folder.parent, only=[folder.name])
            wanted[str(folder)] = tree
        if wanted:
            self._send(list(wanted.values()))
        for name, tree in wanted.items():
            suffix = "" if Path(name).is_dir() else f"/{Path(name).name}"
            self._placed[name] = f"{self._root}/trees/{tree.digest}{suffix}"

    def placed_together(self, folder: Path, names: Sequence[str]) -> str:
        """One tree of these entries of a folder; where it lies there."""
        if str(folder) not in self._placed:
            tree = tree_of(folder, only=names)
            self._send([tree])
            self._placed[str(folder)] = f"{self._root}/trees/{tree.digest}"
        return self._placed[str(folder)]

    @property
    def framework(self) -> str:
        """Folder there that our own package is imported from."""
        self._connected()
        return f"{self._root}/trees/{self._framework}"

    @property
    def python(self) -> str:
        """Interpreter there."""
        self._connected()
        return self._python

    def there(self, data: Any) -> Any:
        """`data` with every path that was placed replaced by the host's; the interpreter is the host's own."""
        if isinstance(data, dict):
            return {key: self.there(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.there(item) for item in data]
        return self._word_there(data) if isinstance(data, str) else data

    def forget(self, folder: Path) -> None:
        """Its content has changed: it is sent again when it is needed."""
        self._placed = {name: place for name, place in self._placed.items() if not Path(name).is_relative_to(folder)}

    def close(self) -> None:
        """End the program there, and give back what was held for it."""
        with self._lock:
            self._close()
            self._way.release()

    def child_argv(self, argv: Sequence[str]) -> list[str]:
        """The local command that runs `argv` there, its pipes being ours; it ends with its connection."""
        return self._way.argv(shell_command(argv))

    # -- inside

    def _is_known(self, folder: Path) -> bool:
        return any(folder.is_relative_to(name) for name in self._placed)

    def _word_there(self, word: str) -> str:
        if word == sys.executable:
            return self._python
        for name in sorted(self._placed, key=len, reverse=True):
            if word == name or word.startswith(f"{name}/"):
                return self._placed[name] + word[len(name) :]
        return word

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is not None and self._connection.is_alive:
                return self._connection
            was_connected = self._connection is not None
            self._way.argv(":")  # from here on, what has to be held is held
            if self._generation != self._way.generation or not self._framework:
                # perhaps another machine: what was sent is looked for again
                self._placed, self._generation = {}, self._way.generation
                self._framework = self._send([framework_tree()])[0]
            tree = f"{self._root}/trees/{self._framework}"
            env = {"PYTHONPATH": tree, "PYTHONDONTWRITEBYTECODE": "1", "VIBESERVE_CACHE": f"{self._root}/cache"}
            argv = [self._python, "-P", "-m", PROGRAM, self._root, self.run_name]
            command = shell_command(argv, env=env, folder=self._root)
            self._connection = Connection(
                self._way.argv(command), where=self.where, doctor=self._way.doctor,
                on_event=lambda event: self.on_event(event),
            )  # fmt: skip
            self._python = str(self._connection.call("hello", {}, limit_s=HELLO_TIMEOUT_S)["python"])
            self.num_reconnects += was_connected
            return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, trees: Sequence[Tree]) -> list[str]:
        """Send what is missing there of `trees`; their digests."""
        process = self._receiver()
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            process.stdin.write(json.dumps({tree.digest: tree.document() for tree in trees}).encode() + b"\n")
            process.stdin.flush()
            told = json.loads(process.stdout.readline() or b"null")
            if told is not None:
                self._root = told["root"]
                if told["missing"]:
                    write_objects(process.stdin, trees, wanted=told["missing"])
                process.stdin.close()
                told = json.loads(process.stdout.readline() or b"null")
        except (OSError, ValueError):
            told = None
        said = process.stderr.read().decode(errors="replace").strip()
        if process.wait() != 0 or told is None:
            raise HostLostError(
                f"nothing can be sent to {self.where}: {said.splitlines()[-1] if said else 'it said nothing'}\n"
                f"next: {self._way.doctor} says what is missing there"
            )
        return [tree.digest for tree in trees]

    def _receiver(self) -> subprocess.Popen[bytes]:
        argv = self._way.argv(shell_command([self._python, "-c", receiver_source(), self._root_text]))
        try:
            return subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
            )
        except FileNotFoundError:
            raise not_found(argv[0]) from None

    def _fetch(self, folder: Path, files: dict[str, str]) -> None:
        for name, content in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(base64.b64decode(content))
