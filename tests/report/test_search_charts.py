"""The search on the page: every round is drawn, failed ones too; checkpoints; forecasts beside results; cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from artifact_samples import sample_manifest
from status_samples import long_manifest, long_run, round_data
from test_report import Page, figures

from vibeserve.artifact.page import write_report
from vibeserve.core.nouns import Outcome, Refusal
from vibeserve.journal import Event, read_events
from vibeserve.report import render_report, search_charts
from vibeserve.report.history import history_of
from vibeserve.report.profile import ProfileRow, profile_bars
from vibeserve.status import SpentBy, checkpoint_graph, lanes_of, round_rows

REFUSED = Refusal(gate="accuracy", reason_class="wrong_tokens", text="0.91 of the tokens agree")
MAX_PAGE_BYTES = 1_000_000


def search(*rounds: dict[str, Any]) -> tuple[Any, Any]:
    rows = round_rows(Event(seq=number, time_s=0.0, kind="round", data=data) for number, data in enumerate(rounds))
    return rows, checkpoint_graph(rows)


def every_outcome() -> tuple[Any, Any]:
    return search(
        round_data(0), round_data(1, ratio=1.8), round_data(2, outcome=Outcome.REJECTED, ratio=1.3, refused=REFUSED),
        round_data(3, outcome=Outcome.CRASHED, ratio=None), round_data(4, outcome=Outcome.TIMED_OUT, ratio=None),
        round_data(5, outcome=Outcome.INFRA, ratio=None), round_data(6, outcome=Outcome.REJECTED, ratio=0.9),
    )  # fmt: skip


def marks(figure: str) -> list[tuple[str, str]]:
    """(shape, class) of every mark."""
    found = ElementTree.fromstring(figure).iter()
    return [(each.tag, each.attrib["class"]) for each in found if each.attrib.get("class", "").startswith("mark")]


def test_every_round_has_its_mark_whatever_became_of_it() -> None:
    figure = search_charts.trajectory(*every_outcome())
    assert marks(figure) == [
        ("circle", "mark kept"), ("circle", "mark kept"), ("path", "mark refused"), ("path", "mark refused"),
        ("path", "mark refused"), ("rect", "mark infra"), ("circle", "mark fell"),
    ]  # fmt: skip
    titles = [element.text or "" for element in ElementTree.fromstring(figure).iter("title")]
    assert titles[1] == "round 1: keep the KV cache in blocks (1): accepted: faster"
    assert titles[3].startswith("round 3: pack the weights once at start (3): crashed: start/died: ")
    assert "not measured" in figure
    whole = "7 rounds: 1 baseline, 1 accepted, 2 rejected, 1 crashed, 1 timed out, 1 infra"
    assert f"{whole}; the incumbent reached 1.8 times round 0" in figure


def test_what_was_not_measured_has_no_number_and_no_height() -> None:
    figure = ElementTree.fromstring(search_charts.trajectory(*every_outcome()))
    assert [each.text for each in figure.iter("text") if each.attrib["class"] == "value"] == ["1.8x", "1x"]
    lane = {each.attrib["d"].split(",")[1].split("L")[0] for each in figure.iter("path")}
    assert len(lane) == 2, "the refused one where it was measured, the crashed ones in a lane of their own"
    assert "not measured" not in search_charts.trajectory(*search(round_data(0), round_data(1)))
    assert search_charts.trajectory((), ()) == ""


def test_a_rounds_whiskers_are_its_own_interval_at_its_parents_level() -> None:
    rows, nodes = search(round_data(0), round_data(1, ratio=2.0, spread=0.1), round_data(2, ratio=1.5, spread=0.05))
    low, high = search_charts._interval(rows[2], nodes[2])
    assert (low, high) == (pytest.approx(2.0 * rows[2].ci_low), pytest.approx(2.0 * rows[2].ci_high))


def test_sixty_rounds_keep_their_numbers_apart() -> None:
    rows, nodes = search(*(round_data(number, ratio=1.02) for number in range(60)))
    figure = ElementTree.fromstring(search_charts.trajectory(rows, nodes))
    ticks = [float(each.attrib["x"]) for each in figure.iter("text") if (each.text or "").isdigit()]
    values = sorted(float(each.attrib["x"]) for each in figure.iter("text") if each.attrib["class"] == "value")
    assert min(after - before for before, after in pairwise(ticks)) > 30
    assert min(after - before for before, after in pairwise(values)) > 30
    assert len([mark for mark in marks(search_charts.trajectory(rows, nodes)) if mark[1] == "mark kept"]) == 60


# -- the graph of checkpoints


def test_branches_lie_in_lanes_and_the_path_to_the_incumbent_is_strong() -> None:
    rows, nodes = search(
        round_data(0), round_data(1, ratio=2.0, parent="c0"),
        round_data(2, outcome=Outcome.REJECTED, ratio=None, parent="c0", beside_parent=1.5),
        round_data(3, ratio=2.0, parent="c1"), round_data(4, outcome=Outcome.CRASHED, ratio=None, parent="c2"),
    )  # fmt: skip
    assert lanes_of(rows) == {0: 0, 1: 0, 2: 1, 3: 0, 4: 1}
    figure = ElementTree.fromstring(search_charts.graph(rows, nodes))
    edges = [each.attrib["class"] for each in figure.iter() if each.attrib.get("class", "").startswith("edge")]
    assert sorted(edges) == ["edge", "edge kept", "edge path", "edge path"]
    drawn = [mark[1] for mark in marks(search_charts.graph(rows, nodes))]
    assert drawn == ["mark kept", "mark kept", "mark side", "mark kept", "mark refused"]
    assert "round 2 from 0; round 3 from 1" in figure.attrib["aria-label"]
    assert search_charts.graph(*search(round_data(0))) == ""


# -- hypotheses, profile, cost


@pytest.mark.parametrize(
    ("data", "judgement"),
    [
        (round_data(1, ratio=1.5, forecast=1.5), "as forecast"),
        (round_data(1, ratio=1.5, forecast=2.5), "less than forecast"),
        (round_data(1, ratio=1.5, forecast=1.1), "more than forecast"),
        (round_data(1, ratio=1.5, forecast=1.0), "nothing was forecast"),
        (round_data(1, ratio=1.5, refused=REFUSED), "not tested: a gate refused it"),
        (round_data(1, outcome=Outcome.TIMED_OUT, ratio=None), "not tested: timed out"),
    ],
)
def test_a_forecast_is_judged_by_what_was_measured(data: dict[str, Any], judgement: str) -> None:
    events = [
        Event(seq=0, time_s=0.0, kind="round", data=round_data(0)),
        Event(seq=1, time_s=0.0, kind="round", data=data),
    ]
    (found,) = history_of(sample_manifest(rounds=()), events).hypotheses
    assert found.judgement == judgement
    assert found.seen == "queue 40% to 20%, decode.linear 60% to 60%, http 10% to 10%"


def test_a_gain_whose_path_was_not_seen_tests_no_forecast() -> None:
    data = round_data(1, ratio=1.5, forecast=1.5)
    data["record"]["activation"] = {"state": "not activated", "text": "nothing of it", "seen": [], "unseen": ["f"]}
    events = [
        Event(seq=0, time_s=0.0, kind="round", data=round_data(0)), Event(seq=1, time_s=0.0, kind="round", data=data)
    ]  # fmt: skip
    history = history_of(sample_manifest(rounds=()), events)
    assert history.hypotheses[0].judgement == "not activated: nothing of what it changes was seen to run"
    assert search_charts.forecasts(history.rows) == ""


def test_the_forecast_figure_leaves_out_what_tested_nothing() -> None:
    rows, _ = every_outcome()
    assert len(marks(search_charts.forecasts(rows))) == 2
    assert search_charts.forecasts(rows[:1]) == ""


def test_a_profile_is_drawn_from_rows_whatever_measured_them() -> None:
    before = [ProfileRow(name="attention", share=0.7), ProfileRow(name="queue", share=0.3)]
    after = [ProfileRow(name="attention", share=0.9, ceiling=10.0)]
    figure = profile_bars(before, after)
    bars = list(ElementTree.fromstring(figure).iter("rect"))
    assert [bar.attrib["class"] for bar in bars] == ["bar other", "bar", "bar other"]
    assert "attention, the incumbent: 90.0%; without it at most 10x" in figure
    assert "attention 70% to 90%; queue 30% to 0%" in figure
    assert profile_bars(before, []) == "" == profile_bars([], after)
    page = render_report(sample_manifest(), profile=(before, after))
    assert "attention, the incumbent: 90.0%" in page and "attention" not in render_report(sample_manifest())


def test_cost_is_told_by_round_and_role(tmp_path: Path) -> None:
    path = long_run(tmp_path, num_rounds=6)
    history = history_of(long_manifest(path), read_events(path))
    assert [(each.role, each.num_requests, each.tokens) for each in history.roles] == [
        ("implementer", 5, 100_000), ("planner", 5, 21_500)
    ]  # fmt: skip
    figure = search_charts.tokens_by_round(history.rows, history.spent, roles=["implementer", "planner"])
    assert "round 2, implementer: 20000 tokens" in figure and "121500 tokens in all; the most in round 5" in figure
    seconds = search_charts.seconds_by_round(history.rows)
    assert "round 0, measuring: 30 s" in seconds and "round 0, all else: 30 s" in seconds
    assert search_charts.tokens_by_round(history.rows, (), roles=[]) == ""
    assert history.roles[0].line() == "implementer (m-1): 5 requests, 100000 tokens, 1.0000 USD"
    unpriced = SpentBy(round=1, role="planner", model="x", num_requests=1, tokens=1, usd=None)
    assert replace(history, spent=(*history.spent, unpriced)).roles[1].usd is None


# -- the page


def test_the_page_of_a_long_search_is_whole_small_and_says_everything(tmp_path: Path) -> None:
    path = long_run(tmp_path, num_rounds=60)
    html = render_report(long_manifest(path), events=read_events(path))
    assert len(html.encode()) < MAX_PAGE_BYTES / 4
    page = Page(html)
    assert page.open == [] and page.loads == [] and "script" not in page.tags
    for words in (
        "Hypotheses: what was forecast, what was found", "the span decode.linear shrinks by a third",
        "less than forecast", "not tested: a gate refused it", "Where a request's time goes", "What the search cost",
        "Tokens of agents by round", "constrain ban paged-kv", "All 60 rounds, with the reason of each outcome",
        "queue 40% to 20%",
    ):  # fmt: skip
        assert words in page.text, words
    for figure in figures(html):
        width, height = (float(value) for value in figure.attrib["viewBox"].split()[2:])
        for each in figure.iter():
            for key, limit in (
                ("x", width),
                ("cx", width),
                ("x2", width),
                ("y", height),
                ("cy", height),
                ("y2", height),
            ):
                assert -1 <= float(each.attrib.get(key, 0)) <= limit + 1, (each.tag, each.attrib)


def test_without_a_journal_the_manifests_rounds_are_drawn() -> None:
    history = history_of(sample_manifest())
    assert [(row.number, row.parent) for row in history.rows] == [(0, None), (1, 0), (2, 1), (3, 1)]
    assert marks(search_charts.trajectory(history.rows, history.nodes))[2] == ("path", "mark refused")
    assert "What the search cost" in Page(render_report(sample_manifest())).text


def test_text_of_a_journal_is_escaped(tmp_path: Path) -> None:
    data = round_data(1)
    for key in ("title", "hypothesis", "activation_evidence"):
        data["record"]["proposal"][key] = '"><script>alert(1)</script>'
    data["record"]["analysis"] = data["record"]["reason"] = "<img src=x>"
    events = [
        Event(seq=number, time_s=0.0, kind="round", data=each) for number, each in enumerate((round_data(0), data))
    ]
    page = Page(render_report(sample_manifest(), events=events))
    assert not {"script", "img"} & set(page.tags) and "<img src=x>" in page.text


def test_the_artifacts_journal_is_what_the_page_is_drawn_from(packaged_long: Path) -> None:
    assert write_report(packaged_long) == packaged_long / "report.html", "the same page, byte for byte"
    assert "Tokens of agents by round" in (packaged_long / "report.html").read_text()


@pytest.fixture
def packaged_long(tmp_path: Path) -> Path:
    """An artifact whose journal is that of a long search."""
    from artifact_samples import sample_contents

    from vibeserve.artifact import package
    from vibeserve.core.manifest import RoundRecord
    from vibeserve.journal import Journal

    path = long_run(tmp_path, num_rounds=9)
    manifest = long_manifest(path)
    records = tuple(RoundRecord(entry=entry) for entry in manifest.rounds)
    contents = replace(sample_contents(tmp_path, manifest), rounds=records)
    with Journal.open(path) as journal:
        return package(contents, out_dir=tmp_path / "artifacts", journal=journal).path
