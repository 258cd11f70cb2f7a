"""The front: what it answers by itself, where it sends the rest, how every fault ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve import __version__
from vibeserve.cli.boundary import within_boundary
from vibeserve.cli.main import main
from vibeserve.cli.table import VERBS
from vibeserve.errors import BudgetError, InfraError, MissingBaselineError, RefusedError, SpecError, VibeServeError

HEAVY = {
    "torch",
    "transformers",
    "hydra",
    "omegaconf",
    "openai",
    "cuda",
    "jsonschema",
    "jinja2",
    "rich",
    "invoke",
    "numpy",
}
"""plus argparse, yaml and dataclasses, which help and version do without"""


def modules_after(*argv: str) -> set[str]:
    code = f"import sys; from vibeserve.cli.main import main; main({list(argv)!r}); print('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split("MODULES")[1].split())


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--version"]])
def test_help_and_version_import_nothing_heavy(argv: list[str]) -> None:
    """The budget of 0.3 s holds because almost nothing is imported; speed itself is no test's outcome."""
    loaded = modules_after(*argv)
    assert {name.split(".")[0] for name in loaded} & (
        HEAVY | {"yaml", "argparse", "dataclasses", "subprocess"}
    ) == set()
    assert {name for name in loaded if name.startswith("vibeserve")} <= {
        "vibeserve",
        "vibeserve.cli",
        "vibeserve.cli.main",
        "vibeserve.cli.table",
    }


def test_a_bare_bad_target_imports_nothing_heavy_either() -> None:
    assert {name.split(".")[0] for name in modules_after("+target=nope")} & {
        "torch",
        "hydra",
        "numpy",
        "jsonschema",
    } == set()


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name, _, _ in VERBS)
    assert "exit codes: 0 done, 2 bad spec" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vibeserve {__version__}\n"


@pytest.mark.parametrize("verb", [name for name, _, _ in VERBS])
def test_every_listed_verb_exists_and_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"usage: vibeserve {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no target given"),
        (["+target=nope"], "no target 'nope'"),
        (["+target=tiny_cpu", "budget.round=1"], "did you mean 'rounds'?"),
        (["+target=tiny_cpu", "budget.rounds=x"], "budget.rounds=x: expected a whole number, got 'x'"),
        (["plam", "tiny_cpu"], "unknown verb 'plam'; did you mean 'plan'?"),
        (["tiny_cpu"], "next: vibeserve +target=tiny_cpu"),
        (["--jsn", "+target=tiny_cpu"], "unknown option '--jsn'; did you mean '--json'?"),
        (["plan"], "no target given"),
        (["plan", "tiny_cpu", "--bogus"], "plan: unrecognized arguments: --bogus"),
        (["list", "extra"], "list: unrecognized arguments: extra"),
        (["check"], "check needs targets to check"),
        (["check", "./absent.yaml"], "no file ./absent.yaml"),
        (["-m", "+target=nope,tiny_cpu"], "none was started"),
    ],
)
def test_bad_input_is_one_message_on_stderr_and_exit_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("vibeserve: ")
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert "next: " in captured.err or "none was started" in captured.err


def test_with_json_the_error_is_a_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "nope", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["class"], error["exit_code"], error["next"]) == ("SpecError", 2, "vibeserve list")
    assert any(problem.startswith("valid: ") and "smollm2_cpu" in problem for problem in error["problems"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("x"), 2),
        (RefusedError("x"), 3),
        (BudgetError("x"), 4),
        (InfraError("x"), 5),
        (MissingBaselineError("vllm", install="vibeserve peers install vllm"), 5),
    ],
)
def test_each_error_has_its_exit_code(error: VibeServeError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    def command(argv: list[str]) -> int:
        raise error

    assert within_boundary(command, []) == code
    assert str(error) in capsys.readouterr().err


def test_an_interrupt_is_130(capsys: pytest.CaptureFixture[str]) -> None:
    def command(argv: list[str]) -> int:
        raise KeyboardInterrupt

    assert within_boundary(command, []) == 130
    assert capsys.readouterr().err == "vibeserve: interrupted\n"


def test_a_bug_keeps_its_traceback() -> None:
    def command(argv: list[str]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        within_boundary(command, [])


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = f"{sys.executable} -c 'from vibeserve.cli.main import main; import sys; sys.exit(main([\"list\"]))' | true"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {script}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_run_says_how_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def command(argv: list[str]) -> int:
        raise KeyboardInterrupt

    assert within_boundary(command, ["+target=mine", "budget=smoke"]) == 130
    assert capsys.readouterr().err.splitlines() == [
        "vibeserve: interrupted",
        "next: start the same command again; finished steps and rounds are kept",
    ]
