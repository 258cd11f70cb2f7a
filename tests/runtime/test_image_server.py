"""The image scaffolds as processes: the product's own client asks it, and the product's judge reads what came."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_samples import image_model, tiny_image_dir, tiny_janus_dir
from runtime_process import RunningServer, serving

from vibeserve.accuracy.judging import judge_records
from vibeserve.accuracy.probing import probe_refusals, probe_server, suite_of
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.contract import Pool, Window
from vibeserve.core.nouns import LoadPoint
from vibeserve.core.paths import data_dir
from vibeserve.modalities import Bundle, bundle_ref, measured_values, open_bundle
from vibeserve.skills import assemble, compose_scaffold, load_skills, resolve, write_scaffold

pytestmark = pytest.mark.slow


MODELS = {"tiny_image": tiny_image_dir, "tiny_janus": tiny_janus_dir}
PAIRS = {"tiny_image": "guided-pair-batch", "tiny_janus": "guided-token-pair"}
"""model -> the component that batches both branches of its guidance"""


@pytest.fixture(scope="module", params=sorted(MODELS))
def model_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bundle(model_name: str) -> Bundle:
    spec = compose_spec([f"+target={model_name}_cpu"])
    return open_bundle(bundle_ref(spec, model_dir=MODELS[model_name]()))


@pytest.fixture(scope="module", params=["scaffold", "components"])
def server(
    request: pytest.FixtureRequest, model_name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp(request.param)
    is_whole = request.param == "components"
    names = [PAIRS[model_name], "packed-image-linears"] if is_whole else []
    components = resolve(names, load_skills(data_dir("skills")))
    parameters = {"image_linear_dtype": "bfloat16"} if is_whole else {}
    scaffold = write_scaffold(compose_scaffold(image_model(model_name)), folder / "scaffold")
    assemble(scaffold, components, parameters, folder / "workspace")
    with serving(folder / "workspace", MODELS[model_name](), log=folder / "server.log") as running:
        yield running


def test_drawn_images_pass_the_judge(
    server: RunningServer, bundle: Bundle, model_name: str, tmp_path: Path
) -> None:  # fmt: skip
    session = LoadSession(
        bundle=bundle, base_url=server.url, dialect="vllm", model=model_name, name="drawers",
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
