"""A real scaffold server behind its wall with a planted hot function: the profiler outside must rank it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.core.nouns import ActivationState
from vibeserve.exploits.workspaces import scaffold_workspace
from vibeserve.hardware import probe
from vibeserve.plan import compile_plan
from vibeserve.profiles import PySpy, check_activation, observer, planning_shares, profile_lines
from vibeserve.roles.profiling import Profiling
from vibeserve.roles.workbench import Workbench
from vibeserve.weights import read_model_dir
from vibeserve.workloads import Pool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(PySpy().why_not()), reason="py-spy is not installed"),
]
SPIN = '''

def spin() -> int:
    """A loop that nobody needs."""
    total = 0
    for number in range(600000):
        total += number * number
    return total
'''


def plant(workspace: Path) -> None:
    sampler = workspace / "runtime/sampler.py"
    before = "        token_id = draw(logits, sequence)\n"
    text = sampler.read_text(encoding="utf-8")
    assert text.count(before) == 1
    sampler.write_text(text.replace(before, f"        spin()\n{before}") + SPIN, encoding="utf-8")


def test_a_planted_loop_ranks_first_and_is_seen(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # whether it is timed says something of the machine now, and nothing of the profiler
    monkeypatch.setattr(observer, "MAX_EFFECT", 100.0)
    spec = compose_spec(["+target=tiny_cpu", "evaluation.clock=real"])
    bench = Workbench.open(compile_plan(spec, facts=probe()), model=read_model_dir(tiny_model_dir), run_dir=tmp_path)
    workspace = tmp_path / "workspace"
    scaffold_workspace(workspace)
    plant(workspace)
    bench.build(workspace)
    server = bench.serve(workspace, name="planted")
    try:
        server.pause()
        profile = Profiling(bench=bench).take(
            server, workspace=workspace, load="c4", pool=Pool.visible, seed=3, spans={"sampling": 1.0}
        )
        assert server.process.is_paused and server.poll() is None
    finally:
        server.stop(drain_s=0)
    assert profile is not None and profile.tool == "stacks"
    print("\n".join(profile_lines(profile)))
    structure = profile.structure
    assert "runtime/sampler.py:spin" in structure.functions
    assert structure.num_processes == 1 and len(structure.threads) >= 2
    assert any("libtorch" in name for name in structure.libraries)
    assert profile.observed is not None and profile.observed.ratio is not None and profile.observed.num_slices == 2
    first = profile.bottlenecks[0]
    assert (first.name, first.thread) == ("sampler", "engine")
    assert first.frames[0].name.startswith("spin (runtime/sampler.py:")
    assert first.seconds_each is not None and first.seconds_each > 0
    assert planning_shares(profile, {"sampling": 0.01, "decode.linear": 0.99})["sampling"] > 0.5, "counters may lie"
    found = check_activation(
        "`spin` runs, and `draw`, as before", profile=profile, workspace=workspace, changed={"runtime/sampler.py"}
    )
    assert found.state is ActivationState.SEEN and "runtime/sampler.py:spin" in found.seen
