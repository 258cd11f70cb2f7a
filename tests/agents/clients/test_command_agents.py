"""The core of every command-line agent, with an agent of one file as the client: walls, limits, failures, secrets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from client_bench import (
    DONE,
    KEY,
    MODEL,
    SECRET,
    SECRET_VARIABLE,
    SMALL_AGENT,
    Bench,
    SearchingHost,
    outputs,
    running,
    scripted,
)

from vibeserve.agents.clients import watching
from vibeserve.agents.ledger import Cap
from vibeserve.errors import AgentCapError, AgentInfraError
from vibeserve.hosts import LocalHost
from vibeserve.loopback import Command, Fault, Script, ScriptedServer, Submit
from vibeserve.sandbox import Process, Resources, tree
from vibeserve.spec import Tier

SUBMIT = Submit(DONE)
EDIT = Command("echo 'x = 1' > hello.py && cat hello.py")
TEXT = '{"status": "done", "summary": "wrote hello.py"}'


@pytest.fixture(params=["A", "B"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """In each tier that this machine can build."""
    return Bench(folder=tmp_path, tier=Tier(request.param))


@pytest.fixture
def bench_a(tmp_path: Path) -> Bench:
    return Bench(folder=tmp_path)


def test_a_client_edits_the_workspace_and_answers(bench: Bench) -> None:
    with scripted(EDIT, SUBMIT) as server:
        result = bench.small(server.base_url).run(bench.request())
    assert (bench.workspace / "hello.py").read_text() == "x = 1\n"
    assert result.text == TEXT
    facts = result.exit
    assert (facts.reason, facts.returncode, facts.num_turns, facts.detail) == ("done", 0, 2, "")
    assert facts.seconds > 0
    assert result.transcript[-1].text == TEXT


def test_what_a_call_used_and_cost_is_the_ledger_s(bench_a: Bench) -> None:
    with scripted(EDIT, SUBMIT) as server:
        result = bench_a.small(server.base_url).run(bench_a.request())
    assert len(bench_a.spends) == result.usage.num_requests == 2
    assert result.usage == bench_a.ledger.usage(key=KEY)
    assert result.usd == bench_a.ledger.usd(role="implementer") and result.usd > 0
    assert {(spend.model, spend.backend, spend.is_estimate) for spend in bench_a.spends} == {(MODEL, "command", False)}


def test_the_output_file_is_stronger_than_what_was_printed(bench_a: Bench) -> None:
    argv = [str(SMALL_AGENT), "{base_url}", "{model}", "{prompt_file}", "{output_file}"]
    with scripted(SUBMIT) as server:
        backend = bench_a.small(server.base_url, argv=argv)
        assert backend.run(bench_a.request()).text == TEXT


def test_a_link_in_place_of_the_output_file_is_not_followed(bench_a: Bench) -> None:
    secret = bench_a.folder / "of-the-controller.txt"
    secret.write_text("the controller's own file")
    lure = Command(f'ln -s {secret} "$OUTPUT" && ls -l "$OUTPUT"')
    with scripted(lure, SUBMIT) as server:
        argv = [str(SMALL_AGENT), "{base_url}", "{model}", "{prompt_file}", "{output_file}"]
        backend = bench_a.small(server.base_url, argv=argv, env={"OUTPUT": "{output_file}"})
        result = backend.run(bench_a.request())
    assert "status 0" in outputs(server)
    assert (result.text, result.exit.reason) == ("", "done")


def test_a_reader_cannot_change_the_workspace(bench: Bench) -> None:
    (bench.workspace / "kept.py").write_text("kept\n")
    tries = Command("cat kept.py; echo broken > kept.py; echo > new.py; rm kept.py; mv kept.py other.py; ls")
    with scripted(tries, SUBMIT) as server:
        assert bench.small(server.base_url).run(bench.request(is_writable=False)).text == TEXT
    assert [path.name for path in bench.workspace.iterdir()] == ["kept.py"]
    assert (bench.workspace / "kept.py").read_text() == "kept\n"
    assert "status 0\\nkept" in outputs(server)


def test_only_what_the_request_names_can_be_read(bench: Bench) -> None:
    shown, hidden = bench.folder / "skills", bench.folder / "hidden"
    for folder in (shown, hidden):
        folder.mkdir()
        (folder / "note.md").write_text(f"text of {folder.name}")
    request = bench.request(read_only=(shown,))
    records = request.record_dir
    (records / "earlier.json").write_text("text of the records")
    look = Command(f"cat {shown}/note.md; cat {hidden}/note.md; cat {records}/earlier.json; echo > {shown}/new; ls ~")
    with scripted(look, SUBMIT) as server:
        bench.small(server.base_url).run(request)
    assert "text of skills" in outputs(server)
    assert "text of hidden" not in outputs(server) and "text of the records" not in outputs(server)
    assert not (shown / "new").exists()


def test_engines_and_this_framework_cannot_be_imported(bench: Bench) -> None:
    names = ("vibeserve", "transformers", "accelerate", "numpy")
    tries = Command("; ".join(f"python -c 'import {name}' && echo has-{name}" for name in names))
    with scripted(tries, SUBMIT) as server:
        bench.small(server.base_url).run(bench.request())
    assert [name for name in names if f"has-{name}\\n" in outputs(server)] == ["numpy"]


def test_nothing_of_the_host_s_environment_comes_in(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HTTPS_PROXY", "SSH_AUTH_SOCK", "OF_THE_HOST"):
        monkeypatch.setenv(name, "value-of-the-host")
    monkeypatch.setenv("TZ", "Etc/GMT-5")
    with scripted(Command("env"), SUBMIT) as server:
        bench.small(server.base_url, env={"OWN": "{model}"}).run(bench.request())
    told = outputs(server)
    assert "value-of-the-host" not in told
    assert "TZ=Etc/GMT-5" in told and f"OWN={MODEL}" in told


def test_the_key_is_nowhere_but_in_the_proxy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, SECRET)
    bench.api_key_env = SECRET_VARIABLE
    bench.host = host = SearchingHost(SECRET)
    look = Command("env | tee env.txt; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; env > $HOME/a")
    with scripted(look, SUBMIT, expected_key=SECRET) as server:
        request = bench.request()
        result = bench.small(server.base_url).run(request)
    assert result.text == TEXT
    assert {each.headers["authorization"] for each in server.requests} == {f"Bearer {SECRET}"}
    assert "OPENAI_API_KEY=" in outputs(server) and SECRET not in outputs(server)
    assert host.found == [] and host.num_files >= 3
    kept = [path for path in bench.folder.rglob("*") if path.is_file()]
    assert len(kept) > 4 and [path for path in kept if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in repr(result)


def test_a_cap_ends_the_call_after_the_request_in_flight(tmp_path: Path) -> None:
    bench = Bench(folder=tmp_path, run_cap=Cap(tokens=1))
    with scripted(EDIT, EDIT, EDIT, SUBMIT) as server:
        result = bench.small(server.base_url).run(bench.request())
        assert (result.exit.reason, result.text, len(server.requests)) == ("cap", "", 1)
        assert result.exit.detail.startswith("the run's cap of 1 tokens is reached")
        with pytest.raises(AgentCapError, match=r"raise budget\.tokens"):
            bench.small(server.base_url).run(bench.request())
        assert len(server.requests) == 1


def test_an_endless_tool_loop_ends_with_its_turns(bench_a: Bench) -> None:
    with scripted(Fault("endless")) as server:
        result = bench_a.small(server.base_url).run(bench_a.request(max_turns=4))
        assert len(server.requests) == 4
    assert (result.exit.reason, result.exit.num_turns) == ("max_turns", 4)
    assert result.exit.detail == "all 4 answers of the call are used up"


def test_a_client_that_goes_on_after_its_last_turn_is_ended(bench_a: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "GRACE_S", 0.5)
    with scripted(Fault("endless")) as server:
        backend = bench_a.small(server.base_url, env={"RETRY": "for-ever"})
        result = backend.run(bench_a.request(max_turns=2))
    assert (result.exit.reason, result.exit.returncode) == ("max_turns", 128 + 9)


@pytest.mark.parametrize(
    ("fault", "patience_s", "expected", "is_lasting"),
    [
        (Fault("500", times=0), 1.0, "answered 500: internal error", False),
        (Fault("429", times=0, retry_after_s=0.0), 1.0, "answered 429: too many requests", False),
        (Fault("unauthorised", times=0), 1000.0, "answered 401: this key is not known", True),
    ],
)
def test_a_client_that_asks_for_ever_is_ended_and_the_failure_is_the_api_s(
    bench_a: Bench, fault: Fault, patience_s: float, expected: str, is_lasting: bool
) -> None:
    with scripted(EDIT, fault) as server:
        backend = bench_a.small(server.base_url, env={"RETRY": "for-ever"}, patience_s=patience_s)
        with pytest.raises(AgentInfraError, match=expected) as caught:
            backend.run(bench_a.request())
    assert caught.value.is_lasting is is_lasting


def test_a_failure_that_passes_is_not_the_end(bench_a: Bench) -> None:
    with scripted(Fault("500", times=3), EDIT, Fault("429", retry_after_s=0), SUBMIT) as server:
        result = bench_a.small(server.base_url, env={"RETRY": "for-ever"}, patience_s=20.0).run(bench_a.request())
        assert len(server.requests) == 6
    assert (result.text, result.exit.reason) == (TEXT, "done")


def test_an_unreachable_server_is_no_answer_of_the_agent(bench_a: Bench) -> None:
    with pytest.raises(AgentInfraError, match="cannot be reached") as caught:
        bench_a.small("http://127.0.0.1:9/v1").run(bench_a.request())
    assert not caught.value.is_lasting


def test_a_call_that_takes_too_long_is_killed_as_a_whole(bench: Bench) -> None:
    marker = f"{time.time_ns() % 10**9 + 10**6}"
    with scripted(EDIT, Command(f"sleep {marker} & sleep {marker}"), SUBMIT) as server:
        result = bench.small(server.base_url).run(bench.request(timeout_s=3.0))
    assert (result.exit.reason, result.text) == ("timed_out", "")
    assert result.exit.detail == "killed after its 3 s" and result.exit.num_turns == 2
    assert running(marker) == []


def test_a_model_that_never_answers_is_no_timeout_of_the_agent(bench_a: Bench) -> None:
    with scripted(Fault("hang")) as server, pytest.raises(AgentInfraError, match="answer from the model within 2 s"):
        bench_a.small(server.base_url).run(bench_a.request(timeout_s=2.0))


def test_a_daemon_of_the_agent_does_not_outlive_the_call(bench: Bench) -> None:
    marker = f"{time.time_ns() % 10**9 + 10**6}"
    daemon = f"setsid nohup sh -c 'trap \"\" TERM HUP; exec sleep {marker}' > /dev/null 2>&1 < /dev/null &"
    seen: list[list[int]] = []

    class Steps(Script):
        def __call__(self, key: str) -> Any:
            seen.append(running(marker))
            return (Command(f"{daemon} sleep 0.5; echo begun"), SUBMIT)

    with ScriptedServer(script=Steps()) as server:
        result = bench.small(server.base_url).run(bench.request())
    assert result.text == TEXT
    assert [len(pids) for pids in seen] == [0, 1]
    assert running(marker) == [] and not tree.is_running(seen[1][0])


def test_a_huge_output_does_no_harm(bench_a: Bench) -> None:
    flood = Command("head -c 30000000 /dev/zero | tr '\\0' x > /proc/1/fd/1; head -c 9000000 /dev/zero | tr '\\0' y")
    with scripted(flood, SUBMIT) as server:
        result = bench_a.small(server.base_url).run(bench_a.request())
    assert result.text.endswith(TEXT)
    assert max(len(turn.text) for turn in result.transcript) < 25_000


def test_an_agent_that_fills_the_disk_is_killed(tmp_path: Path) -> None:
    class Small(Bench):
        @property
        def sandbox(self) -> Any:
            from dataclasses import replace

            return replace(super().sandbox, resources=Resources(max_disk_gib=0.02, tmp_gib=0.1))

    bench = Small(folder=tmp_path)
    fill = Command("for i in 1 2 3 4 5 6; do head -c 8000000 /dev/zero > $HOME/$i; done; sleep 30")
    with scripted(fill, SUBMIT) as server:
        result = bench.small(server.base_url).run(bench.request())
    assert (result.exit.reason, result.exit.detail) == ("died", "it ran into a limit: out_of_disk")


def test_what_a_client_wrote_for_itself_is_removed(bench_a: Bench) -> None:
    litter = Command("mkdir -p $HOME/a/b && echo 1 > $HOME/a/b/c && chmod 000 $HOME/a/b $HOME/a && ln -s / $HOME/root")
    with scripted(litter, SUBMIT) as server:
        request = bench_a.request()
        bench_a.small(server.base_url).run(request)
        bench_a.small(server.base_url).run(request)
    assert sorted(path.name for path in request.record_dir.iterdir() if path.is_dir()) == ["given"]
    assert [path.name for path in request.record_dir.glob("*.process.json")] == []


def test_after_a_refused_answer_the_reason_is_in_the_prompt(bench_a: Bench) -> None:
    with scripted(SUBMIT) as server:
        bench_a.small(server.base_url).run(bench_a.request(feedback="summary: 'x' is too short"))
    assert "Your answer could not be used: summary: 'x' is too short" in server.requests[0].body


def test_a_client_that_is_not_installed_is_named_with_its_install_command(bench_a: Bench) -> None:
    backend = bench_a.small("http://127.0.0.1:9/v1", argv=["no-such-agent", "{prompt}"])
    with pytest.raises(AgentInfraError) as caught:
        backend.run(bench_a.request())
    assert caught.value.is_lasting
    assert str(caught.value) == (
        "no-such-agent is not installed: it is in no folder of VIBESERVE_AGENT_PATH or PATH\n"
        "next: install no-such-agent, or name its folder in VIBESERVE_AGENT_PATH"
    )


def test_a_client_that_ends_before_it_asks_is_no_agent_s_fault(bench_a: Bench) -> None:
    backend = bench_a.small("http://127.0.0.1:9/v1", argv=["sh", "-c", "echo unknown flag >&2; exit 2", "{prompt}"])
    with pytest.raises(AgentInfraError) as caught:
        backend.run(bench_a.request())
    assert caught.value.is_lasting
    assert "sh ended with status 2 before the model answered: unknown flag\nnext: " in str(caught.value)


def test_a_key_that_is_missing_is_said_before_anything_starts(
    bench_a: Bench, monkeypatch: pytest.MonkeyPatch, spawned: list[str]
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    bench_a.api_key_env = SECRET_VARIABLE
    with pytest.raises(AgentInfraError, match=SECRET_VARIABLE) as caught:
        bench_a.small("https://api.example.invalid/v1").run(bench_a.request())
    assert caught.value.is_lasting and spawned == []


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Programs that were started behind walls."""
    started: list[str] = []
    spawn: Callable[..., Process] = LocalHost.spawn

    def count(self: LocalHost, argv: list[str], **settings: Any) -> Process:
        started.append(argv[0])
        return spawn(self, argv, **settings)

    monkeypatch.setattr(LocalHost, "spawn", count)
    return started


def test_a_controller_s_end_takes_the_client_along(bench_a: Bench) -> None:
    """An interrupt in the middle of a call: nothing of it is left."""
    marker = f"{time.time_ns() % 10**9 + 10**6}"

    class Interrupted(LocalHost):
        def spawn(self, argv: Any, **settings: Any) -> Process:
            process = super().spawn(argv, **settings)

            def wait(timeout_s: float) -> int | None:
                if running(marker):
                    raise KeyboardInterrupt
                time.sleep(0.05)
                return process.poll()

            process.wait = wait  # type: ignore[method-assign]
            return process

    bench_a.host = Interrupted()
    with scripted(Command(f"sleep {marker}"), SUBMIT) as server, pytest.raises(KeyboardInterrupt):
        bench_a.small(server.base_url).run(bench_a.request())
    assert running(marker) == []
