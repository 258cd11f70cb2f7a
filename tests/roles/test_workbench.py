"""What the bench reads from a server that it does not trust, and the cache of native builds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from load_samples import word_model_dir
from loop_fakes import FakeServer

from vibeserve.errors import RefusedError, ServerError
from vibeserve.roles import workbench
from vibeserve.roles.workbench import Workbench, parse_spans, span_shares
from vibeserve.spec import Hardware, Load, Sandbox, Spec, Workload
from vibeserve.workloads import Pool


def test_spans_are_read_from_the_exposition() -> None:
    text = """# TYPE vibeserve_span_seconds_total counter
vibeserve_span_seconds_total{span="prefill"} 1.5
vibeserve_span_seconds_total{span="decode.linear",engine="0"} 2e-05
vibeserve_span_seconds_total{span="decode.linear",engine="1"} 1
vllm:num_requests_running 3
"""
    assert parse_spans(text) == {"prefill": 1.5, "decode.linear": 1.00002}


@pytest.mark.parametrize(
    "line",
    [
        'vibeserve_span_seconds_total{span="prefill"} NaN', 'vibeserve_span_seconds_total{span="prefill"} +Inf',
        'vibeserve_span_seconds_total{span="prefill"} -3', 'vibeserve_span_seconds_total{span="prefill"}',
        'vibeserve_span_seconds_total{span="prefill"} many', 'vibeserve_span_seconds_total{span="prefill"} 9e999',
        'vibeserve_span_seconds_total{span="of its own"} 1.0', 'vibeserve_span_seconds_total{span="',
        'vibeserve_span_seconds_total{} 1.0', "\x00",
    ],
)  # fmt: skip
def test_what_is_no_span_or_no_number_is_left_out(line: str) -> None:
    assert parse_spans(line) == {}


def test_shares_are_of_what_was_spent_between_two_readings() -> None:
    shares = span_shares({"queue": 1.0, "prefill": 4.0}, {"queue": 2.0, "prefill": 1.0, "http": 3.0})
    # a counter that went backwards (another process) spent nothing
    assert shares == {"http": 0.75, "prefill": 0.0, "queue": 0.25}
    assert span_shares({"queue": 1.0}, {"queue": 1.0}) == {}


def bench_with(host: Any, run_dir: Path, **plan: Any) -> Workbench:
    values: dict[str, Any] = {"client_cpus": (0,), "spec": SimpleNamespace(allow_engines=[], sandbox=None)}
    return Workbench(
        plan=SimpleNamespace(**(values | plan)),
        host=host,
        tier=None,
        model=None,
        run_dir=run_dir,  # type: ignore[arg-type]
    )


class EchoHost:
    """Runs another child instead of the one that fetches."""

    def __init__(self, code: str) -> None:
        self.code = code

    def join_argv(self, process: Any, argv: list[str], *, cpus: tuple[int, ...] = ()) -> list[str]:
        return [sys.executable, "-c", self.code]


def server() -> Any:
    fake: Any = FakeServer("r01a1")
    fake.process = None
    return fake


@pytest.mark.parametrize("body", ['{"data": []}', '{"data": 3}', "[]", "not JSON", '{"data": [{}]}'])
def test_a_server_that_lists_no_model_is_refused_by_name(tmp_path: Path, body: str) -> None:
    bench = bench_with(EchoHost(f"print({body!r})"), tmp_path)
    with pytest.raises(ServerError, match="server 'r01a1' died: /v1/models lists no model"):
        bench.model_name(server())


def test_the_first_listed_model_is_the_name_to_send(tmp_path: Path) -> None:
    bench = bench_with(EchoHost("""print('{"data": [{"id": "tiny"}, {"id": "other"}]}')"""), tmp_path)
    assert bench.model_name(server()) == "tiny"


def test_a_failed_fetch_carries_the_reason_and_the_log(tmp_path: Path) -> None:
    bench = bench_with(EchoHost("import sys; sys.exit('GET /metrics: connection refused')"), tmp_path)
    with pytest.raises(ServerError, match=r"connection refused\n  \| the last line of the log"):
        bench.fetch(server(), "/metrics")


def test_an_answer_that_never_ends_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that yields a byte now and then never runs into the timeout of one read."""
    monkeypatch.setattr(workbench, "FETCH_LIMIT_S", 0.3)
    bench = bench_with(EchoHost("import time; time.sleep(60)"), tmp_path)
    with pytest.raises(ServerError) as caught:
        bench.fetch(server(), "/metrics")
    assert caught.value.outcome == "timed_out"


def test_bytes_that_are_no_text_do_not_end_the_run(tmp_path: Path) -> None:
    bench = bench_with(EchoHost(r"import sys; sys.stdout.buffer.write(b'\xff\xfe')"), tmp_path)
    assert bench.request_spans(server()) == {}


# -- builds


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Workspaces whose build step really ran; it copies the source, which no loader would take for a library."""
    ran: list[str] = []

    def build(workspace: Path, **_: Any) -> None:
        ran.append(workspace.name)
        (workspace / "build").mkdir(exist_ok=True)
        (workspace / "build/model.so").write_text((workspace / "runtime/model.cpp").read_text())

    monkeypatch.setattr(workbench, "build_workspace", build)
    monkeypatch.setattr(workbench, "check_libraries", lambda workspace: [])
    return ran


def workspace_of(root: Path, name: str, *, source: str, parameters: str = "") -> Path:
    (root / name / "runtime").mkdir(parents=True)
    (root / name / "runtime/model.cpp").write_text(source)
    (root / name / "runtime/parameters.py").write_text(parameters)
    return root / name


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    spec = SimpleNamespace(allow_engines=[], sandbox=Sandbox(build_timeout_s=1.0), hardware=Hardware(name="cpu"))
    return bench_with(None, tmp_path / "run", spec=spec)


def test_the_same_sources_are_built_once_whatever_the_parameters(
    bench: Workbench, tmp_path: Path, built: list[str]
) -> None:
    one = workspace_of(tmp_path, "one", source="a", parameters="threads = 1")
    two = workspace_of(tmp_path, "two", source="a", parameters="threads = 2")
    other = workspace_of(tmp_path, "other", source="b")
    for workspace in (one, two, other, one):
        bench.build(workspace)
    assert built == ["one", "other"]
    assert (two / "build/model.so").read_text() == "a"
    assert (other / "build/model.so").read_text() == "b"


def test_what_lay_in_build_does_not_stay_there(bench: Workbench, tmp_path: Path, built: list[str]) -> None:
    workspace = workspace_of(tmp_path, "one", source="a")
    (workspace / "build").mkdir()
    (workspace / "build/planted.so").write_text("x")
    bench.build(workspace)
    bench.build(workspace)
    assert [path.name for path in (workspace / "build").iterdir()] == ["model.so"]


def test_a_copy_that_was_interrupted_is_no_build(
    bench: Workbench, tmp_path: Path, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def half(source: Path, destination: Path) -> None:
        destination.mkdir(parents=True)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(workbench.shutil, "copytree", half)
        with pytest.raises(Killed):
            bench.build(workspace_of(tmp_path, "one", source="a"))
    two = workspace_of(tmp_path, "two", source="a")
    bench.build(two)
    assert built == ["one", "two"]
    assert (two / "build/model.so").read_text() == "a"


class FakeLoad:
    """Takes the place of a load session: keeps how it was made, and answers every request with `errors` in turn."""

    made: ClassVar[list[dict[str, Any]]] = []
    errors: ClassVar[tuple[str | None, ...]] = (None,)

    def __init__(self, *, requests: Iterator[Any], **options: Any) -> None:
        self.requests = list(islice(requests, 20))
        FakeLoad.made.append({"requests": self.requests, **options})

    def start(self) -> None: ...

    def wait(self, *, timeout_s: float) -> None: ...

    def stop(self) -> list[Any]:
        return [SimpleNamespace(error=self.errors[n % len(self.errors)]) for n in range(len(self.requests))]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How every load of this test was made."""
    FakeLoad.made, FakeLoad.errors = [], (None,)
    monkeypatch.setattr(workbench, "LoadSession", FakeLoad)
    return FakeLoad.made


def text_bench(tmp_path: Path, **workload: Any) -> Workbench:
    """A bench over text and the tiny tokenizer of the tests."""
    declared = {"prompt_tokens_min": 20, "prompt_tokens_max": 30, "output_tokens_min": 40, "output_tokens_max": 50}
    spec = Spec(workload=Workload(kind="chat", **(declared | workload)))
    bench = bench_with(EchoHost(""), tmp_path, spec=spec)
    return replace(bench, model=SimpleNamespace(path=word_model_dir()))  # type: ignore[arg-type]


def test_a_failed_warm_up_names_the_server(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    FakeLoad.errors = (None, "HTTP 500")
    with pytest.raises(ServerError, match="server 'r01a1' died: warm-up failed: HTTP 500"):
        text_bench(tmp_path).warm_up(server(), model="tiny")


def test_a_warm_up_is_two_short_requests_without_log_probabilities(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    text_bench(tmp_path).warm_up(server(), model="tiny", dialect="llama_cpp")
    (made,) = loads
    assert [(request.max_tokens, request.logprobs) for request in made["requests"]] == [(8, 0)] * 2
    assert (made["dialect"], made["model"]) == ("llama_cpp", "tiny")


def test_a_load_asks_as_it_is_declared_and_a_rival_is_asked_the_same_without_log_probabilities(
    tmp_path: Path, loads: list[dict[str, Any]]
) -> None:
    bench = text_bench(
        tmp_path, loads={"c4": Load(concurrency=4), "long": Load(concurrency=4, output_tokens=99)}
    )  # fmt: skip
    for load, is_plain in (("c4", False), ("c4", True), ("long", True)):
        bench.session(server(), load=load, pool=Pool.selection, seed=3, model="tiny", is_plain=is_plain)
    ours, rival, longer = (made["requests"] for made in loads)
    assert any(request.logprobs for request in ours) and not any(request.logprobs for request in rival)
    assert [replace(request, logprobs=0) for request in ours] == rival
    assert {request.max_tokens for request in longer} == {99}
    assert all(40 <= request.max_tokens <= 50 for request in ours)
    assert [made["load"].name for made in loads] == ["c4", "c4", "long"]


def test_a_build_step_may_leave_libraries_only(tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    (build / "libforward.so").write_bytes(b"x")
    workbench.refuse_foreign_output(build)
    (build / "turbo.py").write_text("", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"left build/turbo\.py; it may leave build/\*\.so only") as info:
        workbench.refuse_foreign_output(build)
    assert info.value.reasons[0].reason_class == "foreign_output"  # type: ignore[attr-defined]
