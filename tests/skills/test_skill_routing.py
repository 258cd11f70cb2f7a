"""Routing: what is pruned, what comes first, and the suite over every target that ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from vibeserve.cli.skill_checks import shipped_facts
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import (
    SUITE_FILE,
    Bottleneck,
    Skill,
    TargetFacts,
    load_skills,
    read_suite,
    route,
    run_suite,
    why_pruned,
    write_draft,
)
from vibeserve.skills.loader import load_skill

SHIPPED = load_skills(data_dir("skills"))
FACTS = TargetFacts(
    architecture="llama", modality="text", hardware="cpu", cpu_flags=frozenset({"avx2"}), precision="same_bytes",
    reuse="none", workload="chat",
)  # fmt: skip


@pytest.fixture
def make_skill(tmp_path: Path) -> Any:
    def make(name: str, *, symptoms: tuple[str, ...] = ("zzz", "zzz", "zzz"), **applies: Any) -> Skill:
        folder = write_draft(name, folder=tmp_path / "skills")
        data = {"schema_version": 1, "symptoms": list(symptoms), **applies}
        (folder / "applies.yaml").write_text(yaml.safe_dump(data))
        return load_skill(folder)

    return make


def names(skills: list[Skill], text: str, *, facts: TargetFacts | None = FACTS, **spans: float) -> list[str]:
    rows = route(skills, facts=facts, bottleneck=Bottleneck(text=text, spans=spans))
    return [row.skill.name for row in rows if row.score > 0]


def test_symptoms_in_other_forms_of_the_words_lead_to_the_skill(make_skill: Any) -> None:
    one = make_skill("one", symptoms=("cached blocks are evicted too early", "x", "y"))
    two = make_skill("two", symptoms=("the grammar refuses a token", "x", "y"))
    assert names([one, two], "caches evict a block early")[0] == "one"
    assert names([one, two], "a token was refused by its grammar")[0] == "two"


def test_a_foreign_skill_is_pruned_however_well_it_matches(make_skill: Any) -> None:
    gpu = make_skill("gpu", symptoms=("launch overhead of kernels", "x", "y"), conditions={"hardware": ["cuda"]})
    cpu = make_skill("cpu", symptoms=("interpreter overhead", "x", "y"), conditions={"hardware": ["cpu"]})
    assert names([gpu, cpu], "launch overhead of kernels") == ["cpu"]
    assert names([gpu, cpu], "launch overhead of kernels", facts=None)[0] == "gpu"
    assert why_pruned(gpu, facts=FACTS) == "hardware 'cpu' is not one of cuda"


def test_conditions_on_the_cpu_hold_only_where_the_cpu_is_known(make_skill: Any) -> None:
    tiles = make_skill("tiles", conditions={"cpu_flags_any": ["amx_bf16"]})
    assert why_pruned(tiles, facts=FACTS) == "the CPU has none of amx_bf16"
    assert why_pruned(tiles, facts=replace(FACTS, cpu_flags=None)) is None


def test_spans_rank_where_words_say_nothing(make_skill: Any) -> None:
    one = make_skill("one", relieves=["sampling"])
    two = make_skill("two", relieves=["decode.linear"])
    assert names([one, two], "", **{"decode.linear": 0.6, "sampling": 0.1}) == ["two", "one"]
    assert names([one, two], "", http=1.0) == []


def test_ties_go_by_name_and_the_narrower_skill_first(make_skill: Any) -> None:
    both = [make_skill(name, symptoms=("slow replies", "x", "y")) for name in ("b", "a")]
    assert names(both, "slow replies") == ["a", "b"]
    narrow = make_skill("c", symptoms=("slow replies", "x", "y"), conditions={"workloads": ["chat"]})
    assert names([*both, narrow], "slow replies")[0] == "c"


# the suite


@pytest.fixture(scope="module")
def targets() -> dict[str, TargetFacts]:
    return shipped_facts()


def test_every_bottleneck_of_every_target_is_led_to_its_skills(targets: dict[str, TargetFacts]) -> None:
    queries = read_suite(data_dir("skills") / SUITE_FILE)
    assert len(queries) == 20
    result = run_suite(queries, targets=targets, skills=SHIPPED)
    assert len(result.answers) == 20 * len(targets)
    assert [f"{miss.target} {miss.query}: {miss.expected} not in {miss.first}" for miss in result.misses] == []


def test_nothing_foreign_is_ever_shown(targets: dict[str, TargetFacts]) -> None:
    for facts in targets.values():
        rows = route(SHIPPED, facts=facts, bottleneck=Bottleneck(text="everything is slow"))
        assert all(why_pruned(row.skill, facts=facts) is None for row in rows)
        if facts.hardware == "cpu":
            assert not any("cuda" in row.skill.name for row in rows)


def test_the_descriptions_are_not_the_symptoms() -> None:
    """A suite that repeats what it routes by would prove nothing."""
    symptoms = {text.lower() for skill in SHIPPED if skill.applies for text in skill.applies.symptoms}
    texts = [query.bottleneck.text.lower() for query in read_suite(data_dir("skills") / SUITE_FILE)]
    assert [text for text in texts for symptom in symptoms if symptom in text] == []


def write_suite(path: Path, *rows: Any) -> Path:
    path.write_text(yaml.safe_dump({"schema_version": 1, "bottlenecks": list(rows)}))
    return path


GOOD = {"id": "q", "text": "slow replies", "expect": [{"skills": ["one"]}]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({**GOOD, "id": ""}, "bottlenecks.0: must have 'id' and 'text'"),
        ({**GOOD, "expects": 1}, "q: unknown key 'expects'; valid: id, text, spans, expect"),
        ({**GOOD, "spans": {"decode": 1}}, "q: spans: 'decode' is not a span"),
        ({**GOOD, "expect": []}, "q: expect: must be a list of rules"),
        ({**GOOD, "expect": [{"skills": []}]}, "q: expect: a rule names 'skills'"),
        ({**GOOD, "expect": [{"when": {"sm": [90]}, "skills": ["one"]}]}, "when: 'sm' must be a list of values"),
        ({**GOOD, "expect": [{"when": [], "skills": ["one"]}]}, "when: must map facts to lists of values"),
    ],
)
def test_a_wrong_suite_is_refused(tmp_path: Path, row: Any, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_suite(write_suite(tmp_path / "routing.yaml", row))
    assert expected in str(caught.value)


def test_a_suite_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="must hold a list 'bottlenecks'"):
        read_suite(write_suite(tmp_path / "routing.yaml"))


def test_hits_misses_and_gaps_of_a_suite(tmp_path: Path, make_skill: Any) -> None:
    skills = [make_skill("one", symptoms=("slow replies", "x", "y")), make_skill("two")]
    path = tmp_path / "routing.yaml"
    result = run_suite(read_suite(write_suite(path, GOOD)), targets={"t": FACTS}, skills=skills)
    assert result.misses == () and result.routed == {"one"}
    missed = run_suite(
        read_suite(write_suite(path, {**GOOD, "expect": [{"skills": ["two"]}]})), targets={"t": FACTS}, skills=skills
    )
    assert [(miss.target, miss.first) for miss in missed.misses] == [("t", ("one",))] and missed.routed == frozenset()
    for rule, expected in (
        ({"skills": ["absent"]}, "q: there is no skill 'absent'"),
        ({"when": {"hardware": ["cuda"]}, "skills": ["one"]}, "q: no rule fits target 't'"),
    ):
        with pytest.raises(SpecError) as caught:
            run_suite(
                read_suite(write_suite(path, {**GOOD, "expect": [rule]})), targets={"t": FACTS}, skills=skills
            )
        assert expected in str(caught.value)
