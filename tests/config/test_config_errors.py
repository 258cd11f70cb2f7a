"""Every way in which a declaration is refused: the exact text, exit code 2, nothing on stdout, nothing written.

The cases are in `error_cases_*.py`, the texts in `error_texts.txt`.
"""

from __future__ import annotations

from pathlib import Path

import error_cases_files
import error_cases_groups
import error_cases_overrides
import error_cases_verbs
import pytest
from error_case import TEXTS, Case, expanded, expected_texts, outcome_of
from error_sites import all_sites, sites_of
from error_sites_elsewhere import ELSEWHERE

ROOT = Path(__file__).resolve().parents[2]
CASES = (
    *error_cases_files.CASES,
    *error_cases_groups.CASES,
    *error_cases_overrides.CASES,
    *error_cases_verbs.CASES,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_it_is_refused_with_this_text_and_leaves_nothing(case: Case) -> None:
    outcome = outcome_of(case)
    assert outcome.err == expanded(expected_texts()[case.id], outcome.root)
    assert (outcome.code, outcome.out) == (2, "")
    assert "Traceback" not in outcome.err
    assert outcome.is_unchanged


def test_every_text_has_its_case() -> None:
    assert list(expected_texts()) == [case.id for case in CASES]
    assert TEXTS.read_text(encoding="utf-8").startswith("=== ")


def test_every_place_that_refuses_is_in_the_table_or_tested_where_it_is_named() -> None:
    """A new `SpecError(` needs a case here, or an entry in `error_sites_elsewhere.py` naming the test that makes it."""
    made = {place for case in CASES for place in outcome_of(case).sites}
    sites = all_sites()
    covered = {site.name for site in sites if any(site.holds(file, line) for file, line in made)}
    missing = [f"{site.name} (line {site.first_line})" for site in sites if site.name not in covered | set(ELSEWHERE)]
    assert missing == []


def test_what_is_tested_elsewhere_still_exists() -> None:
    names = {site.name for site in all_sites()}
    assert sorted(set(ELSEWHERE) - names) == [], "these places are gone: drop their entries"
    assert sorted({test for test in ELSEWHERE.values() if not (ROOT / test).is_file()}) == []


def test_a_new_place_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("error_sites.PACKAGE", tmp_path)
    method = "class C:\n    def g(self):\n        raise errors.ContractError('y')\n"
    (tmp_path / "new.py").write_text(f"def f():\n    raise SpecError('x')\n\n\n{method}")
    assert [site.name for site in sites_of(tmp_path / "new.py")] == ["new.py:f", "new.py:C.g"]
