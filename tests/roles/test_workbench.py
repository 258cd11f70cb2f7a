"""What the bench reads from a server that it does not trust, and the cache of native builds."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loop_fakes import FakeServer

from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import RefusedError, ServerError
from vibeserve.roles import workbench
from vibeserve.roles.workbench import Workbench, parse_spans, span_shares


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
        tokenizer=None,
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
    """Workspaces whose build step really ran; it copies the source."""
    ran: list[str] = []

    def build(workspace: Path, **_: Any) -> None:
        ran.append(workspace.name)
        (workspace / "build").mkdir(exist_ok=True)
        (workspace / "build/model.so").write_text((workspace / "runtime/model.cpp").read_text())

    monkeypatch.setattr(workbench, "build_workspace", build)
    return ran


def workspace_of(root: Path, name: str, *, source: str, parameters: str = "") -> Path:
    (root / name / "runtime").mkdir(parents=True)
    (root / name / "runtime/model.cpp").write_text(source)
    (root / name / "runtime/parameters.py").write_text(parameters)
    return root / name


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    sandbox = SimpleNamespace(build_timeout_s=1.0)
    return bench_with(None, tmp_path / "run", spec=SimpleNamespace(allow_engines=[], sandbox=sandbox))


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


def test_a_failed_warm_up_names_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailedSession:
        def __init__(self, *, requests: Any, **_: Any) -> None:
            self.requests: list[PromptRequest] = list(requests)

        def start(self) -> None: ...

        def wait(self, *, timeout_s: float) -> None: ...

        def stop(self) -> list[Any]:
            return [SimpleNamespace(error=None), SimpleNamespace(error="HTTP 500")][: len(self.requests)]

    monkeypatch.setattr(workbench, "LoadSession", FailedSession)
    request = PromptRequest(request_id="w", prompt="a", num_prompt_tokens=1, max_tokens=9)
    monkeypatch.setattr(workbench, "request_stream", lambda *_, **__: iter([request] * 3))
    spec = SimpleNamespace(workload=None)
    bench = bench_with(EchoHost(""), tmp_path, spec=spec)
    with pytest.raises(ServerError, match="server 'r01a1' died: warm-up failed: HTTP 500"):
        bench.warm_up(server(), model="tiny")


def test_a_build_step_may_leave_libraries_only(tmp_path: Path) -> None:
    build = tmp_path / "build"
    build.mkdir()
    (build / "libforward.so").write_bytes(b"x")
    workbench.refuse_foreign_output(build)
    (build / "turbo.py").write_text("", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"left build/turbo\.py; it may leave build/\*\.so only") as info:
        workbench.refuse_foreign_output(build)
    assert info.value.reasons[0].reason_class == "foreign_output"  # type: ignore[attr-defined]
