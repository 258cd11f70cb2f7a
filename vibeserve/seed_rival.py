"""A pinned engine as a baseline of its own: what a run makes of it has to be better than what it was."""

from __future__ import annotations

import shutil

from vibeserve.rivals import Rival
from vibeserve.roles.workbench import Workbench
from vibeserve.seeds.engine import EngineSeed
from vibeserve.service import candidate_launch
from vibeserve.spec import SEED_BASELINE, Baseline


def seed_rival(bench: Workbench, declared: Baseline) -> Rival:
    """The engine as it was pinned, built here and started like any rival. It passed every gate in round 0."""
    spec = bench.plan.spec
    seed = EngineSeed(spec.seed)
    workspace = bench.run_dir / "workspaces" / SEED_BASELINE
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    seed.materialise(workspace)
    bench.build(workspace)
    launch = candidate_launch(
        workspace, model_dir=bench.model.path, allow_engines=tuple(spec.allow_engines), name=SEED_BASELINE
    )
    return Rival(
        name=SEED_BASELINE, baseline_class=declared.baseline_class.value, precision=spec.evaluation.precision.value,
        version=declared.version, flags=(), is_required=True, launch=launch, dialect="vllm", model="",
        note=f"{seed.what}, as it is", is_ours=True,
    )  # fmt: skip
