"""The reference's network as baselines: what they are made of, and that the gate passes them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from image_samples import image_model, tiny_image_dir, tiny_janus_dir

from vibeserve.accuracy.judging import judge_records
from vibeserve.baselines import PEERS, PeerOptions
from vibeserve.client import LoadSession
from vibeserve.config import compose_spec
from vibeserve.contract import Pool
from vibeserve.core.nouns import LoadPoint
from vibeserve.hosts import get_host
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.service import start_server
from vibeserve.skills import compose_scaffold, write_scaffold
from vibeserve.spec import BaselineClass, Tier

NAMES = ("reference", "reference_tuned")


MODELS = {"tiny_image": tiny_image_dir, "tiny_janus": tiny_janus_dir}


def options(tmp_path: Path, dtype: str, *, model: str = "tiny_image", model_dir: Path = Path("model")) -> PeerOptions:
    return PeerOptions(
        model_dir=model_dir, dtype=dtype, max_concurrency=1, max_sequence_tokens=64, scratch_dir=tmp_path,
        scaffold=write_scaffold(compose_scaffold(image_model(model)), tmp_path / "scaffold"),
    )  # fmt: skip


def test_they_say_what_they_are() -> None:
    assert [PEERS[name].baseline_class for name in NAMES] == [BaselineClass.naive, BaselineClass.competent]
    assert [PEERS[name].dtypes for name in NAMES] == [("f32",), ("f32", "bf16")]
    assert all(PEERS[name].installed_version() for name in NAMES)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(
    ("name", "dtype", "flavour", "replaced"),
    [
        ("reference", "f32", 'DTYPE = "float32"\nIS_COMPILED = False\n', ["model"]),
        ("reference_tuned", "bf16", 'DTYPE = "bfloat16"\nIS_COMPILED = True\n', ["linear", "model"]),
    ],
)
def test_their_modules_lie_over_the_scaffolds(
    tmp_path: Path, model: str, name: str, dtype: str, flavour: str, replaced: list[str]
) -> None:
    launch = PEERS[name].launch(options(tmp_path, dtype, model=model))
    runtime = launch.workdir / "runtime"
    assert (runtime / "flavour.py").read_text().endswith(flavour)
    assert sorted(path.stem.removeprefix("scaffold_") for path in runtime.glob("scaffold_*.py")) == replaced
    assert bool(launch.writable) is (name == "reference_tuned") is ("TORCHINDUCTOR_CACHE_DIR" in launch.env)
    assert all("baseline's workspace" in (runtime / f"{module}.py").read_text() for module in replaced)
    assert (runtime / "compiled_blocks.py").is_file() is (name == "reference_tuned")


@pytest.mark.audit
@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize(("name", "dtype"), [("reference", "f32"), ("reference_tuned", "bf16")])
def test_the_gate_passes_what_they_serve(tmp_path: Path, model: str, name: str, dtype: str) -> None:
    model_dir = MODELS[model]()
    spec = compose_spec([f"+target={model}_cpu"])
    bundle = open_bundle(bundle_ref(spec, model_dir=model_dir))
    peer, chosen = PEERS[name], options(tmp_path, dtype, model=model, model_dir=model_dir)
    server = start_server(
        peer.launch(chosen), host=get_host(spec.host), tier=Tier.C, cpus=(0,), threads=1, run_dir=tmp_path / "run"
    )
    try:
        requests = itertools.islice(bundle.load_requests(7, Pool.visible), 3)
        session = LoadSession(
            bundle=bundle, base_url=server.base_url, dialect=peer.dialect, model=peer.model_name(chosen), name=name,
            load=LoadPoint(name="c1", concurrency=1), requests=requests,
        )  # fmt: skip
        session.start()
        try:
            session.wait(timeout_s=120)
        finally:
            records = session.stop()
    finally:
        server.stop(drain_s=0)
    assert [record.error for record in records] == [None] * 3
    judged = judge_records(records, bundle=bundle.ref, num_threads=1, max_replies=0, seed=1, run_dir=tmp_path / "judge")
    assert judged.refusals == ()
