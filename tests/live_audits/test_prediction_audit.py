"""The audit of predicted outputs: what it compares, and servers that must pass and fail it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vibeserve.config import compose_spec
from vibeserve.contract import Record
from vibeserve.core.nouns import Chunk, PromptRequest, Reply
from vibeserve.exploits.workspaces import overlay, scaffold_workspace
from vibeserve.hardware import probe
from vibeserve.live_audits import audit_predictions
from vibeserve.live_audits.predictions import AGAIN, PLAIN, judge_predictions, kinds_of
from vibeserve.plan import compile_plan
from vibeserve.roles.workbench import Workbench
from vibeserve.spec import Load, Workload
from vibeserve.weights import read_model_dir

EXPLOITS = Path(__file__).parents[1] / "exploits"
OVERRIDES = (
    "+target=tiny_cpu", "workload.kind=code_edit", "workload.prediction=edits", "workload.prompt_tokens_min=96",
    "workload.prompt_tokens_max=160", "workload.output_tokens_min=24", "workload.output_tokens_max=32",
)  # fmt: skip


def row(*replies: tuple[int, ...]) -> list[Record]:
    return [
        Reply(
            request=PromptRequest(request_id=str(place), prompt="p", num_prompt_tokens=1, max_tokens=len(ids)),
            chunks=(Chunk(0.0, "", ids),),
        )
        for place, ids in enumerate(replies)
    ]  # fmt: skip


def judged(**rows: Any) -> list[str]:
    found = judge_predictions({PLAIN: rows.pop("plain"), AGAIN: rows.pop("again"), **rows})
    assert len(found.evidence) == 2 * (2 + len(rows))
    assert {refusal.reason_class for refusal in found.refusals} <= {"prediction_changes_tokens"}
    return [refusal.text for refusal in found.refusals]


def test_every_token_counts() -> None:
    one, two = (1, 2, 3), (4, 5, 6)
    assert judged(plain=row(one, two), again=row(one, two), edits=row(one, two), exact=row(one, two)) == []
    changed = judged(plain=row(one, two), again=row(one, two), edits=row(one, (4, 5, 7)), exact=row(one, two))
    assert changed == ["1 of 4 predictions change greedy tokens (edits, from token 3 on)"]
    shorter = judged(plain=row(one, two), again=row(one, two), edits=row((1, 2), two))
    assert shorter == ["1 of 2 predictions change greedy tokens (edits, from token 3 on)"]


def test_only_requests_that_answer_alike_twice_are_compared() -> None:
    one, two = (1, 2, 3), (4, 5, 6)
    assert judged(plain=row(one, (9, 5, 6)), again=row(one, two), edits=row(one, (8, 8, 8))) == []
    assert judged(plain=row((9, 2, 3), (9, 5, 6)), again=row(one, two), edits=row(one, two)) == [
        "none of 2 requests gives the same greedy tokens twice"
    ]


def test_kinds_are_those_of_all_loads() -> None:
    loads = {"c1": Load(prediction="none"), "edits": Load(), "useless": Load(prediction="useless")}
    assert kinds_of(Workload(kind="code_edit", prediction="edits", loads=loads)) == ["edits", "useless"]
    assert kinds_of(Workload(kind="chat", loads={"c1": Load()})) == []


@pytest.mark.slow
@pytest.mark.parametrize(("exploit", "refused"), [("", set()), ("trusted_prediction", {"prediction_changes_tokens"})])
def test_servers_that_verify_pass_and_others_do_not(
    tiny_model_dir: Path, tmp_path: Path, exploit: str, refused: set[str]
) -> None:
    plan = compile_plan(compose_spec(list(OVERRIDES)), facts=probe())
    bench = Workbench.open(plan, model=read_model_dir(tiny_model_dir), run_dir=tmp_path / "bench")
    workspace = scaffold_workspace(tmp_path / "workspace")
    if exploit:
        overlay(EXPLOITS / exploit, workspace)
    bench.build(workspace)
    server = bench.serve(workspace, name="served")
    try:
        found = audit_predictions(bench, server, seed=4, num_requests=2)
    finally:
        server.stop(drain_s=0)
    assert {refusal.reason_class for refusal in found.refusals} == refused
    assert len(found.evidence) == 6
