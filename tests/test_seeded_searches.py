"""Searches that start from other seeds than the scaffold: which one is taken, what is reused, what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import WRONG_TOKENS, Library, facts, make_team, small_spec

from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.core.nouns import Proposal
from vibeserve.errors import RefusedError
from vibeserve.journal import Journal
from vibeserve.skills import assemble, resolve
from vibeserve.spec import Seed, SeedSearch
from vibeserve.synthesis import Search, synthesize


@dataclass
class AssembledSeed:
    """A seed made of components; `edit` changes one of its files afterwards."""

    library: Library
    origin: str
    components: tuple[str, ...] = ()
    edit: str = ""
    without_record: bool = False

    def materialise(self, destination: Path) -> None:
        assemble(self.library.scaffold, resolve(self.components, self.library.skills), {}, destination)
        if self.edit:
            (destination / self.edit).write_text('"""Somebody\'s own."""\n')
        if self.without_record:
            (destination / "runtime/assembly.json").unlink()


@dataclass
class CountingPlanner(PlaybookPlanner):
    asked: int = 0

    def propose(self, state: Any) -> Proposal | None:
        self.asked += 1
        return super().propose(state)


@dataclass
class Rig:
    root: Path
    search: SeedSearch = SeedSearch.if_refused
    planner: CountingPlanner = field(default_factory=CountingPlanner)
    team: Any = None

    def __post_init__(self) -> None:
        self.library = Library(self.root / "library")
        self.library.add("first", seams=("linear",), relieves=["prefill"], expected_factor=5.0)
        self.library.add("second", seams=("attention",), relieves=["prefill"], expected_factor=4.0)

    def seed(self, origin: str, **changes: Any) -> AssembledSeed:
        return AssembledSeed(self.library, origin, **changes)

    def start(self, seeds: Sequence[AssembledSeed], *, refused: int = 0) -> Search:
        """`refused`: so many of the seeds are refused by the accuracy gate."""
        spec = small_spec(rounds=2, attempts=1)
        spec.seed = Seed(kind="artifact", path="there", search=self.search)
        self.team = make_team(self.library, self.root / "run", spec=spec)
        verdicts = iter([(WRONG_TOKENS,)] * refused)
        judge, original = self.team.judge, self.team.judge.verdict

        def verdict(replies: Any, *, name: str, **more: Any) -> Any:
            judge.judged[name] = next(verdicts, ()) if name == "r00a1" else ()
            return original(replies, name=name, **more)

        judge.verdict = verdict
        with Journal.open(self.root / "journal.jsonl") as journal:
            return synthesize(
                self.team, seed=seeds[0], fallbacks=seeds[1:], planner=self.planner, facts=facts(), journal=journal,
                deadline_s=1e6, monotonic=lambda: 0.0,
            )  # fmt: skip

    def told(self) -> list[str]:
        return [text for stage, text in self.team.progress.events if stage == "synthesize"]

    def events(self, kind: str) -> list[Any]:
        with Journal.open(self.root / "journal.jsonl") as journal:
            return [event.data for event in journal.events(kind)]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_a_runtime_that_passes_as_it_is_ends_the_search_before_any_agent_is_asked(rig: Rig) -> None:
    search = rig.start([rig.seed("seed:t/p@abc", components=("first",)), rig.seed("scaffold")])
    assert [entry.record.outcome.value for entry in search.entries] == ["baseline"]
    assert rig.planner.asked == 0
    assert rig.told() == ["reused: seed:t/p@abc passes every gate as it is, so nothing is searched"]
    assert rig.events("seeded") == [{"origin": "seed:t/p@abc", "position": 0, "refused": [], "schema_version": 1}]
    assert search.incumbent is not None
    assert search.incumbent.candidate.origin == "seed:t/p@abc"
    assert search.incumbent.assembled.components == ("first",) and not search.incumbent.assembled.is_edited


def test_it_stays_reused_when_the_run_is_started_again(rig: Rig) -> None:
    seeds = [rig.seed("seed:t/p@abc", components=("first",)), rig.seed("scaffold")]
    rig.start(seeds)
    again = rig.start(seeds, refused=9)
    assert len(again.entries) == 1 and rig.planner.asked == 0
    assert rig.told()[-1].startswith("reused: ")


def test_with_search_always_the_artifact_is_where_the_search_begins(tmp_path: Path) -> None:
    rig = Rig(tmp_path, search=SeedSearch.always)
    search = rig.start([rig.seed("seed:t/p@abc", components=("first",)), rig.seed("scaffold")])
    assert search.incumbent is not None
    assert search.incumbent.assembled.components == ("first", "second")


def test_a_refused_runtime_gives_way_to_an_older_checkpoint_and_the_search_begins(rig: Rig) -> None:
    seeds = [
        rig.seed("seed:t/p@new", components=("first", "second")),
        rig.seed("seed:t/p@old", components=("first",)),
        rig.seed("scaffold"),
    ]
    search = rig.start(seeds, refused=1)
    why = "seed:t/p@new: the seed is refused: accuracy/wrong_tokens: top-1 agreement 0.50"
    assert rig.events("seeded") == [
        {"origin": "seed:t/p@old", "position": 1, "refused": [why], "schema_version": 1}
    ]  # fmt: skip
    assert rig.told()[0] == f"{why}; next, seed:t/p@old"
    assert [entry.record.outcome.value for entry in search.entries][:2] == ["baseline", "accepted"]
    assert rig.planner.asked > 0


def test_when_the_last_seed_is_refused_nothing_can_be_compared(rig: Rig) -> None:
    with pytest.raises(RefusedError, match="the seed is refused: accuracy/wrong_tokens"):
        rig.start([rig.seed("seed:t/p@abc", components=("first",)), rig.seed("scaffold")], refused=2)
    assert rig.events("seeded") == [] and rig.events("round") == []


@pytest.mark.parametrize(
    ("changes", "components", "is_edited"),
    [
        ({"components": ("first",)}, ("first",), False),
        ({"components": ("first",), "edit": "runtime/sampler.py"}, ("first",), True),
        ({"components": ("first",), "edit": "runtime/more.py"}, ("first",), True),
        ({"components": ("first",), "without_record": True}, (), True),
        ({}, (), False),
    ],
)
def test_what_a_seed_is_made_of_is_read_from_its_record(
    rig: Rig, changes: dict[str, Any], components: tuple[str, ...], is_edited: bool
) -> None:
    search = rig.start([rig.seed("seed:t/p@abc", **changes), rig.seed("scaffold")])
    assert search.incumbent is not None
    assembled = search.incumbent.assembled
    assert (assembled.components, assembled.is_edited) == (components, is_edited)


@pytest.mark.parametrize("record", ["[]", "{", '{"files": [], "components": [{"name": "gone"}], "parameters": {}}'])
def test_a_record_that_is_none_or_names_what_is_not_here_counts_as_edited(rig: Rig, record: str) -> None:
    class Odd(AssembledSeed):
        def materialise(self, destination: Path) -> None:
            super().materialise(destination)
            (destination / "runtime/assembly.json").write_text(record)

    search = rig.start([Odd(rig.library, "seed:odd"), rig.seed("scaffold")])
    assert search.incumbent is not None
    assert search.incumbent.assembled.is_edited and search.incumbent.assembled.components == ()


def test_components_are_not_proposed_for_what_no_scaffold_is_the_base_of(tmp_path: Path) -> None:
    rig = Rig(tmp_path, search=SeedSearch.always)
    search = rig.start([rig.seed("seed:engine@abc", without_record=True), rig.seed("scaffold")])
    assert len(search.entries) == 1
    assert all(skill.card is None for skill in rig.team.skills)
    assert rig.told() == ["nothing applicable: no card fits this target; the seed goes on as it is"]
