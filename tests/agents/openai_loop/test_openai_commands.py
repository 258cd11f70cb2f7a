"""Tool run_command: what a command can do and what the wall refuses it, in every tier of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_model import ScriptedModel, call, submit

from vibeserve.errors import InfraError
from vibeserve.sandbox import Resources, probe_tiers
from vibeserve.spec import Tier


@pytest.fixture(params=["A", "B"])
def tier(request: pytest.FixtureRequest) -> Tier:
    """Each tier that this machine can build."""
    state = probe_tiers()[request.param]
    if state != "available":
        pytest.skip(f"tier {request.param}: {state}")
    return Tier(request.param)


@pytest.fixture
def outputs(make_backend, make_request, make_sandbox, tier: Tier) -> Callable[..., list[str]]:
    """What commands of one call print, each behind its own wall."""

    def run(*commands: str, sandbox: dict[str, object] | None = None, **changes: object) -> list[str]:
        calls = [call("run_command", command=command) for command in commands]
        model = ScriptedModel(replies=[*calls, submit()])
        backend = make_backend(model, sandbox=make_sandbox(tier=tier, **(sandbox or {})))
        assert backend.run(make_request(**changes)).exit.reason == "done"
        return model.results()

    return run


def test_status_and_both_outputs(outputs) -> None:
    first, second = outputs("echo out; echo err >&2; exit 3", "true")
    assert first.startswith("[exit status 3 after ") and first.endswith("\nout\nerr")
    assert second.endswith("\n[no output]")


def test_a_command_works_in_the_workspace(outputs, workspace: Path) -> None:
    (told,) = outputs("pwd; cat runtime/model.py; echo x > made; python -c 'import torch, sys; print(sys.prefix)'")
    assert told.startswith("[exit status 0") and str(workspace) in told and "return x * 2" in told
    assert (workspace / "made").read_text() == "x\n"


def test_the_evaluators_files_are_out_of_reach(outputs, tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "secret").write_text("golden")
    (workspace / "link").symlink_to(tmp_path / "secret")
    records = tmp_path / "records"
    ours = f"/proc/{os.getpid()}/environ"
    tried = (f"{tmp_path}/secret", f"{records}/exchanges.jsonl", "link", __file__, "/etc/shadow", ours)
    told = outputs(*(f"cat {path}" for path in tried), f"echo x > {tmp_path}/planted; rm -rf {records}")
    assert (records / "exchanges.jsonl").is_file()
    assert all(text.startswith("[exit status 1") for text in told[:-1]), told
    assert "golden" not in "".join(told) and "instructions" not in "".join(told)
    assert not (tmp_path / "planted").exists()


def test_there_is_no_network(outputs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        told = outputs(connecting("127.0.0.1", port), connecting("192.0.2.1", 443))
    assert all(text.startswith("[exit status 1") and "Error" in text for text in told), told


def connecting(host: str, port: int) -> str:
    return f"python -c 'import socket; socket.create_connection((\"{host}\", {port}), 3)'"


def test_no_secret_is_in_the_environment(outputs, monkeypatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abc-secret")
    (told,) = outputs("env", sandbox={"env": {"OMP_NUM_THREADS": "3"}})
    assert "OMP_NUM_THREADS=3" in told
    assert "MY_TOKEN" not in told and "OPENAI" not in told


def test_the_framework_and_engines_are_hidden(outputs) -> None:
    hidden, numpy, allowed = (
        "import vibeserve", "import numpy; print(1)", "import transformers.utils.versions; print('here')"
    )  # fmt: skip
    first, second, third = outputs(*(f'python -c "{code}"' for code in (hidden, numpy, allowed)))
    assert "No module named 'vibeserve'" in first and second.endswith("\n1")
    assert "No module named 'transformers'" in third
    (again,) = outputs(f'python -c "{allowed}"', sandbox={"allow_engines": ("transformers",)})
    assert again.endswith("\nhere"), again


def test_the_model_and_the_skills_can_be_read_and_not_changed(outputs, tmp_path: Path) -> None:
    model, given = tmp_path / "model", tmp_path / "given"
    (model / "f32").mkdir(parents=True)
    (model / "f32" / "w").write_text("weights")
    (model / "reference.json").write_text("golden")
    given.mkdir()
    (given / "note").write_text("note")
    commands = (
        'cat "$VIBESERVE_MODEL_DIR/f32/w"', f"cat {given}/note", f"echo x > {given}/note",
        f"cat {model}/reference.json", f"echo x > {model}/f32/w",
    )  # fmt: skip
    told = outputs(*commands, sandbox={"model_dir": model}, read_only=(given,))
    assert told[0].endswith("\nweights") and told[1].endswith("\nnote")
    assert all(text.startswith("[exit status 1") for text in told[2:]), told
    assert ((model / "f32" / "w").read_text(), (given / "note").read_text()) == ("weights", "note")


def test_a_readers_command_changes_nothing(outputs, workspace: Path) -> None:
    write, read = outputs("echo x > a; rm README.md; echo x >> README.md", "cat README.md", is_writable=False)
    assert not write.startswith("[exit status 0") and read.endswith("\na runtime")
    assert sorted(path.name for path in workspace.iterdir()) == ["README.md", "runtime"]


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mark = time.monotonic_ns()
        while True:
            time.sleep(0.02)
            open("alive", "w").write(str(mark))
    os._exit(0)
print("started")
while not os.path.exists("alive"):
    time.sleep(0.01)
"""


class Watch:
    """Pids of every process that has `word` in its command line, looked for all the time."""

    def __init__(self, word: str) -> None:
        self.seen: set[int] = set()
        self._word = word.encode()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def running(self) -> set[int]:
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._word in (process / "cmdline").read_bytes():
                    found.add(int(process.name))
        return found

    def _look(self) -> None:
        while not self._ended.wait(0.02):
            self.seen |= self.running()


def test_a_daemon_does_not_outlive_its_command(outputs, workspace: Path) -> None:
    script = f"daemon-{uuid.uuid4().hex}.py"
    (workspace / script).write_text(DAEMON)
    with Watch(script) as watch:
        (told,) = outputs(f"python {script}")
    assert told.startswith("[exit status 0") and told.endswith("started")
    assert (workspace / "alive").exists() and watch.seen, "the daemon was up, and seen"
    assert watch.running() == set()


def test_a_command_that_takes_too_long_is_killed_with_all_it_started(
    make_backend, make_request, make_sandbox, workspace: Path, tier: Tier
) -> None:
    script = f"daemon-{uuid.uuid4().hex}.py"
    (workspace / script).write_text(DAEMON)
    commands = [call("run_command", command=f"python {script}; sleep 600", timeout_s=3), submit()]
    model = ScriptedModel(replies=commands)
    with Watch(script) as watch:
        make_backend(model, sandbox=make_sandbox(tier=tier)).run(make_request())
    (told,) = model.results()
    assert told.startswith("[killed after 3 s]\n"), told
    assert watch.seen and watch.running() == set()


def test_a_huge_output_keeps_its_ends(outputs, tmp_path: Path) -> None:
    (told,) = outputs("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert told.startswith("[exit status 0") and "\nfirst\nxxx" in told and told.endswith("xxx\nlast")
    assert "\n[... 29980512 bytes of output left out ...]\n" in told
    assert len(told) <= 20_000
    (log,) = (tmp_path / "records" / "commands").glob("*.log")
    assert log.stat().st_size < 25_000


def test_what_writes_too_much_is_killed(outputs) -> None:
    disk = Resources(max_disk_gib=1 / 64)
    command = "for i in 1 2 3 4 5 6; do head -c 5000000 /dev/zero > f$i; done; sleep 30"
    (told,) = outputs(command, sandbox={"resources": disk})
    assert told.startswith("[killed: out_of_disk after "), told


def test_what_is_no_text_is_replaced(outputs) -> None:
    (told,) = outputs("printf 'a\\000b\\377c'")
    assert told.endswith("\na\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c")


@pytest.mark.parametrize("timeout_s", [0, 601, "long"])
def test_a_limit_that_is_none_is_a_wrong_call(make_backend, make_request, timeout_s) -> None:
    model = ScriptedModel(replies=[call("run_command", command="true", timeout_s=timeout_s), submit()])
    make_backend(model).run(make_request())
    assert model.results()[0].startswith("error: wrong arguments of run_command: ")


def test_a_wall_that_cannot_be_built_is_the_machines_fault(make_backend, make_request, make_sandbox) -> None:
    model = ScriptedModel(replies=[call("run_command", command="true")])
    with pytest.raises(InfraError, match="a wall needs a resolved tier"):
        make_backend(model, sandbox=make_sandbox(tier=Tier.auto)).run(make_request())


def test_logs_of_commands_are_numbered_through(outputs, tmp_path: Path) -> None:
    outputs("echo 1", "echo 2")
    outputs("echo 3")
    logs = sorted((tmp_path / "records" / "commands").glob("*.log"))
    assert [log.read_text() for log in logs] == ["1\n", "2\n", "3\n"]
