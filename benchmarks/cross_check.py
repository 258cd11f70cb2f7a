"""The load generator beside somebody else's: one server, the same prompts, the same load, in turns.

    python benchmarks/cross_check.py artifacts/smollm2_cpu/latest --guidellm PATH/TO/guidellm

starts the runtime of an artifact behind its wall, on the engine's cores, and drives it alternately with this product's
generator and with guidellm (a virtual environment of its own), both on the client's core and in the server's network.
Prints the medians of both over the rounds, and the ratio ours / theirs with its interval over the rounds. Differences
are explained in docs/measuring.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.artifact.open import read_spec, resolve_artifact
from vibeserve.benchmark import window_metrics
from vibeserve.client import LoadSession
from vibeserve.core.documents import write_text_atomic
from vibeserve.core.nouns import PromptRequest
from vibeserve.core.paths import cache_dir
from vibeserve.errors import InfraError
from vibeserve.hardware import probe
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.weights import materialise
from vibeserve.workloads import Pool

WARMUP_S = 5.0
NUM_PROMPTS = 400
"""of each run; more than are answered, so that nobody begins anew"""
METRICS = ("output_throughput", "ttft_p50", "itl_p50", "tpot_p50", "e2el_p50")
UNITS = {"output_throughput": "tok/s"}
"""of the others: ms"""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One comparison."""

    load: str
    concurrency: int
    window_s: float
    num_rounds: int
    guidellm: Path


def ours(bench: Workbench, server: Server, setting: Setting, *, seed: int) -> dict[str, float]:
    """One window by the product's generator. Latencies in seconds."""
    session = LoadSession(
        bundle=bench.bundle, base_url=server.base_url, dialect="vllm", model=bench.model_name(server),
        load=bench.load_point(setting.load), requests=iter(_requests(bench, seed=seed)), cpus=bench.plan.client_cpus,
        join=lambda argv: bench.host.join_argv(server.process, argv),
    )  # fmt: skip
    session.start()
    try:
        start_s = session.active_now_s() + WARMUP_S
        while session.active_now_s() < start_s + setting.window_s:
            session.check()
            time.sleep(0.1)
    finally:
        records = session.stop()
    return window_metrics(records, start_s=start_s, end_s=start_s + setting.window_s, bundle=bench.bundle)


def theirs(bench: Workbench, server: Server, setting: Setting, *, seed: int, folder: Path) -> dict[str, float]:
    """The same by guidellm: as many seconds of warm-up, and of cool-down, which are not counted either."""
    prompts, report = folder / "prompts.jsonl", folder / "report.json"
    rows = [{"prompt": asked.prompt, "output_tokens_count": asked.max_tokens} for asked in _requests(bench, seed=seed)]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    write_text_atomic(folder / "scenario.json", json.dumps(_scenario(bench, server, setting, prompts, report)))
    argv = [str(setting.guidellm), "run", "-c", str(folder / "scenario.json"), "--disable-console-interactive"]
    joined = bench.host.join_argv(server.process, argv, cpus=bench.plan.client_cpus)
    done = subprocess.run(joined, capture_output=True, text=True, check=False, timeout=600, cwd=folder)
    if done.returncode != 0 or not report.is_file():
        raise InfraError(f"guidellm ended with {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    return read_report(json.loads(report.read_text(encoding="utf-8")))


def _scenario(bench: Workbench, server: Server, setting: Setting, prompts: Path, report: Path) -> dict[str, Any]:
    phase = {"value": WARMUP_S, "mode": "duration"}
    return {
        "spec": {
            "backend": {
                "kind": "openai_http", "target": server.base_url, "model": bench.model_name(server),
                "request_format": "/v1/completions",
                # it names none by itself, and a server then draws at 1
                "extras": {"body": {"temperature": 0.0}},
            },
            "profile": {
                "kind": "concurrent", "streams": setting.concurrency, "warmup": phase, "cooldown": phase,
            },
            "tokenizer": {"kind": "huggingface_auto", "model": str(bench.model.path)},
            "data": [{"kind": "json_file", "path": str(prompts)}],
            "constraints": [{"kind": "max_duration", "seconds": setting.window_s + 2 * WARMUP_S}],
            "outputs": [{"kind": "json", "path": str(report)}],
        }
    }  # fmt: skip


def read_report(report: Mapping[str, Any]) -> dict[str, float]:
    """guidellm's figures under this product's names; milliseconds become seconds."""
    (benchmark,) = report["benchmarks"]
    metrics = benchmark["metrics"]

    def successful(name: str, statistic: str) -> float:
        return float(metrics[name]["successful"][statistic])

    return {
        "output_throughput": successful("output_tokens_per_second", "mean"),
        "ttft_p50": successful("time_to_first_token_ms", "median") / 1e3,
        "itl_p50": successful("inter_token_latency_ms", "median") / 1e3,
        "tpot_p50": successful("time_per_output_token_ms", "median") / 1e3,
        "e2el_p50": successful("request_latency", "median"),
    }


def _requests(bench: Workbench, *, seed: int) -> list[PromptRequest]:
    """Plain ones, as a server that nobody judges gets them."""
    drawn = itertools.islice(bench.bundle.workload.requests(seed, Pool.certification), NUM_PROMPTS)
    plain = [bench.bundle.plain(request) for request in drawn]
    return [request for request in plain if isinstance(request, PromptRequest)]


def table(rounds: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> list[str]:
    """One line per metric: medians of both, and the median, least and largest ratio over the rounds."""
    lines = [f"{'metric':<18} {'ours':>10} {'guidellm':>10} {'unit':>6}  ratio over {len(rounds)} rounds"]
    for name in METRICS:
        pairs = [(a[name], b[name]) for a, b in rounds if name in a and name in b]
        if not pairs:
            lines.append(f"{name:<18} {'too few':>10}")
            continue
        scale, unit = (1.0, UNITS[name]) if name in UNITS else (1e3, "ms")
        ratios = sorted(a / b for a, b in pairs)
        left, right = (scale * statistics.median(side) for side in zip(*pairs, strict=True))
        spread = f"{statistics.median(ratios):.3f} [{ratios[0]:.3f}, {ratios[-1]:.3f}]"
        lines.append(f"{name:<18} {left:>10.4g} {right:>10.4g} {unit:>6}  {spread}")
    return lines


def compare(artifact: Path, *, setting: Setting) -> list[str]:
    """Serve the artifact's runtime once and measure it in turns."""
    spec = read_spec(artifact)
    plan = compile_unmeasured(spec, facts=probe())
    model = materialise(spec.model, cache=cache_dir())
    with tempfile.TemporaryDirectory(prefix="vibeserve-cross-") as name:
        folder = Path(name)
        bench = Workbench.open(plan, model=model, run_dir=folder / "bench")
        workspace = shutil.copytree(artifact / "runtime", folder / "workspace")
        bench.build(workspace)
        server = bench.serve(workspace, name="served")
        try:
            rounds = []
            for number in range(setting.num_rounds):
                mine = ours(bench, server, setting, seed=2 * number)
                other = theirs(bench, server, setting, seed=2 * number + 1, folder=folder)
                rounds.append((mine, other))
                rates = f"{mine['output_throughput']:.1f} and {other['output_throughput']:.1f} tok/s"
                sys.stdout.write(f"round {number + 1} of {setting.num_rounds}: {rates}\n")
        finally:
            server.stop(drain_s=0)
    return table(rounds)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact")
    parser.add_argument("--guidellm", type=Path, required=True, help="its command, in a virtual environment of its own")
    parser.add_argument("--load", default="", help="a closed load of the target; default: its headline load")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a window")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args(argv)
    artifact = resolve_artifact(Path(options.artifact))
    workload = read_spec(artifact).workload
    load = options.load or workload.headline_load
    setting = Setting(
        load=load, concurrency=workload.loads[load].concurrency, window_s=options.seconds, num_rounds=options.rounds,
        guidellm=options.guidellm.absolute(),
    )  # fmt: skip
    sys.stdout.write("\n".join(compare(artifact, setting=setting)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
