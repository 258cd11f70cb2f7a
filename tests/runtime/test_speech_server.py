"""The speech scaffold as a process: the product's own client speaks to it, and the product's judge reads what came."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from runtime_process import RunningServer, serving
from speech_samples import tiny_speech_dir

from vibeserve.accuracy.judging import judge_records
from vibeserve.accuracy.probing import probe_refusals, probe_server, suite_of
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.contract import CUT, Pool, Record, Window
from vibeserve.core.nouns import LoadPoint
from vibeserve.core.paths import data_dir
from vibeserve.modalities import Bundle, bundle_ref, measured_values, open_bundle
from vibeserve.skills import assemble, load_skills, resolve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(bundle_ref(compose_spec(["+target=tiny_speech_cpu"]), model_dir=tiny_speech_dir()))


@pytest.fixture(scope="module", params=["scaffold", "components"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp(request.param)
    names = ["batched-speech-sessions"] if request.param == "components" else []
    components = resolve(names, load_skills(data_dir("skills")))
    assemble(data_dir("templates") / "runtime/speech", components, {}, folder / "workspace")
    with serving(folder / "workspace", tiny_speech_dir(), log=folder / "server.log") as running:
        yield running


def load(server: RunningServer, bundle: Bundle, *, num: int, stop_after_s: float = 0.0) -> list[Record]:
    """Records of `num` recordings of two speakers; cut off after a while where that is given."""
    session = LoadSession(
        bundle=bundle, base_url=server.url, dialect="vllm", model="tiny_speech", name="speakers",
        load=LoadPoint(name="c2", concurrency=2), requests=itertools.islice(bundle.load_requests(3, Pool.visible), num),
    )  # fmt: skip
    session.start()
    try:
        if stop_after_s:
            time.sleep(stop_after_s)
        else:
            session.wait(timeout_s=60)
    finally:
        records = session.stop()
    return records


def test_spoken_recordings_pass_the_judge(server: RunningServer, bundle: Bundle, tmp_path: Path) -> None:
    records = load(server, bundle, num=4)
    assert [record.error for record in records] == [None] * 4
    judged = judge_records(records, bundle=bundle.ref, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)
    assert judged.refusals == ()
    assert judged.figures["num_tokens"] > 40 and judged.figures["top1"] == 1.0
    found = measured_values(bundle, records, [Window(start_s=0, end_s=60)])
    assert found["num_chunks"] == sum(record.request.payload["duration_ms"] // 250 for record in records)
    assert found["realtime_sessions"] > 0 and found["time_to_partial_p50"] > 0
    for record in records:
        assert record.end_s - record.sent_s >= record.request.payload["duration_ms"] / 1000


def test_a_load_that_ends_keeps_what_came(server: RunningServer, bundle: Bundle) -> None:
    records = load(server, bundle, num=2, stop_after_s=0.7)
    assert [record.error for record in records] == [CUT, CUT]
    assert all(record.served is not None and record.served["final"] is None for record in records)


def test_it_passes_the_probes(server: RunningServer, bundle: Bundle, tmp_path: Path) -> None:
    report = probe_server(server.url, bundle=bundle, seed=5, run_dir=tmp_path)
    assert probe_refusals(report, suite=suite_of(bundle)) == []
