"""Each assembly through the gates that judge candidates, then tokens a second, roofline share and memory."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.device_check.shapes import ASSEMBLIES, CONCURRENCIES, Shape, shape_for
from vibeserve.arguments import VerbParser
from vibeserve.benchmark.metrics import window_metrics
from vibeserve.core.documents import write_document
from vibeserve.core.paths import cache_dir, data_dir
from vibeserve.errors import InfraError, RefusedError
from vibeserve.exploits.scoring import Scorer
from vibeserve.exploits.served import CLEANLINESS_GATE, REPLY_GATES, Grounds, judge_workspace
from vibeserve.hardware import HardwareFacts, probe
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.skills import assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.weights import ModelDir, materialise
from vibeserve.workloads import Pool

DOCUMENT = "device_check.json"
SEED = 11
LIMIT_S = 500.0
"""of the whole, within the nine minutes that the script allows"""
GATES = frozenset({"audit", "probe", CLEANLINESS_GATE, *REPLY_GATES})
LEFT_OUT = "gate timing: half a minute an assembly of watching what is held back for the windows"
MAX_MEMORY_ERROR = 0.10
"""of the plan's forecast"""
NVIDIA_SMI = Path("/usr/bin/nvidia-smi")
POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class LoadRow:
    """Output throughput under one closed loop, and its share of what the plan's roofline allows."""

    load: str
    output_tokens_per_s: float
    ceiling_tokens_per_s: float | None
    roofline_share: float | None


@dataclass(frozen=True, kw_only=True)
class AssemblyRow:
    """One assembly. Memory in GiB: of the device where it is one, else of the processes."""

    assembly: str
    components: tuple[str, ...]
    accepted: bool
    refusals: tuple[str, ...]
    stages: tuple[str, ...]
    num_replies: int
    loads: tuple[LoadRow, ...] = ()
    peak_memory_gib: float | None = None
    forecast_gib: float | None = None
    is_memory_within: bool | None = None
    """of 10% of the forecast; None where nothing was measured"""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DeviceCheck:
    """Document: what ran, where, and what the time did not allow."""

    device: str
    gpu: str
    driver: str
    sandbox_tier: str
    device_nodes: tuple[str, ...]
    """that a server sees behind its wall"""
    model: str
    num_parameters: int
    bandwidth_gb_s: float
    rows: tuple[AssemblyRow, ...] = ()
    not_run: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    schema_version: int = 1


def main(argv: Sequence[str]) -> int:
    """0 when every assembly was accepted; RefusedError otherwise, after the document is written."""
    parser = VerbParser("device_check", is_task=True, description="The CUDA components on this machine's device.")
    parser.add_argument("--out", type=Path, required=True, help=f"folder of {DOCUMENT}")
    parser.add_argument("--layers", type=_positive, default=32, help="of the Llama-8B shape; a CPU serves a tiny one")
    parser.add_argument("--only", default=",".join(ASSEMBLIES), help="assemblies, of eager,graphs,paged")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="begin no assembly after so many seconds")
    arguments = parser.parse_args(argv)
    chosen = [name for name in ASSEMBLIES if name in arguments.only.split(",")]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="vibeserve-device-") as scratch:
        done = _check(
            chosen, out=arguments.out, layers=arguments.layers, limit_s=arguments.limit_s, scratch=Path(scratch)
        )
    sys.stdout.write((arguments.out / DOCUMENT).read_text() if arguments.is_json else told(done))
    refused = [f"{row.assembly}: {row.refusals[0]}" for row in done.rows if not row.accepted]
    if refused:
        raise RefusedError(f"device_check: {'; '.join(refused)}")
    return 0


def _check(chosen: Sequence[str], *, out: Path, layers: int, limit_s: float, scratch: Path) -> DeviceCheck:
    started_s, facts = time.monotonic(), probe()
    shape = shape_for(facts, layers=layers)
    model = _model(shape)
    made_s = time.monotonic() - started_s
    grounds = _grounds(shape, model, facts=facts, scratch=scratch)
    done = _described(shape, model, grounds.bench, facts=facts)
    try:
        for name in chosen:
            if time.monotonic() - started_s > limit_s:
                done = replace(done, not_run=(*done.not_run, f"{name}: the time was over"))
            else:
                done = replace(done, rows=(*done.rows, _assembly(name, shape, grounds, scratch=scratch)))
            spent = {"model": round(made_s, 1), "whole": round(time.monotonic() - started_s, 1)}
            done = replace(done, seconds=spent)
            write_document(out / DOCUMENT, done)
    finally:
        grounds.scorer.close()
    return done


def _model(shape: Shape) -> ModelDir:
    return materialise(shape.spec().model, cache=cache_dir())


def _grounds(shape: Shape, model: ModelDir, *, facts: HardwareFacts, scratch: Path) -> Grounds:
    # a GPU's bandwidth is declared; the tiny model lies in a CPU's caches, where none bounds it
    plan = compile_unmeasured(shape.spec(), facts=facts)
    bench = Workbench.open(plan, model=model, run_dir=scratch / "bench")
    return Grounds(bench=bench, scorer=Scorer(scratch / "scorer"))


def _described(shape: Shape, model: ModelDir, bench: Workbench, *, facts: HardwareFacts) -> DeviceCheck:
    gpu = facts.gpus[0] if facts.gpus else None
    return DeviceCheck(
        device=shape.device, gpu=gpu.name if gpu else "", driver=gpu.driver if gpu else "",
        sandbox_tier=bench.tier.value, device_nodes=tuple(map(str, bench.resources.devices)),
        model=bench.plan.spec.model.id, num_parameters=model.num_parameters,
        bandwidth_gb_s=bench.plan.spec.hardware.bandwidth_gb_s, not_run=(LEFT_OUT,),
    )  # fmt: skip


def _assembly(name: str, shape: Shape, grounds: Grounds, *, scratch: Path) -> AssemblyRow:
    """Judged first; what is refused is not timed."""
    started_s = time.monotonic()
    workspace = _workspace(name, shape, grounds.bench, scratch=scratch)
    judged = judge_workspace(grounds, workspace, name=f"judged-{name}", seed=SEED, gates=GATES)
    row = AssemblyRow(
        assembly=name, components=ASSEMBLIES[name], accepted=not judged.refusals, num_replies=judged.num_replies,
        refusals=tuple(f"{each.gate}/{each.reason_class}: {each.text}" for each in judged.refusals),
        stages=judged.stages,
    )  # fmt: skip
    if row.accepted:
        row = _measured(row, shape, grounds.bench, workspace)
    return replace(row, seconds=round(time.monotonic() - started_s, 1))


def _workspace(name: str, shape: Shape, bench: Workbench, *, scratch: Path) -> Path:
    """Slots and pages are those of the load: what is held is then what the plan forecasts."""
    settings: dict[str, int | float | str | bool] = {
        "device": shape.device, "max_num_seqs": max(CONCURRENCIES),
        "max_context_tokens": bench.plan.spec.model.max_context_tokens,
    }  # fmt: skip
    if "cuda-paged-kv" in ASSEMBLIES[name]:
        longest = -(-bench.plan.spec.model.max_context_tokens // 16)
        settings["num_kv_pages"] = max(longest, max(CONCURRENCIES) * -(-shape.context_tokens // 16)) + 1
    components = resolve(ASSEMBLIES[name], load_skills(data_dir("skills")))
    scaffold = write_scaffold(compose_scaffold(bench.plan.spec.model), scratch / f"{name}.scaffold")
    workspace = scratch / name
    assemble(scaffold, components, settings, workspace)
    return workspace


def _measured(row: AssemblyRow, shape: Shape, bench: Workbench, workspace: Path) -> AssemblyRow:
    bench.build(workspace)
    before_gib = device_memory_gib() if shape.device == "cuda" else 0.0
    server = bench.serve(workspace, name=f"measured-{row.assembly}")
    try:
        bench.warm_up(server)
        loads = tuple(_load(bench, server, load=f"c{number}", shape=shape) for number in CONCURRENCIES)
        peak_gib = device_memory_gib() - before_gib if shape.device == "cuda" else server.peak_memory_gib()
    finally:
        server.stop(drain_s=0)
    forecast_gib = bench.plan.memory.total_gib
    return replace(
        row, loads=loads, peak_memory_gib=round(peak_gib, 3), forecast_gib=round(forecast_gib, 3),
        is_memory_within=abs(peak_gib / forecast_gib - 1) <= MAX_MEMORY_ERROR,
    )  # fmt: skip


def _load(bench: Workbench, server: Server, *, load: str, shape: Shape) -> LoadRow:
    """Tokens of one window behind a ramp, over what the roofline allows at that load."""
    session = bench.session(server, load=load, pool=Pool.selection, seed=SEED, is_plain=True)
    session.start()
    try:
        while session.active_now_s() < shape.ramp_s + shape.window_s:
            session.check()
            if server.poll() is not None:
                raise InfraError(f"device_check: the server ended under load {load}\n{server.log_tail()}")
            time.sleep(POLL_S)
    finally:
        records = session.stop()
    window = {"start_s": shape.ramp_s, "end_s": shape.ramp_s + shape.window_s}
    rate = window_metrics(records, bundle=bench.bundle_at(load), **window).get("output_throughput", 0.0)
    ceilings = [each.value for each in bench.plan.ceilings if (each.metric, each.load) == ("output_throughput", load)]
    ceiling = min(ceilings, default=None)
    return LoadRow(
        load=load, output_tokens_per_s=round(rate, 2), ceiling_tokens_per_s=ceiling,
        roofline_share=None if ceiling is None else round(rate / ceiling, 4),
    )  # fmt: skip


def device_memory_gib() -> float:
    """Memory in use on the first GPU, by the driver's own tool at its own path. InfraError where that does not tell."""
    argv = [str(NVIDIA_SMI), "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        asked = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
        return float(asked.stdout.strip()) / 1024
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InfraError(f"device_check: {NVIDIA_SMI} does not tell the memory in use: {error}") from error


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number from 1 on")
    return int(text)


def told(done: DeviceCheck) -> str:
    """The document in lines."""
    where = done.gpu or "this CPU"
    lines = [f"{done.model} ({done.num_parameters / 1e9:.2f} B parameters) on {where}, wall {done.sandbox_tier}"]
    lines.append(f"  devices behind the wall: {', '.join(done.device_nodes) or 'none'}")
    for row in done.rows:
        verdict = "accepted" if row.accepted else "REFUSED"
        lines.append(f"{row.assembly}: {verdict}, {row.num_replies} replies judged, {row.seconds:.0f} s")
        lines += [f"  {text}" for text in row.refusals]
        for load in row.loads:
            share = "no roofline" if load.roofline_share is None else f"{load.roofline_share:.0%} of the roofline"
            lines.append(f"  {load.load}: {load.output_tokens_per_s:g} tok/s, {share}")
        if row.peak_memory_gib is not None:
            within = "within" if row.is_memory_within else "NOT within"
            figures = f"{row.peak_memory_gib:.2f} GiB at the peak, {row.forecast_gib:.2f} forecast"
            lines.append(f"  {figures}: {within} 10%")
    lines += [f"not run: {text}" for text in done.not_run]
    return "\n".join(lines) + "\n"
