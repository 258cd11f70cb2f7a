"""`vibeserve init`: one file from options, from answers, or from nothing at all."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from init_samples import Command

from vibeserve.cli.main import main


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_the_defaults_are_taken(repository: Path, vibeserve: Command) -> None:
    assert vibeserve("init").splitlines() == [
        "wrote targets/mine.yaml",
        "wrote targets/.target.schema.json",
        "wrote .gitignore",
        "next:",
        "  vibeserve check mine",
        "  vibeserve plan mine",
        "  vibeserve +target=mine budget=smoke",
    ]
    text = (repository / "targets" / "mine.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=.target.schema.json\n")
    assert "- override /model: smollm2_135m" in text and "- override /hardware: cpu" in text
    assert (repository / ".gitignore").read_text() == "artifacts/\n.vibeserve/\n"
    assert json.loads((repository / "targets" / ".target.schema.json").read_text())["title"] == "VibeServe target"
    assert sorted(path.name for path in (repository / "targets").iterdir()) == [".target.schema.json", "mine.yaml"]


def test_what_is_written_passes_check_and_plan_at_once(repository: Path, vibeserve: Command) -> None:
    vibeserve("init", "--model", "tiny_llama", "--workload", "chat_short")
    assert vibeserve("check", "mine").startswith("mine: ok\n")
    plan = vibeserve.document("plan", "mine", "budget=smoke")
    assert plan["target"] == "mine"


def test_options_are_what_the_file_says(repository: Path, vibeserve: Command) -> None:
    vibeserve(
        "init", "small", "--model", "tiny_llama", "--workload", "chat_short", "--budget", "smoke", "--goal",
        "output_throughput@c4:1.2x:competent", "--goal", "ttft_p50:300ms", "--goal", "peak_memory:2.5GiB",
        "--goal", "request_throughput:2/s",
    )  # fmt: skip
    text = (repository / "targets" / "small.yaml").read_text()
    for line in (
        "  - override /model: tiny_llama", "  - override /workload: chat_short", "  - override /budget: smoke",
        "  - {metric: output_throughput, load: c4, min_ratio: 1.2, against: competent}",
        "  - {metric: ttft_p50, max_ms: 300}", "  - {metric: peak_memory, max_gib: 2.5}",
        "  - {metric: request_throughput, min_per_s: 2}",
    ):  # fmt: skip
        assert line in text.splitlines()
    assert vibeserve("check", "small").startswith("small: ok\n")


def test_enter_five_times_gives_the_defaults(
    repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    vibeserve("init", "unasked")
    monkeypatch.setattr("sys.stdin", Terminal("\n" * 5))
    printed = vibeserve("init", "asked")
    asked, unasked = ((repository / "targets" / f"{name}.yaml").read_text() for name in ("asked", "unasked"))
    assert asked == unasked.replace("unasked", "asked")
    for question in ("which model? [smollm2_135m]", "which hardware? [cpu]", "what is asked of it? [chat]"):
        assert question in printed


def test_a_wrong_answer_is_asked_again(repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["tiny_lama", "tiny_llama", "", "chat_short", "faster", "goodput:2/s", "smoke"]
    monkeypatch.setattr("sys.stdin", Terminal("\n".join(answers) + "\n"))
    printed = vibeserve("init")
    assert "no model 'tiny_lama'; did you mean 'tiny_llama'?" in printed
    assert "valid: METRIC[@LOAD]:VALUE, a value being 1.5x:BASELINE, 300ms, 4GiB or 2/s" in printed
    assert "{metric: goodput, min_per_s: 2}" in (repository / "targets" / "mine.yaml").read_text()


def test_what_is_given_is_not_asked(repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("\n\n"))
    given = ("--model", "tiny_llama", "--workload", "chat_short", "--goal", "goodput:2/s")
    printed = vibeserve("init", *given)
    assert "which model" not in printed and "which hardware" in printed and "how long to search" in printed


def test_input_that_ends_writes_nothing(repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    text = "vibeserve: init: the input ended before the answers did; nothing was written\nnext: vibeserve init --help\n"
    assert vibeserve("init", code=2) == text
    assert list(repository.iterdir()) == []


REFUSED = {
    "an unknown option of a group": (
        ["--model", "smollm"],
        "options are not valid\n  --model: unknown model 'smollm'; did you mean '",
    ),
    "an unknown option of the command": (
        ["--moddel", "x"],
        "init: unrecognized arguments: --moddel; did you mean '--model'?\n  usage: vibeserve init ",
    ),
    "two names": (["one", "two"], "init: unrecognized arguments: two\n  usage: vibeserve init "),
    "a name that is none": (
        ["a/b c.yaml"],
        "'a/b c.yaml' cannot be a target's name\n"
        "  valid: letters, digits, _ and -, beginning with a letter or a digit\nnext: vibeserve init b_c",
    ),
    "a goal that is none": (
        ["--goal", "goodput>2"],
        "--goal 'goodput>2' is not a goal\n"
        "  valid: METRIC[@LOAD]:VALUE, a value being 1.5x:BASELINE, 300ms, 4GiB or 2/s\n"
        "next: for example --goal output_throughput:1.5x:competent --goal ttft_p50@c4:300ms",
    ),
    "a ratio against nothing": (
        ["--goal", "goodput:2x"],
        "--goal 'goodput:2x' is not a goal\n  a ratio names what it is against\n",
    ),
    "a bound against something": (
        ["--goal", "goodput:2/s:competent"],
        "--goal 'goodput:2/s:competent' is not a goal\n  only a ratio is against something\n",
    ),
    "a metric that is none": (
        ["--goal", "goodputt:2/s"],
        "these answers make no valid target; targets/mine.yaml was not written\n  targets/mine.yaml:",
    ),
    "answers that do not fit each other": (
        ["--model", "tiny_llama"],
        "these answers make no valid target; targets/mine.yaml was not written\n",
    ),
    "no such folder": (["--dir", "nowhere"], "--dir nowhere: no such folder\nnext: mkdir -p nowhere"),
    "a template that is none": (
        ["--template", "costum"],
        "init: unknown template 'costum'; did you mean 'custom'? valid: custom\nnext: vibeserve init --help",
    ),
    "two ways at once": (
        ["--from", "x", "--template", "custom", "--model", "y"],
        "init: --from and --template and --model do not go together\n",
    ),
    "sizes without an architecture": (
        ["--config", "a=1"],
        "init: --config belongs to --architecture\nnext: vibeserve init --help",
    ),
    "a size that is no number": (
        ["--architecture", "mamba2", "--config", "hidden_size=big"],
        "--config hidden_size=big: expected key=number\nnext: for example --config hidden_size=256 ",
    ),
}


@pytest.mark.parametrize(("argv", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_before_anything_is_written(argv: list[str], text: str, repository: Path, vibeserve: Command) -> None:
    said = vibeserve("init", *argv, code=2)
    assert said.startswith(f"vibeserve: {text}"), said
    assert "Traceback" not in said
    assert list(repository.iterdir()) == []


def test_nothing_is_overwritten(repository: Path, vibeserve: Command) -> None:
    vibeserve("init")
    before = (repository / "targets" / "mine.yaml").read_bytes()
    assert vibeserve("init", "--model", "tiny_llama", code=2) == (
        "vibeserve: targets/mine.yaml exists; nothing was written\n"
        "  `vibeserve check mine` says whether it is valid\n"
        "next: edit it, remove it, or choose another name: vibeserve init mine_2\n"
    )
    assert (repository / "targets" / "mine.yaml").read_bytes() == before
    (repository / "targets" / "folder").mkdir()
    assert "targets/folder exists; nothing was written" in vibeserve("init", "folder", "--template", "custom", code=2)


def test_a_sub_directory_writes_into_the_repository(
    repository: Path, vibeserve: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    vibeserve("init")
    below = repository / "src" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    vibeserve("init", "second")
    assert (repository / "targets" / "second.yaml").is_file() and list(below.iterdir()) == []


def test_another_folder_by_option(repository: Path, vibeserve: Command) -> None:
    (repository / "other").mkdir()
    vibeserve("init", "--dir", "other")
    assert (repository / "other" / "targets" / "mine.yaml").is_file()


def test_a_gitignore_is_left_alone(repository: Path, vibeserve: Command) -> None:
    (repository / ".gitignore").write_text("/artifacts\n*.log\n")
    assert "note: .gitignore lacks .vibeserve/: runs write there" in vibeserve("init").splitlines()
    assert (repository / ".gitignore").read_text() == "/artifacts\n*.log\n"
    (repository / ".gitignore").write_text("artifacts\n.vibeserve/\n")
    assert "note:" not in vibeserve("init", "second")


def test_the_document(repository: Path, vibeserve: Command) -> None:
    assert vibeserve.document("init") == {
        "schema_version": 1,
        "target": "mine",
        "files": ["targets/mine.yaml", "targets/.target.schema.json", ".gitignore"],
        "root": str(repository),
        "notes": [],
        "next": ["vibeserve check mine", "vibeserve plan mine", "vibeserve +target=mine budget=smoke"],
    }


def test_options_of_the_repository_count(repository: Path, vibeserve: Command) -> None:
    (repository / "targets").mkdir()
    (repository / "conf" / "workload").mkdir(parents=True)
    (repository / "conf" / "workload" / "ours.yaml").write_text(
        "defaults: [chat_short]\noutput_tokens_max: 20\n", encoding="utf-8"
    )
    vibeserve("init", "--model", "tiny_llama", "--workload", "ours")
    assert vibeserve("check", "mine").startswith("mine: ok\n")
    assert '"ours"' in (repository / "targets" / ".target.schema.json").read_text()


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["init", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    for option in ("--model", "--goal", "--from", "--architecture", "--template", "--dir", "--json"):
        assert option in printed
