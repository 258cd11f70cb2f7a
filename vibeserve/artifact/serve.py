"""`vibeserve serve PATH`: start the runtime of an artifact on this machine's loopback, and follow its log."""

from __future__ import annotations

import argparse
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.artifact.example import example_lines, is_openai
from vibeserve.artifact.integrity import verify_bytes
from vibeserve.artifact.manifest import read_manifest
from vibeserve.artifact.open import read_spec, resolve_artifact, unpack_runtime
from vibeserve.core.documents import digest_of, digest_tree, write_document
from vibeserve.core.paths import cache_dir
from vibeserve.errors import InfraError, RefusedError, ServerError, SpecError

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts
    from vibeserve.hosts import Host
    from vibeserve.service import Server
    from vibeserve.spec import Spec, Tier

INTERRUPTED = 130
_POLL_S = 0.2
_MODELS_TIMEOUT_S = 30.0
MAX_PORT = 65535


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve serve`: 130 after Ctrl-C, 0 after SIGTERM; `ServerError` when the server dies."""
    arguments = _parser().parse_args(argv)
    artifact = resolve_artifact(Path(arguments.path))
    refuse_changed(artifact)
    refuse_taken(arguments.port, bind=arguments.host)
    server = start(artifact, port=arguments.port, bind=arguments.host)
    try:
        sys.stdout.write(_greeting(artifact, server, is_json=arguments.is_json))
        sys.stdout.flush()
        status = _follow(server)
    finally:
        server.stop()
    shutil.rmtree(server.run_dir, ignore_errors=True)
    return status


def refuse_changed(artifact: Path) -> None:
    """Raise `RefusedError` when a byte of the artifact is not as it was packaged."""
    refusals = verify_bytes(artifact)
    if refusals:
        lines = "\n".join(f"  {refusal.text}" for refusal in refusals[:10])
        raise RefusedError(f"{artifact} is not served: it is not what was packaged\n{lines}", reasons=refusals)


def refuse_taken(port: int, *, bind: str) -> None:
    """Raise `InfraError` where the port cannot be listened on. Told before the runtime is built and started."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # as servers do: a connection that was just closed does not hold its port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise InfraError(f"port {port} is in use\nnext: name another --port, or none for a free one") from error
            raise InfraError(
                f"port {port} cannot be listened on at {bind}: {error.strerror}\nnext: name another --port"
            ) from error


def start(artifact: Path, *, port: int = 0, bind: str = "127.0.0.1") -> Server:
    """Have the weights, build a copy of the runtime where needed and start it in its wall on the host's network.

    `port` 0 takes a free one; `bind` is the address that it listens on.
    """
    from vibeserve.hosts import get_host
    from vibeserve.sandbox import resources_of
    from vibeserve.service import candidate_launch, start_server
    from vibeserve.spec import Sandbox
    from vibeserve.weights import materialise

    spec = read_spec(artifact)
    host = get_host(spec.host)
    facts = host.probe()
    # the wall is this machine's: an artifact does not choose how it is confined
    own = Sandbox()
    tier = host.resolve_tier(own.tier, allow_none=own.allow_none)
    cpus = _engine_cpus(spec, facts)
    threads = spec.hardware.engine_threads or len(cpus)
    target_dir = Path(spec.target.dir) if spec.target.dir else None
    model = materialise(spec.model, cache=cache_dir(), target_dir=target_dir)
    workspace = prepare_workspace(artifact, spec=spec, host=host, tier=tier, facts=facts, threads=threads)
    launch = candidate_launch(workspace, model_dir=model.path, allow_engines=spec.allow_engines, name="runtime")
    launch = replace(launch, argv=tuple(word.replace("{host}", bind) for word in launch.argv))
    run_dir = workspace.parent / f"run-{os.getpid()}"
    run_dir.mkdir(exist_ok=True)
    return start_server(
        launch, host=host, tier=tier, cpus=cpus, threads=threads, run_dir=run_dir, network="host", port=port,
        resources=resources_of(own, hardware=spec.hardware),
    )  # fmt: skip


def prepare_workspace(
    artifact: Path, *, spec: Spec, host: Host, tier: Tier, facts: HardwareFacts, threads: int
) -> Path:
    """A built copy of `runtime/` in the cache, one per runtime and kind of machine; made anew when damaged."""
    from vibeserve.hardware import identity
    from vibeserve.sandbox import resources_of
    from vibeserve.service import build_workspace
    from vibeserve.spec import Sandbox

    content = digest_tree(artifact / "runtime")
    folder = cache_dir() / "served" / digest_of({"runtime": content, "machine": identity(facts)})[:16]
    workspace, done = folder / "workspace", folder / "built.json"
    with _exclusive(folder):
        if done.is_file() and workspace.is_dir() and digest_tree(workspace) == content:
            return workspace
        sys.stderr.write("preparing the runtime, once per machine\n")
        done.unlink(missing_ok=True)
        shutil.rmtree(workspace, ignore_errors=True)
        unpack_runtime(artifact, workspace)
        build_workspace(
            workspace,
            host=host,
            tier=tier,
            log=folder / "build.log",
            threads=threads,
            timeout_s=spec.sandbox.build_timeout_s,
            resources=resources_of(Sandbox(), hardware=spec.hardware),
            allow_engines=tuple(spec.allow_engines),
        )
        write_document(done, {"schema_version": 1, "artifact": artifact.name})
    return workspace


def _port(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else -1
    if not 0 <= value <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no TCP port: 0 (a free one) to {MAX_PORT}")
    return value


def _parser() -> VerbParser:
    parser = VerbParser("serve", description="Start the runtime of an artifact. Ctrl-C ends it.")
    parser.add_argument("path", metavar="PATH", help="artifact folder, such as artifacts/smollm2_cpu/latest")
    parser.add_argument("--port", type=_port, default=0, metavar="P", help="TCP port (default: a free one)")
    parser.add_argument(
        "--host",
        choices=("127.0.0.1", "0.0.0.0"),
        default="127.0.0.1",
        help="address to listen on (default 127.0.0.1: this machine only)",
    )
    return parser


def _engine_cpus(spec: Spec, facts: HardwareFacts) -> tuple[int, ...]:
    from vibeserve.hardware import resolve_cpus

    try:
        return resolve_cpus(spec.hardware, facts)[0]
    except SpecError:
        declared = spec.hardware.engine_cpus
        sys.stderr.write(f"note: CPUs {declared} of the certified machine are not here; all of this process are used\n")
        return facts.cpus


def _greeting(artifact: Path, server: Server, *, is_json: bool) -> str:
    manifest = read_manifest(artifact)
    if is_json:
        facts: dict[str, Any] = {"schema_version": 1, "url": server.base_url, "startup_s": round(server.startup_s, 3)}
        facts |= {"model": _served_model(server), "target": manifest.target, "plan_id": manifest.plan_id}
        return json.dumps(facts) + "\n"
    base = f"{server.base_url}/v1" if is_openai(artifact) else server.base_url
    lines = [
        f"{manifest.target} {manifest.plan_id} ({manifest.status}, level {manifest.level})",
        f"serving at {base}, ready after {server.startup_s:.1f} s; Ctrl-C ends it",
        "",
        *(f"  {line}" for line in example_lines(artifact, url=server.base_url, model=_served_model(server))),
        "",
    ]
    return "\n".join(lines) + "\n"


def _served_model(server: Server) -> str:
    """Name under which the runtime serves its model, as `/v1/models` tells it."""
    from urllib.request import ProxyHandler, build_opener

    try:
        with build_opener(ProxyHandler({})).open(f"{server.base_url}/v1/models", timeout=_MODELS_TIMEOUT_S) as answer:
            return str(json.load(answer)["data"][0]["id"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ServerError(
            server.name, outcome="died", detail=f"/v1/models did not name a model: {error}", log_tail=server.log_tail()
        ) from error


def _follow(server: Server) -> int:
    """Copy the server's log to stderr until a signal ends it."""
    received: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda code, _: received.append(code))
    log = server.run_dir / f"{server.name}.log"
    with log.open("r", encoding="utf-8", errors="replace") as stream:
        while not received:
            sys.stderr.write(stream.read())
            sys.stderr.flush()
            status = server.poll()
            if status is not None:
                detail = f"it ended with status {status}"
                raise ServerError(server.name, outcome="died", detail=detail, log_tail=server.log_tail())
            time.sleep(_POLL_S)
    return INTERRUPTED if received[0] == signal.SIGINT else 0


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
