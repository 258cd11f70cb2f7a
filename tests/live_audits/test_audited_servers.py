"""Every audit against a server that cheats in just its way, and all of them against the honest one.

What a token costs is slept, for cheats and control alike (`cheats/costs.py`): gains are far above the noise of a busy
machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibeserve.config import compose_spec
from vibeserve.exploits.workspaces import overlay, scaffold_workspace
from vibeserve.hardware import probe
from vibeserve.live_audits import (
    Audited,
    audit_duplicates,
    audit_idle,
    audit_off_distribution,
    audit_precision,
    audit_repeats,
    audit_restart,
    audit_seeds,
    audit_shared_prefix,
    audit_soak,
    audit_weights,
)
from vibeserve.plan import compile_plan
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.weights import read_model_dir

pytestmark = pytest.mark.slow
CHEATS = Path(__file__).parent / "cheats"
NUM_PAIRS = 3
OVERRIDES = (
    "+target=tiny_cpu", "workload.prompt_tokens_min=24", "workload.prompt_tokens_max=64",
    "workload.output_tokens_min=16", "workload.output_tokens_max=32",
)  # fmt: skip

OnServer = Callable[..., Audited]
SHORT: dict[str, tuple[OnServer, dict[str, Any], set[str]]] = {
    "deferred": (audit_idle, {"num_pairs": NUM_PAIRS}, {"deferred_work"}),
    "repeats": (audit_repeats, {"num_pairs": 4}, {"repeat_prompt"}),
    "duplicates": (audit_duplicates, {"num_pairs": NUM_PAIRS}, {"coalesced"}),
    "prefixes": (audit_shared_prefix, {"num_pairs": NUM_PAIRS}, {"undeclared_reuse"}),
    "fast_path": (audit_off_distribution, {"num_pairs": NUM_PAIRS}, {"off_distribution"}),
    "known_prompts": (audit_seeds, {"num_pairs": NUM_PAIRS}, {"seed_gap"}),
    "tires": (audit_soak, {"soak_s": 8.0}, {"decay", "memory_growth"}),
}
"""cheat -> its audit, how long, and what it is refused for; the first needs a server that has served nothing"""


@pytest.fixture(scope="module")
def bench(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return bench_with(tiny_model_dir, tmp_path_factory.mktemp("bench"))


def bench_with(model_dir: Path, run_dir: Path, *overrides: str) -> Workbench:
    plan = compile_plan(compose_spec([*OVERRIDES, *overrides]), facts=probe())
    return Workbench.open(plan, model=read_model_dir(model_dir), run_dir=run_dir)


def workspace_of(bench: Workbench, cheat: str) -> Path:
    workspace = bench.run_dir / cheat
    if workspace.is_dir():
        return workspace
    scaffold_workspace(workspace)
    overlay(CHEATS / cheat, workspace)
    shutil.copy(CHEATS / "costs.py", workspace / "runtime" / "costs.py")
    bench.build(workspace)
    return workspace


def held(bench: Workbench, cheat: str, hold: Callable[[Server], Audited]) -> Audited:
    server = bench.serve(workspace_of(bench, cheat), name=cheat)
    try:
        return hold(server)
    finally:
        server.stop(drain_s=0)


def refused_for(found: Audited) -> set[str]:
    return {refusal.reason_class for refusal in found.refusals}


@pytest.mark.parametrize("cheat", SHORT)
def test_a_server_that_cheats_is_refused_for_it(bench: Workbench, cheat: str) -> None:
    audit, extent, expected = SHORT[cheat]
    found = held(bench, cheat, lambda server: audit(bench, server, seed=5, **extent))
    assert refused_for(found) == expected, found.result.text


def test_an_honest_server_passes_every_audit_and_its_replies_are_evidence(bench: Workbench) -> None:
    server = bench.serve(workspace_of(bench, "slow"), name="slow")
    try:
        for audit, extent, _ in SHORT.values():
            found = audit(bench, server, seed=5, **extent)
            assert found.state == "passed", f"{found.result.name}: {found.result.text}"
            assert found.evidence and all(record.served for record in found.evidence)
    finally:
        server.stop(drain_s=0)


@pytest.mark.parametrize(("cheat", "expected"), [("prefixes", set()), ("duplicates", {"coalesced"})])
def test_under_declared_reuse_a_kept_prefix_passes_and_a_shared_reply_does_not(
    tiny_model_dir: Path, tmp_path: Path, cheat: str, expected: set[str]
) -> None:
    reuse = ("workload.kind=shared_prefix", "workload.shared_prefix_tokens=96", "workload.reuse=prefix")
    bench = bench_with(tiny_model_dir, tmp_path, *reuse)
    found = held(bench, cheat, lambda server: audit_duplicates(bench, server, seed=5, num_pairs=NUM_PAIRS))
    assert (found.not_applicable, refused_for(found)) == ("", expected), found.result.text


def test_a_server_that_remembers_over_a_restart_is_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Without a wall: behind one there is no place to remember in."""
    bench = bench_with(tiny_model_dir, tmp_path, "sandbox.tier=C", "sandbox.allow_none=true")
    found = audit_restart(bench, workspace_of(bench, "remembers"), seed=5, num_pairs=4)
    assert refused_for(found) == {"state_across_restart"}, found.result.text


def test_an_honest_server_forgets_and_uses_the_weights_that_it_is_given(bench: Workbench) -> None:
    workspace = workspace_of(bench, "slow")
    found = audit_restart(bench, workspace, seed=5, num_pairs=4)
    assert found.state == "passed", found.result.text
    found = audit_weights(bench, workspace, seed=5, num_blocks=2)
    assert found.state == "passed", found.result.text
    assert found.result.figures["damaged_top1_agreement"] < 0.5
    assert not (bench.run_dir / "damaged").exists()


def test_a_server_with_weights_of_its_own_is_refused(bench: Workbench, tiny_model_dir: Path) -> None:
    workspace = workspace_of(bench, "own_weights")
    shutil.copytree(tiny_model_dir / "bf16", workspace / "own" / "bf16")
    found = audit_weights(bench, workspace, seed=5, num_blocks=2)
    assert "weights_do_not_matter" in refused_for(found), found.result.text


def test_weights_that_are_used_as_they_are_answer_to_the_smallest_change(bench: Workbench) -> None:
    """The cheat is `silent_int8` of the exploit suite; its slope is 0."""
    workspace = scaffold_workspace(bench.run_dir / "exact")
    bench.build(workspace)
    found = audit_precision(bench, workspace, seed=5, num_blocks=2)
    assert found.state == "passed", found.result.text
    assert found.result.figures["slope"] == pytest.approx(1.0, abs=0.02)
    assert found.evidence and not (bench.run_dir / "nudged").exists()


def test_where_any_precision_is_admitted_none_is_asked_for(tiny_model_dir: Path, tmp_path: Path) -> None:
    found = audit_precision(bench_with(tiny_model_dir, tmp_path, "evaluation.precision=any"), tmp_path, seed=1)
    assert found.not_applicable == "weights-precision audit: the target admits any precision"
