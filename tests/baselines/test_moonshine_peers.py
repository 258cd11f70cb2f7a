"""The stock speech servers as baselines: their windows are exact, and the gate passes them in both dtypes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from speech_samples import tiny_speech_dir

from vibeserve.accuracy.judging import judge_records
from vibeserve.baselines import PEERS, PeerOptions
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.contract import Pool
from vibeserve.core.nouns import LoadPoint
from vibeserve.core.paths import data_dir
from vibeserve.hosts import get_host
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.service import start_server
from vibeserve.spec import BaselineClass, Tier

NAMES = ("moonshine_full", "moonshine_window")


def options(tmp_path: Path, dtype: str) -> PeerOptions:
    return PeerOptions(
        model_dir=tiny_speech_dir(), dtype=dtype, max_concurrency=2, max_sequence_tokens=32, scratch_dir=tmp_path,
        scaffold=data_dir("templates") / "runtime" / "speech",
    )  # fmt: skip


def test_they_say_what_they_are() -> None:
    assert [PEERS[name].baseline_class for name in NAMES] == [BaselineClass.naive, BaselineClass.competent]
    assert all(PEERS[name].installed_version() for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [("moonshine_full", "f32"), ("moonshine_window", "bf16"), ("moonshine_window", "f32")]
)
def test_the_gate_passes_what_they_serve(tmp_path: Path, name: str, dtype: str) -> None:
    spec = compose_spec(["+target=tiny_speech_cpu"])
    bundle = open_bundle(bundle_ref(spec, model_dir=tiny_speech_dir()))
    peer, chosen = PEERS[name], options(tmp_path, dtype)
    server = start_server(
        peer.launch(chosen), host=get_host(spec.host), tier=Tier.C, cpus=(0,), threads=1, run_dir=tmp_path / "run"
    )
    try:
        requests = itertools.islice(bundle.load_requests(7, Pool.visible), 4)
        session = LoadSession(
            bundle=bundle, base_url=server.base_url, dialect=peer.dialect, model=peer.model_name(chosen), name=name,
            load=LoadPoint(name="c2", concurrency=2), requests=requests,
        )  # fmt: skip
        session.start()
        try:
            session.wait(timeout_s=60)
        finally:
            records = session.stop()
    finally:
        server.stop(drain_s=0)
    assert [record.error for record in records] == [None] * 4
    judged = judge_records(records, bundle=bundle.ref, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path / "judge")
    assert judged.refusals == ()
    assert dtype == "bf16" or judged.figures["top1"] == 1.0
