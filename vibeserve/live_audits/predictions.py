"""Predicted outputs: a prediction, of whatever quality, changes no token of the server's own greedy reply (class 17).

The workload's own requests go out twice without a prediction, then with each kind that a load declares. Every reply has
to be the second plain one, token for token: a server that keeps prefixes may round otherwise from the second time on.
All replies are evidence for the accuracy gate, which also bounds what they say of predictions in `usage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from vibeserve.contract import Pool, Record, Request
from vibeserve.core.nouns import Reply
from vibeserve.live_audits.decisions import failed_problem
from vibeserve.live_audits.driving import drive
from vibeserve.live_audits.nouns import Audited, audited, not_applicable
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.spec import Workload
from vibeserve.workloads import at_load

NAME = "predicted_outputs"
REASON = "prediction_changes_tokens"
NUM_REQUESTS = 6
MAX_OUTPUT_TOKENS = 64
"""enough for several edits of a prediction; longer replies only take longer"""
PLAIN, AGAIN = "plain", "plain again"


def kinds_of(workload: Workload) -> list[str]:
    """Kinds of prediction that clients send under any load."""
    kinds = {at_load(workload, name).prediction for name in workload.loads}
    return sorted(kinds - {"none"}) if workload.kind == "code_edit" else []


def audit_predictions(bench: Workbench, server: Server, *, seed: int, num_requests: int = NUM_REQUESTS) -> Audited:
    """Refuses `prediction_changes_tokens`."""
    kinds = kinds_of(bench.plan.spec.workload)
    if not kinds:
        return not_applicable(NAME, "predicted-outputs audit: no load declares a prediction")
    rows: dict[str, list[Request]] = {PLAIN: _requests(bench, "none", seed=seed, num=num_requests)}
    rows |= {AGAIN: rows[PLAIN]} | {kind: _requests(bench, kind, seed=seed, num=num_requests) for kind in kinds}
    blocks = [[request] for row in rows.values() for request in row]
    records = [record for block in drive(bench, server, blocks, name=REASON) for record in block]
    problem = failed_problem(records, num_sent=len(blocks))
    if problem:
        return audited(NAME, text="", figures={}, refused={REASON: problem}, evidence=records)
    replies = {name: records[place * num_requests :][:num_requests] for place, name in enumerate(rows)}
    return judge_predictions(replies)


def judge_predictions(replies: Mapping[str, Sequence[Record]]) -> Audited:
    """Pure: `replies` by what was predicted, `PLAIN` and `AGAIN` among them, of the same requests in order."""
    evidence = [record for row in replies.values() for record in row]
    right = [_ids(record) for record in replies[AGAIN]]
    steady = [place for place, record in enumerate(replies[PLAIN]) if _ids(record) == right[place]]
    if not steady:
        text = f"none of {len(right)} requests gives the same greedy tokens twice"
        return audited(NAME, text="", figures={}, refused={REASON: text}, evidence=evidence)
    faults = [
        f"{kind}, from token {_num_same(_ids(row[place]), right[place]) + 1} on"
        for kind, row in replies.items()
        for place in steady
        if _ids(row[place]) != right[place]
    ]
    num_compared = len(steady) * (len(replies) - 2)
    figures = {"num_compared": num_compared, "num_changed": len(faults), "num_unsteady": len(right) - len(steady)}
    told = f"{len(faults)} of {num_compared} predictions change greedy tokens"
    refused = {REASON: f"{told} ({faults[0]})"} if faults else {}
    text = f"{num_compared} replies with predictions are token for token those without"
    return audited(NAME, text=text, figures=figures, refused=refused, evidence=evidence)


def _requests(bench: Workbench, kind: str, *, seed: int, num: int) -> list[Request]:
    """The workload's own, with predictions of a kind, of at most so many tokens."""
    spec = bench.plan.spec
    most = min(MAX_OUTPUT_TOKENS, spec.workload.output_tokens_max)
    workload = replace(
        spec.workload, prediction=kind, predictions_ahead=num, output_tokens_max=most,
        output_tokens_min=min(spec.workload.output_tokens_min, most),
    )  # fmt: skip
    bundle = open_bundle(bundle_ref(replace(spec, workload=workload), model_dir=bench.model.path))
    return [bundle.plain(request) for request in islice(bundle.load_requests(seed, Pool.certification), num)]


def _ids(record: Record) -> tuple[int, ...]:
    return record.token_ids if isinstance(record, Reply) else ()


def _num_same(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))
