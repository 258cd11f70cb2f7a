"""`invoke bench-decision`: the decision's error rates under noise that was measured on a real machine.

The noise comes from a file that ships, from a file of yours, or is measured now: fresh starts of a target's scaffold
beside another start of the very same scaffold.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.arguments import VerbParser
from vibeserve.benchmark import RealClock, paired_log_ratios
from vibeserve.benchmark.simulation import DecisionRates, Noise, simulate
from vibeserve.core.documents import read_document, to_data, write_document
from vibeserve.core.paths import cache_dir, data_dir, lease_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import probe
from vibeserve.lease import DeviceLease, devices_of
from vibeserve.plan import compile_plan
from vibeserve.progress import LineProgress, Progress
from vibeserve.roles.evaluator import Entrant, Evaluator
from vibeserve.roles.workbench import Workbench
from vibeserve.schedules import SCHEDULES
from vibeserve.seeds import get_seed, scaffold_settings
from vibeserve.spec import Evaluation, Level
from vibeserve.weights import materialise
from vibeserve.workloads import Pool

NUM_CANDIDATES = 1000
EFFECT = 0.1
SEED = 1
SHIPPED = Path("noise") / "cpu.json"
"""below benchmarks/"""


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How noise is measured."""

    target: str
    num_starts: int
    num_pairs: int
    """of each pair of starts"""
    window_s: float


def main(argv: Sequence[str]) -> int:
    """Command line of the study. Returns 0; SpecError for bad options or noise, InfraError where the machine fails."""
    options = _parser().parse_args(argv)
    noise = _noise(options).check()
    if options.save:
        write_document(Path(options.save), noise)
    rates = simulate(
        noise, num_pairs=options.pairs or SCHEDULES[Level.standard].search_pairs, effect=options.effect,
        num_candidates=options.candidates, min_effect=Evaluation.min_effect, seed=options.seed,
    )  # fmt: skip
    sys.stdout.write(_answer(rates, is_json=options.is_json))
    return 0


def _answer(rates: DecisionRates, *, is_json: bool) -> str:
    return json.dumps(to_data(rates), indent=2) + "\n" if is_json else "\n".join(rates.lines()) + "\n"


def _noise(options: argparse.Namespace) -> Noise:
    if options.measure:
        measuring = Measuring(
            target=options.measure, num_starts=options.starts, num_pairs=options.measured_pairs,
            window_s=options.window_s,
        )  # fmt: skip
        return measure_noise(measuring, progress=LineProgress(sys.stderr))
    path = Path(options.noise) if options.noise else data_dir("benchmarks") / SHIPPED
    if not path.is_file():
        raise SpecError(f"{path}: no such file", hint="invoke bench-decision --measure TARGET measures noise here")
    return read_document(path, Noise)


def measure_noise(measuring: Measuring, *, progress: Progress) -> Noise:
    """A/A of the target's scaffold: `num_starts` times two fresh servers, interleaved at the headline load."""
    from vibeserve.config import compose_spec

    facts = probe()
    plan = compile_plan(compose_spec([f"+target={measuring.target}"]), facts=facts)
    model = materialise(plan.spec.model, cache=cache_dir(), target_dir=plan.spec.target.folder_of(""))
    lease = DeviceLease(
        devices_of(plan.spec.hardware, facts), root=lease_dir(), run="bench-decision", progress=progress
    )
    rows = []
    with tempfile.TemporaryDirectory(prefix="vibeserve-noise-") as folder:
        bench = Workbench.open(plan, model=model, run_dir=Path(folder) / "bench", lease=lease)
        workspace = Path(folder) / "scaffold"
        settings = scaffold_settings(plan.spec, scaffold=bench.scaffold)
        get_seed(plan.spec.seed, scaffold=bench.scaffold, settings=settings, pins={}).materialise(workspace)
        bench.build(workspace)
        for number in range(measuring.num_starts):
            progress.event("noise", f"start {number + 1} of {measuring.num_starts}")
            rows.append(_one_start(bench, workspace, measuring=measuring, progress=progress))
    load = plan.spec.workload.headline_load
    return Noise(
        machine=f"{facts.num_cpus} x {facts.cpu_model}", target=measuring.target, load=load,
        window_s=measuring.window_s, starts=tuple(rows),
    )  # fmt: skip


def _one_start(bench: Workbench, workspace: Path, *, measuring: Measuring, progress: Progress) -> tuple[float, ...]:
    """Log-ratios of two fresh servers of the same runtime."""
    servers = [bench.serve(workspace, name="first")]
    try:
        servers[0].pause()
        servers.append(bench.serve(workspace, name="second"))
        series = Evaluator(bench, RealClock(), progress=progress).compare(
            [Entrant(name=server.name, server=server, is_ours=True) for server in servers],
            load=bench.plan.spec.workload.headline_load, pool=Pool.selection, seed=secrets.randbits(31),
            num_pairs=measuring.num_pairs, window_s=measuring.window_s,
            warmup_s=SCHEDULES[Level.standard].search_warmup_s,
        )  # fmt: skip
    finally:
        for server in servers:
            server.stop(drain_s=0)
    goals = bench.plan.spec.goals
    metric = bench.metrics[goals[0].metric if goals else "request_throughput"]
    return tuple(paired_log_ratios(series["second"].windows, series["first"].windows, metric=metric))


def _parser() -> VerbParser:
    parser = VerbParser(
        "bench-decision", is_task=True, description="Error rates of the decision under measured noise."
    )
    parser.add_argument("--noise", metavar="FILE", help="noise measured before (default: what ships)")
    parser.add_argument("--measure", metavar="TARGET", help="measure it now, on this target's scaffold")
    parser.add_argument("--save", metavar="FILE", help="write the noise that was used")
    parser.add_argument("--starts", type=_count, default=6, help="measured: pairs of fresh starts (default 6)")
    parser.add_argument("--measured-pairs", type=_count, default=8, help="measured: windows of each (default 8)")
    parser.add_argument(
        "--window-s", type=float, default=SCHEDULES[Level.standard].search_window_s,
        help="measured: seconds of a window",
    )  # fmt: skip
    parser.add_argument("--pairs", type=_count, default=0, help="pairs of a decision (default: of level standard)")
    parser.add_argument("--candidates", type=_count, default=NUM_CANDIDATES, help="simulated for each rate")
    parser.add_argument("--effect", type=float, default=EFFECT, help=f"true gain to be found (default {EFFECT})")
    parser.add_argument("--seed", type=int, default=SEED)
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number
