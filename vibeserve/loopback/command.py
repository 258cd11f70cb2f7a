"""`invoke agents-loopback`: real clients of agents through whole rounds, against a model that follows a script.

Each client gets a project of its own; the run there is the product's, gates and certification included. The recording
that it leaves is replayed, and must give the same tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vibeserve.agents.clients.program import find_program
from vibeserve.arguments import VerbParser
from vibeserve.core.documents import to_data
from vibeserve.errors import AgentInfraError, SpecError
from vibeserve.loopback.scripts import two_rounds
from vibeserve.loopback.server import ScriptedServer
from vibeserve.recordings import IN_ARTIFACT, RECORDING

CLIENTS = ("openai", "codex", "claude")
RUN_TIMEOUT_S = 3600.0
END_S = 60.0
"""that a run which takes too long has to tidy up"""
TIMED_OUT = 124
"""its exit status then, as timeout(1) has it"""
ROUNDS = ("budget.rounds=2", "budget.attempts=2")
KEPT = ("baseline", "accepted")


@dataclass(frozen=True, kw_only=True)
class ClientRow:
    """What one client did."""

    client: str
    version: str
    installed: bool
    why_not: str = ""
    exit_code: int = 0
    status: str = ""
    """of the artifact: certified, uncertified"""
    rounds: int = 0
    accepted: int = 0
    refused: int = 0
    """candidates, those that another attempt followed included"""
    tokens: int = 0
    """metered by us"""
    usd: float = 0.0
    requests: int = 0
    """that reached the model"""
    ratio: float | None = None
    """headline against the first baseline that has one"""
    tree: str = ""
    """digest of the winner's tree"""
    replayed_tree: str = ""
    """the same after `agents=replay`; empty where it was not tried"""
    seconds: float = 0.0
    tail: str = ""
    """of a run that failed"""


def main(argv: Sequence[str]) -> int:
    """Command line of `invoke agents-loopback`."""
    parser = VerbParser(
        "agents-loopback", is_task=True, description="Real clients of agents against a scripted model on loopback."
    )
    parser.add_argument("--target", default="tiny_cpu", help="target to build (default: tiny_cpu)")
    parser.add_argument("--only", default=",".join(CLIENTS), help=f"clients, of {', '.join(CLIENTS)}")
    parser.add_argument("--real-clock", action="store_true", help="decide rounds on measured time, not on forecasts")
    parser.add_argument("--no-replay", action="store_true", help="do not replay the recordings")
    parser.add_argument("--faults", action="store_true", help="one call for everything that may go wrong, no rounds")
    parser.add_argument(
        "--timeout-s", type=float, default=RUN_TIMEOUT_S, metavar="N", help="of one run (default: %(default)g)"
    )
    parser.add_argument("--keep", metavar="DIR", help="keep the projects in DIR/<client>")
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="further overrides of the runs")
    arguments = parser.parse_intermixed_args(argv)
    clients = tuple(arguments.only.split(","))
    unknown = [name for name in clients if name not in CLIENTS]
    if unknown:
        raise SpecError(f"agents-loopback: no client '{unknown[0]}'", problems=[f"valid: {', '.join(CLIENTS)}"])
    if arguments.faults:
        return _faults(clients, is_json=arguments.is_json)
    settings = Settings(
        target=arguments.target, is_real=arguments.real_clock, is_replayed=not arguments.no_replay,
        overrides=tuple(arguments.overrides), timeout_s=arguments.timeout_s,
        keep=Path(arguments.keep).resolve() if arguments.keep else None,
    )  # fmt: skip
    rows = [play(client, settings) for client in clients]
    if arguments.is_json:
        document = {"schema_version": 1, "target": settings.target, "clients": [to_data(row) for row in rows]}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(rows)) + "\n")
    return 0 if all(row.exit_code == 0 for row in rows if row.installed) else 3


def _faults(clients: Sequence[str], *, is_json: bool) -> int:
    from vibeserve.loopback.faults import fault_lines, fault_rows

    rows = list(fault_rows([client for client in clients if client_version(client)]))
    document = {"schema_version": 1, "faults": [to_data(row) for row in rows]}
    text = json.dumps(document, indent=2) if is_json else "\n".join(fault_lines(rows))
    sys.stdout.write(text + "\n")
    return 0


@dataclass(frozen=True, kw_only=True)
class Settings:
    target: str = "tiny_cpu"
    is_real: bool = False
    is_replayed: bool = True
    overrides: tuple[str, ...] = ()
    timeout_s: float = RUN_TIMEOUT_S
    """of one run"""
    keep: Path | None = None


def play(client: str, settings: Settings) -> ClientRow:
    """Two rounds with one client."""
    version = client_version(client)
    if not version:
        why = f"{client} is not installed"
        return ClientRow(client=client, version="", installed=False, why_not=why)
    started_s = time.monotonic()
    with TemporaryDirectory(prefix=f"vibeserve-{client}-") as scratch, ScriptedServer(script=two_rounds) as server:
        project = settings.keep / client if settings.keep else Path(scratch) / client
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir(parents=True)
        address = server.root_url if client == "claude" else server.base_url
        agents = (f"agents={client}", f"agents.base_url={address}", "agents.model=scripted")
        done = _build(settings, *agents, cwd=project)
        row = _row(client, version, done, project / "artifacts" / settings.target / "latest")
        row = replace(row, requests=len(server.requests), seconds=round(time.monotonic() - started_s, 1))
        if row.exit_code == 0 and settings.is_replayed:
            row = _replayed(row, settings, project)
        return row


def client_version(client: str) -> str:
    """As the client says it; empty where it is not installed."""
    from importlib import metadata

    if client == "openai":
        return metadata.version("openai")
    try:
        program = find_program(client, install="")
    except AgentInfraError:
        return ""
    with TemporaryDirectory(prefix="vibeserve-home-") as home:
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "CODEX_HOME": home}
        done = subprocess.run(
            [*program.argv, "--version"], capture_output=True, text=True, check=False, timeout=60.0, env=environment
        )
    return (done.stdout.strip().splitlines() or ["unknown"])[0]


def _build(settings: Settings, *overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    clock = () if settings.is_real else ("evaluation.clock=fake",)
    argv = [
        sys.executable, "-m", "vibeserve.cli.main", f"+target={settings.target}", *ROUNDS, *clock, *overrides,
        *settings.overrides,
    ]  # fmt: skip
    environment = {**os.environ, "OPENAI_API_KEY": "sk-loopback", "ANTHROPIC_API_KEY": "sk-loopback"}
    with subprocess.Popen(
        argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            out, err = process.communicate(timeout=settings.timeout_s)
        except subprocess.TimeoutExpired:
            process.terminate()  # it stops its servers and gives back its lease
            try:
                out, err = process.communicate(timeout=END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            told = f"{err}\nit did not end within {settings.timeout_s:g} s; --timeout-s gives it more"
            return subprocess.CompletedProcess(argv, TIMED_OUT, out, told)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _row(client: str, version: str, done: subprocess.CompletedProcess[str], artifact: Path) -> ClientRow:
    row = ClientRow(client=client, version=version, installed=True, exit_code=done.returncode)
    if not (artifact / "manifest.json").is_file():
        return replace(row, tail=(done.stdout + done.stderr)[-1500:])
    manifest = json.loads((artifact / "manifest.json").read_text(encoding="utf-8"))
    later = [entry for entry in manifest["rounds"] if entry["number"] > 0]
    recording = _recording(artifact)
    attempts = [each["record"] for each in recording["rounds"][1:]]
    accepted = sum(entry["outcome"] == "accepted" for entry in later)
    ratios = [base["ratio"] for row in manifest["metrics"] for base in row["baselines"] if base.get("ratio")]
    return replace(
        row, status=manifest["status"], rounds=len(later), accepted=accepted,
        refused=sum(record["attempts"] for record in attempts) - accepted,
        tokens=int(manifest["usage"]["tokens"]), usd=manifest["usage"]["usd"], tree=_tree(recording),
        ratio=ratios[0] if ratios else None, tail="" if done.returncode == 0 else (done.stdout + done.stderr)[-1500:],
    )  # fmt: skip


def _replayed(row: ClientRow, settings: Settings, project: Path) -> ClientRow:
    source = project / "artifacts" / settings.target / "latest"
    again = project / "again"
    again.mkdir()
    done = _build(settings, "agents=replay", f"agents.recording={source.resolve()}", cwd=again)
    artifact = again / "artifacts" / settings.target / "latest"
    if not (artifact / "manifest.json").is_file():
        return replace(row, exit_code=done.returncode or 3, tail=(done.stdout + done.stderr)[-1500:])
    return replace(row, replayed_tree=_tree(_recording(artifact)), exit_code=done.returncode)


def _recording(artifact: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((artifact / IN_ARTIFACT / RECORDING).read_text(encoding="utf-8"))
    return document


def _tree(recording: dict[str, Any]) -> str:
    kept = [each for each in recording["rounds"] if each["record"]["outcome"] in KEPT]
    return str(kept[-1]["tree_digest"])


def _lines(rows: Sequence[ClientRow]) -> Iterator[str]:
    for row in rows:
        if not row.installed:
            yield f"{row.client:8} skipped: {row.why_not}"
            continue
        same = "same tree" if row.tree == row.replayed_tree else "ANOTHER TREE"
        rounds = f"{row.rounds} rounds, {row.accepted} accepted, {row.refused} refused"
        spent = f"{row.tokens} tokens in {row.requests} requests, {row.seconds:.0f} s"
        replayed = f"; replayed: {same}" if row.replayed_tree else ""
        yield f"{row.client:8} {row.version}: {row.status or 'no artifact'}, {rounds}, {spent}{replayed}"
        yield from (f"    | {line}" for line in row.tail.splitlines()[-12:])
