"""A recorded search: what is no recording, what belongs to another target, and what was tampered with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, Library, LibrarySeed, facts, make_team
from test_beam import beam, components

from vibeserve.agents.playbook import PlaybookPlanner
from vibeserve.audit import scan_workspace
from vibeserve.cli.main import main
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import Outcome
from vibeserve.errors import RefusedError, SpecError
from vibeserve.journal import Journal
from vibeserve.policies import search_graph
from vibeserve.recordings import read_recording, recording_folder, replay, tree_digest, write_recording
from vibeserve.rounds import Team
from vibeserve.synthesis import Search as Found
from vibeserve.synthesis import synthesize


def team_in(root: Path) -> tuple[Team, Library]:
    library = Library(root)
    library.add("card", parameters={"block": LIMIT}, relieves=["prefill"], expected_factor=3.0)
    return make_team(library, root / "run"), library


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The playbook's search, recorded as an artifact has it."""
    team, library = team_in(tmp_path / "first")
    with Journal.open(tmp_path / "first.jsonl") as journal:
        search = synthesize(
            team, seed=LibrarySeed(library), planner=PlaybookPlanner(), facts=facts(), journal=journal, deadline_s=1e12
        )
    assert [entry.record.outcome for entry in search.entries][:2] == [Outcome.BASELINE, Outcome.ACCEPTED]
    folder = tmp_path / "artifact" / "recording"
    write_recording(folder, entries=search.entries, store=team.store, target="sample", plan_id="0" * 16)
    return folder


def replayed(folder: Path, root: Path) -> str:
    team, _ = team_in(root)
    with Journal.open(root / "journal.jsonl") as journal:
        search = replay(team, read_recording(folder, target="sample"), folder=folder, journal=journal)
    assert search.incumbent is not None
    return search.incumbent.candidate.candidate_id


def test_an_assembled_search_is_replayed_too(recorded: Path, tmp_path: Path) -> None:
    assert recording_folder(recorded.parent) == recording_folder(recorded) == recorded
    winner = replayed(recorded, tmp_path / "again")
    assert winner == json.loads((recorded / "recording.json").read_text())["rounds"][-1]["base"] or winner == "r01a1"
    assert "/" not in json.dumps([each["record"]["candidate"]["workspace"] for each in _rounds(recorded)])


def _rounds(folder: Path) -> list[dict[str, dict[str, dict[str, str]]]]:
    rounds: list[dict[str, dict[str, dict[str, str]]]] = json.loads((folder / "recording.json").read_text())["rounds"]
    return [each for each in rounds if each["record"]["candidate"]]


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no recording at .*\n  it has no recording\.json and no recording/"):
        recording_folder(tmp_path)


def test_a_recording_of_another_target_is_refused_with_the_command_that_fits(recorded: Path) -> None:
    with pytest.raises(SpecError, match=r"is a search for 'sample', not for 'other'\nnext: vibeserve \+target=sample"):
        read_recording(recorded, target="other")


# -- branches


def branched(root: Path) -> tuple[Any, Found, Path]:
    """A beam search that finds a pair of cards upon a branch that lost, and its recording."""
    rig = beam(root / "first", rounds=8)
    found = rig.start()
    write_recording(
        root / "recording", entries=found.entries, store=rig.team.store, target="sample", plan_id="0" * 16
    )
    return rig, found, root / "recording"


def digests(search: Found) -> dict[str, str]:
    return {name: tree_digest(each.workspace) for name, each in search.checkpoints.items()}


def replayed_search(rig: Any, folder: Path, root: Path) -> Found:
    team = make_team(rig.library, root / "run", spec=rig.spec)
    with Journal.open(root / "journal.jsonl") as journal:
        return replay(team, read_recording(folder, target="sample"), folder=folder, journal=journal)


def test_a_search_with_branches_is_replayed_as_the_tree_that_it_was(tmp_path: Path) -> None:
    rig, found, folder = branched(tmp_path)
    again = replayed_search(rig, folder, tmp_path / "again")
    assert components(again) == components(found) == ("first", "second")
    assert again.tree.nodes == found.tree.nodes and again.tree.rounds == found.tree.rounds
    winner = found.tree.nodes[found.tree.incumbent]
    assert winner.parent not in ("r00a1", ""), "it stands upon a branch that lost"
    assert digests(again) == digests(found) and len(digests(again)) > 2
    offered = [[each.record.candidate for each in one.entries if each.record.candidate] for one in (found, again)]
    assert [each.commit for each in offered[0]] == [each.commit for each in offered[1]]
    graphs = [search_graph(to_data(entry) for entry in one.entries) for one in (found, again)]
    assert graphs[0] == graphs[1] and len(graphs[0].winning) == 3


def test_a_replay_that_was_killed_goes_on_upon_its_branches(tmp_path: Path) -> None:
    rig, found, folder = branched(tmp_path)
    path = folder / "recording.json"
    whole = path.read_text()
    document = json.loads(whole)
    at = next(n for n, each in enumerate(document["rounds"]) if each["step"] and each["step"]["parent"] != "r00a1")
    path.write_text(json.dumps({**document, "rounds": document["rounds"][:at]}))
    replayed_search(rig, folder, tmp_path / "again")
    path.write_text(whole)
    shutil.rmtree(tmp_path / "again/run/workspaces")
    again = replayed_search(rig, folder, tmp_path / "again")
    assert again.tree.nodes == found.tree.nodes and again.tree.incumbent == found.tree.incumbent


def as_version_1(folder: Path, *, num_rounds: int = 99) -> None:
    """The first rounds of a recording as they were before they said where they stand."""
    path = folder / "recording.json"
    document = json.loads(path.read_text())
    document["rounds"] = document["rounds"][:num_rounds]
    for each in document["rounds"]:
        del each["step"], each["is_kept"]
    path.write_text(json.dumps({**document, "schema_version": 1}))


def test_a_recording_of_version_1_with_one_line_is_upgraded(recorded: Path, tmp_path: Path) -> None:
    as_version_1(recorded, num_rounds=2)
    assert read_recording(recorded, target="sample").schema_version == 2
    assert replayed(recorded, tmp_path / "again") == "r01a1"


def test_a_recording_of_version_1_with_branches_is_refused_with_its_version(tmp_path: Path) -> None:
    rig, _, folder = branched(tmp_path)
    as_version_1(folder)
    told = "has schema_version 1; which does not say where the rounds of a search with branches started"
    shutil.copy(rig.journal, tmp_path / "journal.jsonl")  # where an artifact has it
    with pytest.raises(SpecError, match=told):
        read_recording(folder, target="sample")
    (tmp_path / "journal.jsonl").unlink()
    path = folder / "recording.json"
    document = json.loads(path.read_text())
    document["rounds"][2]["record"]["reason"] = "branch: headline: x1.1 over r01a1; about x0.9 of the incumbent"
    path.write_text(json.dumps(document))
    with pytest.raises(SpecError, match=told):
        read_recording(folder, target="sample")


def test_a_recording_of_a_later_version_is_refused_with_its_version(recorded: Path) -> None:
    path = recorded / "recording.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 3}))
    told = "has schema_version 3; this version of VibeServe reads 2, and 1 upgraded\nnext: "
    with pytest.raises(SpecError, match=told):
        read_recording(recorded, target="sample")


def test_a_round_that_starts_from_nothing_that_was_kept_is_refused(tmp_path: Path) -> None:
    _, _, folder = branched(tmp_path)
    path = folder / "recording.json"
    document = json.loads(path.read_text())
    step = next(each["step"] for each in document["rounds"] if each["step"])
    step["parent"] = "r09a1"
    path.write_text(json.dumps(document))
    with pytest.raises(SpecError, match="round 1 starts from r09a1, which no round before it left"):
        read_recording(folder, target="sample")


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1, "target": "sample", "plan_id": 3, "rounds": []}'])
def test_what_cannot_be_read_is_refused(recorded: Path, text: str) -> None:
    (recorded / "recording.json").write_text(text)
    with pytest.raises(SpecError, match=r"agents\.recording: .*recording\.json is no recording: "):
        read_recording(recorded, target="sample")


def test_a_recording_in_which_nothing_was_kept_is_refused(recorded: Path) -> None:
    document = json.loads((recorded / "recording.json").read_text())
    (recorded / "recording.json").write_text(json.dumps({**document, "rounds": []}))
    with pytest.raises(SpecError, match="holds no round that was kept"):
        read_recording(recorded, target="sample")


def test_an_edit_that_was_changed_afterwards_is_refused(recorded: Path, tmp_path: Path) -> None:
    path = next((recorded / "edits" / "r01a1" / "files").rglob("linear.py"))
    path.write_text(path.read_text() + "import os\n")
    with pytest.raises(RefusedError, match=r"linear\.py"):
        replayed(recorded, tmp_path / "again")


def test_another_tree_than_the_recorded_one_is_refused(recorded: Path, tmp_path: Path) -> None:
    document = json.loads((recorded / "recording.json").read_text())
    document["rounds"][1]["tree_digest"] = "0" * 64
    (recorded / "recording.json").write_text(json.dumps(document))
    with pytest.raises(RefusedError, match="the edits of r01a1 do not give the recorded tree"):
        replayed(recorded, tmp_path / "again")


def test_a_folder_that_is_not_there_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "tiny_cpu", "agents=replay", "agents.recording=no/such/folder"]) == 2
    told = capsys.readouterr().err
    assert "agents.recording: no folder " in told
    assert "next: name an artifact, such as artifacts/smollm2_cpu/latest" in told


KEPT = Path(__file__).parent / "recordings" / "smollm2_notes"
"""two rounds that language models won with the skills' notes alone: continuous batching, and a forward pass in C++"""


def test_a_kept_recording_gives_its_tree_and_the_scan_still_lets_it_pass(tmp_path: Path) -> None:
    recording = read_recording(KEPT, target="smollm2_cpu")
    team, _ = team_in(tmp_path)
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        search = replay(team, recording, folder=KEPT, journal=journal)
    assert search.incumbent is not None
    workspace = search.incumbent.workspace
    assert tree_digest(workspace) == recording.winner.tree_digest
    assert search.incumbent.candidate.origin == "agent:external"
    assert list((workspace / "runtime").rglob("*.cpp"))
    assert scan_workspace(workspace, allow_engines=[]) == []
