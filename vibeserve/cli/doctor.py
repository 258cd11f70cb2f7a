"""`vibeserve doctor`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.arguments import VerbParser
from vibeserve.cli.output import write, write_json, write_table
from vibeserve.core.documents import to_data
from vibeserve.errors import InfraError

if TYPE_CHECKING:
    from vibeserve.hardware import HardwareFacts
    from vibeserve.spec import Host

GIB = 1 << 30
NEEDED_DISK_GIB = 4.0
NEEDED_PEERS = ("transformers", "transformers_cb")
"""what `baseline=required` measures"""

AGENT_CLIENTS = {
    "codex": "@openai/codex", "claude": "@anthropic-ai/claude-code", "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
}  # fmt: skip
"""client -> its npm package"""
BUSY_PERCENT = 20.0
"""share of the last ten seconds in which something waited for a CPU; windows that begin above it are discarded"""


class State(Enum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Finding:
    name: str
    state: State
    detail: str
    next: str = ""
    """what to do about it"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Read bandwidth of the engine's CPUs. None where it was not measured, and why not."""

    bandwidth_gb_s: float | None
    is_bandwidth_disturbed: bool = False
    bandwidth_note: str = ""


def main(argv: list[str]) -> int:
    """Say what this machine offers and what is missing; exit 5 when a run could not work."""
    parser = VerbParser("doctor", description="What this machine, or a host, offers, and what is missing.")
    parser.add_argument("words", nargs="*", metavar="host=NAME host.KEY=VALUE", help="a host in place of this machine")
    arguments = parser.parse_intermixed_args(argv)
    if arguments.words:
        host = _declared_host(arguments.words)
        if host.kind != "local":
            return _host_doctor(host, is_json=arguments.is_json)
    from vibeserve.hardware import probe

    facts = probe()
    reading = _read_bandwidth(facts)
    findings = [*_software(), *_machine(facts, reading), *_walls(), *_peers(), *_agents()]
    return _tell(findings, hardware=to_data(facts) | to_data(reading), is_json=arguments.is_json)


def _declared_host(words: list[str]) -> Host:
    from vibeserve.config.host_words import compose_host

    return compose_host(words)


def _host_doctor(host: Host, *, is_json: bool) -> int:
    from vibeserve.cli.host_checks import host_findings

    facts, findings = host_findings(host)
    return _tell(findings, hardware=to_data(facts), is_json=is_json)


def _tell(findings: list[Finding], *, hardware: Any, is_json: bool) -> int:
    is_ok = all(finding.state is not State.MISSING for finding in findings)
    if is_json:
        write_json({"schema_version": 1, "ok": is_ok, "hardware": hardware, "checks": findings})
    else:
        write_table([(finding.name, finding.state.value, finding.detail) for finding in findings])
        for finding in findings:
            if finding.next:
                write(f"next, {finding.name}: {finding.next}")
    return 0 if is_ok else InfraError.exit_code


def _software() -> Iterator[Finding]:
    from vibeserve.hardware import probe_torch

    yield Finding(name="python", state=State.OK, detail=f"{sys.version.split()[0]} at {sys.executable}")
    torch = probe_torch()
    detail = f"{torch.version}, {torch.cpu_capability}, {torch.num_threads} threads"
    yield Finding(name="torch", state=State.OK, detail=detail)
    yield _tool("git", "checkpoints are git commits", "install git", state=State.MISSING)
    yield _profilers()
    yield _tool("g++", "components in C++ are compiled by it", "install g++; without it those components are skipped")


def _profilers() -> Finding:
    """A run without them plans by the servers' own counters and cannot say whether a new path ran."""
    from vibeserve.profiles import LinuxPerf, PySpy

    missing = [text for text in (PySpy().why_not(), LinuxPerf().why_not()) if text]
    if not missing:
        return Finding(name="profilers", state=State.OK, detail="py-spy for Python, perf for native symbols")
    whats, nexts = zip(*(text.split("; next: ", 1) for text in missing), strict=True)
    state = State.WARNING if PySpy().why_not() else State.OK
    return Finding(name="profilers", state=state, detail="; ".join(whats), next="; ".join(nexts))


def _tool(name: str, why: str, advice: str, *, state: State = State.WARNING) -> Finding:
    path = shutil.which(name)
    if path:
        return Finding(name=name, state=State.OK, detail=path)
    return Finding(name=name, state=state, detail=f"not found; {why}", next=advice)


def _read_bandwidth(facts: HardwareFacts) -> Reading:
    """Whoever measures now is neither disturbed by this reading nor waited for: a certification takes an hour."""
    from vibeserve.benchmark.disturbance import MAX_PRESSURE
    from vibeserve.benchmark.sentinel import pressure_total_s
    from vibeserve.core.paths import lease_dir
    from vibeserve.hardware import measure_bandwidth_gb_s, resolve_cpus
    from vibeserve.lease import DeviceLease, devices_of, lease_rows
    from vibeserve.progress import LineProgress
    from vibeserve.spec import Hardware

    for row in lease_rows(lease_dir()):
        if row["device"] == "cpu":
            used = "is held" if row["is_held"] else "is waited for"
            note = f"not measured: the CPU {used} by run {row['owner']['run']} ({row['what']}); vibeserve status"
            return Reading(bandwidth_gb_s=None, bandwidth_note=note)
    engine, _ = resolve_cpus(Hardware(name="cpu"), facts)
    lease = DeviceLease(
        devices_of(Hardware(name="cpu"), facts), root=lease_dir(), run=f"doctor-{os.getpid()}",
        progress=LineProgress(sys.stderr),
    )  # fmt: skip
    with lease.exclusive("read bandwidth"):
        waited_s, started_s = pressure_total_s(), time.monotonic()
        found = measure_bandwidth_gb_s(engine)
        share = (pressure_total_s() - waited_s) / (time.monotonic() - started_s)
    note = "other work waited for cores meanwhile: the true rate may be higher" if share > MAX_PRESSURE else ""
    return Reading(bandwidth_gb_s=found, is_bandwidth_disturbed=bool(note), bandwidth_note=note)


def _bandwidth(reading: Reading) -> Finding:
    if reading.bandwidth_gb_s is None:
        return Finding(name="bandwidth", state=State.WARNING, detail=reading.bandwidth_note, next="ask again later")
    note = f" ({reading.bandwidth_note})" if reading.bandwidth_note else ""
    detail = f"{reading.bandwidth_gb_s:.1f} GB/s read by the engine's CPUs{note}"
    return Finding(name="bandwidth", state=State.OK, detail=detail)


def _machine(facts: HardwareFacts, reading: Reading) -> Iterator[Finding]:
    from vibeserve.core.paths import cache_dir
    from vibeserve.hardware import resolve_cpus
    from vibeserve.spec import Hardware

    engine, client = resolve_cpus(Hardware(name="cpu"), facts)
    yield Finding(name="cpu", state=State.OK, detail=f"{facts.cpu_model}, {facts.num_cpus} CPUs")
    if set(engine) & set(client):
        advice = "two CPUs or more: the load generator disturbs what it measures"
        yield Finding(name="cores", state=State.WARNING, detail="server and load generator share one CPU", next=advice)
    else:
        yield Finding(name="cores", state=State.OK, detail=f"server {len(engine)}, load generator {len(client)}")
    yield Finding(name="memory", state=State.OK, detail=f"{facts.memory_gib:.1f} GiB")
    yield _bandwidth(reading)
    yield Finding(name="huge pages", state=State.OK, detail=facts.transparent_huge_pages or "none")
    yield _pressure()
    gpus = ", ".join(f"{gpu.name} (sm {gpu.sm}, {gpu.memory_gib:.0f} GiB)" for gpu in facts.gpus)
    yield Finding(name="gpu", state=State.OK, detail=gpus or f"none: {facts.gpu_note}")
    yield _disk(cache_dir())


def _pressure() -> Finding:
    path = Path("/proc/pressure/cpu")
    if not path.is_file():
        return Finding(name="pressure", state=State.OK, detail="this kernel does not report it")
    words = dict(word.split("=") for word in path.read_text(encoding="ascii").split("\n")[0].split()[1:])
    percent = float(words["avg10"])
    detail = f"{percent:.0f}% of the last ten seconds something waited for a CPU"
    if percent > BUSY_PERCENT:
        return Finding(name="pressure", state=State.WARNING, detail=detail, next="stop what else runs before measuring")
    return Finding(name="pressure", state=State.OK, detail=detail)


def _disk(cache: Path) -> Finding:
    existing = next(folder for folder in (cache, *cache.parents) if folder.is_dir())
    free_gib = shutil.disk_usage(existing).free / GIB
    detail = f"{free_gib:.0f} GiB free for {cache}"
    if not os.access(existing, os.W_OK):
        detail = f"{existing} is not writable"
        return Finding(name="cache", state=State.MISSING, detail=detail, next="set VIBESERVE_CACHE")
    if free_gib < NEEDED_DISK_GIB:
        return Finding(name="cache", state=State.WARNING, detail=detail, next=f"{NEEDED_DISK_GIB:.0f} GiB are needed")
    return Finding(name="cache", state=State.OK, detail=detail)


def _walls() -> Iterator[Finding]:
    from vibeserve.sandbox import probe_limits, probe_tiers
    from vibeserve.sandbox.cgroups import SIGNAL
    from vibeserve.sandbox.resources import gpu_devices
    from vibeserve.sandbox.tiers import FREEZER, MEMORY_COUNT

    tiers = {tier: text for tier, text in probe_tiers().items() if tier != "C"}
    usable = [tier for tier, text in tiers.items() if text == "available"]
    for tier, text in tiers.items():
        state = State.OK if tier in usable else State.WARNING if usable else State.MISSING
        advice = "" if usable else "install bubblewrap, or a kernel with Landlock (6.7); last resort: sandbox=none"
        yield Finding(name=f"sandbox tier {tier}", state=state, detail=text, next=advice)
    limits = probe_limits()
    freezer, counted = limits.pop(FREEZER), limits.pop(MEMORY_COUNT)
    unlimited = [name for name, how in limits.items() if how.startswith("nothing")]
    yield Finding(
        name="sandbox limits",
        state=State.WARNING if unlimited else State.OK,
        detail="; ".join(f"{name}: {how}" for name, how in limits.items()),
        next="run as a plain user: without a control group root may start any number of processes" if unlimited else "",
    )
    is_by_signal = freezer == SIGNAL
    yield Finding(
        name="sandbox stop",
        state=State.WARNING if is_by_signal else State.OK,
        detail=f"freezer: {freezer}; peak_memory is counted by: {counted}",
        next="run below a control group of yours: systemd-run --user --scope -p Delegate=yes" if is_by_signal else "",
    )
    if nodes := gpu_devices():
        detail = f"passed to the servers of GPU targets: {', '.join(map(str, nodes))}"
        yield Finding(name="sandbox gpus", state=State.OK, detail=detail)


def _peers() -> Iterator[Finding]:
    """Peers of the default baselines must be here; the others are skipped with their reason where they are not."""
    from vibeserve.baselines import PEERS

    for name, peer in PEERS.items():
        version = peer.installed_version()
        if version is not None:
            yield Finding(name=f"peer {name}", state=State.OK, detail=version)
        else:
            state = State.MISSING if name in NEEDED_PEERS else State.WARNING
            advice = peer.install_command
            yield Finding(name=f"peer {name}", state=state, detail="not installed", next=advice)


def _agents() -> Iterator[Finding]:
    """Clients of command-line agents: nothing needs them but `agents=NAME`."""
    from vibeserve.agents.clients.program import find_program
    from vibeserve.errors import AgentInfraError

    for name, package in AGENT_CLIENTS.items():
        try:
            program = find_program(name, install=f"npm install -g {package}")
        except AgentInfraError as error:
            install = str(error).rpartition("next: ")[2]
            detail = f"not installed; only agents={name} needs it: {install}"
            yield Finding(name=f"agent {name}", state=State.OK, detail=detail)
        else:
            yield Finding(name=f"agent {name}", state=State.OK, detail=program.argv[-1])
