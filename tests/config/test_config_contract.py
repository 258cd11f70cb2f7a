"""Rules of programs that judge, and of a target's own bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from numbers_target import numbers_spec, write_target

from vibeserve.config.contract_rules import contract_problems
from vibeserve.spec import Contract, Spec


def test_a_target_without_any_breaks_no_rule() -> None:
    assert list(contract_problems(Spec())) == []


def test_a_program_lies_in_a_folder_and_its_limits_in_the_target(tmp_path: Path) -> None:
    spec = numbers_spec(write_target(tmp_path / "numbers"), limits={"error/max": 0.01})
    spec.contract = Contract(reference_argv=["perl", "reference.pl"], check_argv=["perl", "check.pl"])
    assert list(contract_problems(spec)) == []
    (tmp_path / "numbers/target.yaml").unlink()
    spec.evaluation.tolerances.limits = {}
    assert list(contract_problems(spec)) == [
        "contract.reference_argv: the target is a single file; a program lies beside targets/NAME/target.yaml",
        "contract.check_argv: the target is a single file; a program lies beside targets/NAME/target.yaml",
        "contract.check_argv: a program brings no limits; add evaluation.tolerances.limits, such as error/max: 0.01",
    ]


def test_an_answer_needs_time() -> None:
    assert list(contract_problems(Spec(contract=Contract(timeout_s=0)))) == ["contract.timeout_s: 0 is not above 0"]


@pytest.mark.parametrize(
    ("key", "bound", "expected"),
    [
        ("error", 1.0, "evaluation.tolerances.limits.error: expected DISTANCE/STATISTIC, the statistic one of max, "
                       "mean, p99, share_at_least/THRESHOLD"),
        ("error/max", float("nan"), "evaluation.tolerances.limits.error/max: nan is no finite number"),
    ],
)  # fmt: skip
def test_bounds_name_a_distance_and_a_statistic(key: str, bound: float, expected: str) -> None:
    spec = Spec()
    spec.evaluation.tolerances.limits = {key: bound}
    assert list(contract_problems(spec)) == [expected]
