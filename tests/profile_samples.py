"""Profiles as the framework makes them, small ones and the longest."""

from __future__ import annotations

from typing import Any

from vibeserve.profiles import Bottleneck, Frame, NativeSymbol, Observed, Profile, Structure, ThreadFact

FOLDED = """\
process 7:"python -m runtime --port 8000";thread (2): MainThread;run (uvicorn/main.py:632);Runner.run (asyncio/runners.py:118) 170
process 7:"python -m runtime --port 8000";thread (2): MainThread;Runner.run (asyncio/runners.py:118);Handlers._events (runtime/http.py:146) 30
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:104);Engine._execute (runtime/engine.py:141);Sampler.sample (runtime/sampler.py:22);spin (runtime/sampler.py:72) 90
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:104);Engine._execute (runtime/engine.py:141);Sampler.sample (runtime/sampler.py:22);draw (runtime/sampler.py:46) 10
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:104);Engine._execute (runtime/engine.py:140);Model.forward (runtime/model.py:75);Layer.forward (runtime/model.py:55);Linear.__call__ (runtime/linear.py:21) 40
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:104);Engine._execute (runtime/engine.py:140);Model.forward (runtime/model.py:75);scaled (torch/nn/functional.py:9) 20
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:104);Scheduler.plan (runtime/scheduler.py:41);make_step (runtime/steps.py:31) 20
process 7:"python -m runtime --port 8000";thread (4): engine;Engine._run (runtime/engine.py:101);Engine._take_commands (runtime/engine.py:119) 20
"""  # noqa: E501
"""what py-spy writes with `--format raw --threads`, of two seconds at 100 Hz"""


def profile_sample(*, is_long: bool = False, **changes: Any) -> Profile:
    """A timed profile of a text server; `is_long`: with all that a prompt may be told, at its longest."""
    num, name = (9, "a_function_with_a_long_name" * 3) if is_long else (2, "Sampler.sample")
    rows = tuple(
        Bottleneck(
            name="sampler" if n == 0 else f"part_{n}", share=round(0.5 / (n + 1), 3), thread="engine",
            amdahl_ceiling=2.0, seconds_each=0.0051, floor_s=0.001, distance=5.1,
            frames=(Frame(name=f"{name} (runtime/sampler.py:{n})", share=0.4),) * 2,
        )
        for n in range(num)
    )  # fmt: skip
    structure = Structure(
        num_processes=1, threads=(ThreadFact(name="engine", cpu_share=0.9, is_python=True),) * (5 if is_long else 1),
        libraries=("libtorch_cpu.so",), functions=("runtime/sampler.py:Sampler.sample",),
        symbols=(NativeSymbol(name=f"mkl_blas_sgemm{name}", library="libtorch_cpu.so", kind="matmul", share=0.3),)
        * (6 if is_long else 1),
    )  # fmt: skip
    values: dict[str, Any] = {
        "tool": "stacks", "load": "c4", "seconds": 4.0, "num_samples": 398, "num_native_samples": 53, "is_timed": True,
        "unit": "output token",
        "observed": Observed(metric="output_throughput", control=100.0, profiled=98.0, ratio=0.98, num_slices=2),
        "unit_s": 0.0102, "unit_floor_s": 0.002, "bottlenecks": rows, "structure": structure,
    }  # fmt: skip
    return Profile(**(values | changes))
