"""The image scaffold as a process: the product's own client asks it, and the product's judge reads what came."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_samples import tiny_image_dir
from runtime_process import RunningServer, serving

from vibeserve.accuracy.judging import judge_records
from vibeserve.accuracy.probing import probe_refusals, probe_server, suite_of
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.contract import Pool, Window
from vibeserve.core.nouns import LoadPoint
from vibeserve.core.paths import data_dir
from vibeserve.modalities import Bundle, bundle_ref, measured_values, open_bundle
from vibeserve.skills import assemble, load_skills, resolve

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(bundle_ref(compose_spec(["+target=tiny_image_cpu"]), model_dir=tiny_image_dir()))


@pytest.fixture(scope="module", params=["scaffold", "components"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp(request.param)
    is_whole = request.param == "components"
    names = ["guided-pair-batch", "packed-image-linears"] if is_whole else []
    components = resolve(names, load_skills(data_dir("skills")))
    parameters = {"image_linear_dtype": "bfloat16"} if is_whole else {}
    assemble(data_dir("templates") / "runtime/image", components, parameters, folder / "workspace")
    with serving(folder / "workspace", tiny_image_dir(), log=folder / "server.log") as running:
        yield running


def test_drawn_images_pass_the_judge(server: RunningServer, bundle: Bundle, tmp_path: Path) -> None:
    session = LoadSession(
        bundle=bundle, base_url=server.url, dialect="vllm", model="tiny_image", name="drawers",
        load=LoadPoint(name="c2", concurrency=2), requests=itertools.islice(bundle.load_requests(3, Pool.visible), 4),
    )  # fmt: skip
    session.start()
    try:
        session.wait(timeout_s=60)
    finally:
        records = session.stop()
    assert [record.error for record in records] == [None] * 4
    judged = judge_records(records, bundle=bundle.ref, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path)
    assert judged.refusals == ()
    assert judged.figures["num_images"] == 4
    found = measured_values(bundle, records, [Window(start_s=0, end_s=60)])
    assert found["num_images"] == 4 and found["e2el_p50"] > 0 and found["image_throughput"] > 0


def test_it_passes_the_probes(server: RunningServer, bundle: Bundle, tmp_path: Path) -> None:
    report = probe_server(server.url, bundle=bundle, seed=5, run_dir=tmp_path)
    assert probe_refusals(report, suite=suite_of(bundle)) == []
