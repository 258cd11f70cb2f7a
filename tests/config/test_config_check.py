"""`file:line:column` for every fault of a target file."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import check_file, check_target, list_targets

GOOD = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
goals:
  - {metric: output_throughput, min_ratio: 1.1, against: competent}
"""


def errors_of(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "some.yaml"
    path.write_text(text)
    return list(check_file(path, cwd=tmp_path).errors)


def test_every_shipped_target_is_valid() -> None:
    checks = [check_target(target) for target in list_targets()]
    assert {check.name: check.errors for check in checks if not check.is_ok} == {}
    assert len(checks) >= 2


def test_a_good_file_that_lies_anywhere_passes(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("addition", "error"),
    [
        (
            "budget: {round: 3}\n",
            "some.yaml:7:10: $.budget.round: unknown key 'round'; did you mean 'rounds'? "
            "valid: attempts, level, rounds, tokens, usd, wall_s",
        ),
        ("budget:\n  rounds: many\n", "some.yaml:8:3: $.budget.rounds: expected integer, got 'many'"),
        (
            "budget:\n  level: fast\n",
            "some.yaml:8:3: $.budget.level: 'fast' is not valid; valid: quick, standard, full",
        ),
        ("workload:\n  loads: 3\n", "some.yaml:8:3: $.workload.loads: expected object, got 3"),
        ("out_dir: [x]\n", "some.yaml:7:1: $.out_dir: expected string, got ['x']"),
        ("seed:\n  kind: a\n  kind: b\n", "some.yaml:9:3: $.seed: key 'kind' is stated twice"),
        ("target: {name: x}\n", "some.yaml:7:10: $.target.name: unknown key 'name'; valid: description, twin"),
    ],
)
def test_faults_of_the_body_have_a_place(tmp_path: Path, addition: str, error: str) -> None:
    assert errors_of(tmp_path, GOOD + addition) == [error]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            "/model: tiny_llama",
            "/model: tiny_lama",
            "some.yaml:2:5: $.defaults[0].override /model: 'tiny_lama' is not valid; "
            "did you mean 'tiny_llama'? valid: smollm2_135m, tiny_llama",
        ),
        ("/workload: chat_short", "/baseline: [required, vlm]", "$.defaults[2].override /baseline[1]: 'vlm' is not"),
        (
            "override /hardware",
            "override /hardwear",
            "unknown key '/hardwear'; did you mean '/hardware'? valid: /agents,",
        ),
    ],
)
def test_faults_of_the_defaults_list_the_options(tmp_path: Path, old: str, new: str, error: str) -> None:
    (found,) = errors_of(tmp_path, GOOD.replace(old, new))
    assert error in found


def test_all_faults_are_listed_in_order(tmp_path: Path) -> None:
    text = GOOD + "search: {patiense: 1}\nbudget:\n  usd: x\n  tokens: 1.5\n"
    assert [error.split(": ")[0] for error in errors_of(tmp_path, text)] == [
        "some.yaml:7:10",
        "some.yaml:9:3",
        "some.yaml:10:3",
    ]


def test_interpolations_are_allowed_where_a_number_is(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD + "search: {patience: '${budget.rounds}'}\n") == []


def test_yaml_errors_and_empty_files_have_a_place(tmp_path: Path) -> None:
    assert errors_of(tmp_path, "a: [1\nb: 2\n")[0].startswith("some.yaml:2:2: YAML: ")
    assert errors_of(tmp_path, "# nothing\n")[0].startswith("some.yaml:1:1: the file is empty")


def test_semantic_faults_are_reported_too(tmp_path: Path) -> None:
    (error,) = errors_of(tmp_path, GOOD + "workload: {headline_load: c9}\n")
    assert error == "workload.headline_load: 'c9' is no declared load; valid: c1, c4"
