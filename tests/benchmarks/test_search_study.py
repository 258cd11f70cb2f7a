"""The grid, its table, and the simulated searches over it: what is enumerated, what is refused, what is answered."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.search.grid import Setting, component_sets, grid_points, key_of
from benchmarks.search.landscapes import SEED_SPANS, Measured, Synthetic
from benchmarks.search.rehearsal import Rehearsal, Rules
from benchmarks.search.replay import TARGET, main, mean_interval, setting_of, study, table_lines
from benchmarks.search.table import Point, Table, Twin
from vibeserve.agents import Assembled
from vibeserve.agents.team import make_planner
from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import SpecError
from vibeserve.policies import make_policy
from vibeserve.spec import Search

ROOT = Path(__file__).resolve().parents[2]
QUIET = ((0.0, 0.0, 0.0),)
"""noise of a machine without any"""


@pytest.fixture(scope="module")
def setting() -> Setting:
    return setting_of(TARGET)


def speed_of(point: Assembled) -> float:
    """A made-up machine: batching triples, everything else brings a tenth."""
    others = len(point.components) - ("continuous-batching" in point.components)
    return (3.0 if "continuous-batching" in point.components else 1.0) * 1.1**others * setting_effect(point)


def setting_effect(point: Assembled) -> float:
    return 1.2 if point.parameters.get("max_num_seqs") == 32 else 1.0


@pytest.fixture(scope="module")
def table(setting: Setting) -> Table:
    points = tuple(
        Point(
            components=each.components, parameters=dict(each.parameters), windows=(speed_of(each),) * 3,
            control=(3.0,) * 3, spans=dict(SEED_SPANS),
        )
        for each in grid_points(setting)
    )  # fmt: skip
    return Table(
        target=TARGET, load="c8", metric="output_throughput", machine="made up", hardware="0" * 16, date="2026-12-01",
        window_s=4.0, warmup_s=1.0, num_pairs=3, control=Point(components=("continuous-batching",), parameters={}),
        points=points, twins=(Twin(first=(3.0, 3.0, 3.0), second=(3.0, 3.0, 3.0)),),
    )  # fmt: skip


# -- the grid


def test_every_set_that_can_be_assembled_is_there_once_with_what_it_brings_along(setting: Setting) -> None:
    sets = component_sets(setting)
    assert sets[0] == () and len(sets) == len(set(sets)) == 30
    assert ("chunked-prefill", "continuous-batching") in sets and ("chunked-prefill",) not in sets
    assert not any({"packed-linears", "widened-bf16-linears"} <= set(each) for each in sets), "one seam, two owners"
    assert not any("int8-groupwise-linears" in each for each in sets), "it changes the bits, and is not admissible"


def test_every_set_has_its_defaults_and_each_setting_changed_alone(setting: Setting) -> None:
    points = grid_points(setting)
    assert len({key_of(each.components, each.parameters, setting) for each in points}) == len(points) == 144
    batching = [each.parameters["max_num_seqs"] for each in points if each.components == ("continuous-batching",)]
    assert sorted(batching) == [8, 16, 16, 32], "and max_prefill_tokens once more at 16"


def test_a_key_does_not_depend_on_how_an_assembly_is_written(setting: Setting) -> None:
    assert key_of(("chunked-prefill",), {}, setting) == key_of(
        ("continuous-batching", "chunked-prefill"), {"max_num_seqs": 16}, setting
    )


# -- landscapes


def test_a_table_answers_with_what_was_measured_over_the_seed(setting: Setting, table: Table) -> None:
    surface = Measured(name=TARGET, setting=setting, table=table).surface(np.random.default_rng(0))
    batching = Assembled(components=("continuous-batching",))
    assert math.exp(surface.log_ratio(batching)) == pytest.approx(3.0)
    assert surface.log_ratio(Assembled()) == 0.0
    assert surface.spans(batching) == SEED_SPANS
    both = Assembled(components=batching.components, parameters={"max_num_seqs": 32, "max_prefill_tokens": 512})
    assert math.exp(surface.log_ratio(both)) == pytest.approx(3.6), "the sum of two single changes"


def test_an_assembly_that_could_not_be_served_is_never_the_best_and_a_missing_one_is_refused(
    setting: Setting, table: Table
) -> None:
    broken = tuple(
        replace(each, windows=(), control=(), error="died") if each.components == ("batched-sampling",) else each
        for each in table.points
    )
    surface = Measured(name=TARGET, setting=setting, table=replace(table, points=broken)).surface(
        np.random.default_rng(0)
    )
    assert surface.log_ratio(Assembled(components=("batched-sampling",))) < math.log(0.01)
    partial = tuple(each for each in table.points if each.components != ("batched-sampling",))
    surface = Measured(name=TARGET, setting=setting, table=replace(table, points=partial)).surface(
        np.random.default_rng(0)
    )
    with pytest.raises(SpecError, match=r'the table holds no point \[\["batched-sampling"\]'):
        surface.log_ratio(Assembled(components=("batched-sampling",)))


def test_the_deceptive_pair_loses_alone_and_wins_together(setting: Setting) -> None:
    for seed in range(5):
        surface = Synthetic(name="d", setting=setting, is_deceptive=True).surface(np.random.default_rng(seed))
        one, other = surface.pair  # type: ignore[attr-defined]
        free = [name for name in (one, other) if not any(c.name == name and c.extends for c in setting.cards)]
        for name in free:
            assert math.exp(surface.log_ratio(Assembled(components=(name,)))) == pytest.approx(0.9)
        assert sum(surface.spans(Assembled(components=(one,))).values()) == pytest.approx(1.0)


# -- searches


def rehearse(setting: Setting, table: Table, policy: str, *, budget: int = 12) -> Rehearsal:
    search = Search(policy=policy, seed=3)
    rules = Rules(setting=setting, noise=QUIET, num_pairs=8, min_effect=0.02, budget=budget)
    found = Rehearsal(
        rules=rules, surface=Measured(name=TARGET, setting=setting, table=table).surface(np.random.default_rng(0)),
        policy=make_policy(search), planner=make_planner(search), draw=np.random.default_rng(1),
    )  # fmt: skip
    found.run()
    return found


@pytest.mark.parametrize("policy", ["greedy", "beam", "random"])
def test_no_search_spends_more_than_a_comparison_beyond_its_budget(setting: Setting, table: Table, policy: str) -> None:
    found = rehearse(setting, table, policy, budget=5)
    assert 4 < found.spent < 6 + 1.5, "the last round may be a challenge, or halve settings first"
    ratios = [ratio for _, ratio in found.curve]
    assert ratios[0] == 1.0 and ratios == sorted(ratios), "without noise nothing worse is ever accepted"


def test_without_noise_greedy_comes_within_one_card_of_the_best_assembly(setting: Setting, table: Table) -> None:
    found = rehearse(setting, table, "greedy", budget=20)
    best = max(speed_of(each) for each in grid_points(setting))
    assert best / 1.11 < found.curve[-1][1] <= best * 1.001, "short of it by a card that claims less than a gain"


@pytest.mark.slow
def test_the_study_is_the_same_whatever_the_number_of_processes(tmp_path: Path) -> None:
    def run(jobs: int) -> list[str]:
        return table_lines(
            study(
                landscapes=("synthetic_deceptive",), budgets=(3,), num_seeds=2, jobs=jobs, table=tmp_path / "none.json"
            )
        )

    assert run(1) == run(2)


def test_without_a_table_and_with_half_of_one_it_says_not_measured_yet(tmp_path: Path, table: Table) -> None:
    def notes(path: Path) -> set[str]:
        found = study(landscapes=(TARGET,), budgets=(3,), num_seeds=1, jobs=1, table=path)
        assert {row.best_mean for row in found.rows} == {None} and found.verdicts == ()
        return {row.note for row in found.rows}

    assert notes(tmp_path / "none.json") == {"not measured yet: invoke bench-grid"}
    write_document(tmp_path / "half.json", replace(table, num_missing=7))
    dead = tuple(each if each.components else replace(each, windows=(), error="died") for each in table.points)
    write_document(tmp_path / "dead.json", replace(table, points=dead))
    assert notes(tmp_path / "dead.json") == {"not measured yet: the seed itself could not be served"}
    assert notes(tmp_path / "half.json") == {"not measured yet: 7 points are missing; invoke bench-grid goes on"}
    assert read_document(tmp_path / "half.json", Table).points == table.points


@pytest.mark.slow
def test_the_command_answers_with_rows_over_a_table_of_yours(tmp_path: Path, table: Table) -> None:
    write_document(tmp_path / "table.json", table)
    argv = [
        sys.executable, "-m", "benchmarks.search.replay", "--json", "--landscape", TARGET, "--seeds", "2",
        "--budget", "3", "--jobs", "1", "--table", str(tmp_path / "table.json"),
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert [row["policy"] for row in rows] == ["greedy", "beam", "random"]
    assert {"landscape", "policy", "seeds", "budget", "best_mean", "ci_low", "ci_high"} <= set(rows[0])
    assert rows[0]["best_mean"] > 3.0 and rows[0]["ci_low"] <= rows[0]["best_mean"] <= rows[0]["ci_high"]


def test_a_landscape_that_is_none_names_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="valid: smollm2_cpu, synthetic_additive, synthetic_deceptive"):
        main(["--landscape", "hilly", "--seeds", "1", "--jobs", "1"])
    with pytest.raises(SpecError, match="0 is not 1 or more"):
        main(["--seeds", "0"])


def test_a_mean_has_its_interval() -> None:
    mean, low, high = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert mean == 2.5 and 1.0 <= low < 2.5 < high <= 4.0
