"""The report page: self-contained, deterministic, escaped, and it says what the manifest says."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from artifact_samples import sample_manifest, sample_metric

from vibeserve.core.manifest import AuditResult, Selection
from vibeserve.core.nouns import Refusal
from vibeserve.report import charts, render_report, svg

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Tags balanced, attributes that load something, visible text, inline SVGs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [f"{key}={value}" for key, value in attrs if key in ("src", "href", "xlink:href", "action")]
        self.loads = [load for load in self.loads if not load.startswith("href=#")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def figures(html: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)]


@pytest.fixture(scope="module")
def html() -> str:
    return render_report(sample_manifest())


def test_the_page_is_whole_and_loads_nothing(html: str) -> None:
    page = Page(html)
    assert page.open == [] and page.loads == []
    assert not {"script", "img", "link", "iframe", "object"} & set(page.tags)
    assert "url(" not in html and "@import" not in html and "http" not in html.replace("http-equiv", "")


def test_the_same_manifest_gives_the_same_bytes(html: str) -> None:
    assert render_report(sample_manifest()) == html


def test_it_says_status_level_and_how_it_was_made(html: str) -> None:
    text = Page(html).text
    for words in (
        "sample: assembled serving runtime",
        "certified",
        "quick",
        "0123456789abcdef",
        "Not run at this level: soak",
    ):
        assert words in text
    for words in ("transformers_cb", "5.24.0", "--continuous-batching", "skipped: not installed", "1.71x [1.66, 1.78]"):
        assert words in text
    for words in (
        "Batching",
        "decode waits on single requests",
        "accuracy",
        "top1_agreement",
        "component:continuous_batching",
    ):
        assert words in text
    for words in (
        "Xeon",
        "avx512f, avx512_vnni",
        "weights 16 bit, KV 16 bit, 270 MB/token, 21% of the roofline",
        "queue 50%, decode.linear 30%",
    ):
        assert words in text


def test_text_from_agents_is_escaped(html: str) -> None:
    assert "<b>Int4" not in html
    assert "&lt;b&gt;Int4 &amp; more&lt;/b&gt;" in html
    hostile = replace(
        sample_manifest(), target='"><script>alert(1)</script>',
        reasons=(Refusal(gate="scan", reason_class="x", text="<img src=x onerror=y>"),),
    )  # fmt: skip
    page = Page(render_report(hostile))
    assert not {"script", "img"} & set(page.tags)


def test_every_figure_is_well_formed_and_inside_its_box(html: str) -> None:
    drawn = figures(html)
    assert len(drawn) == 6, "rounds, checkpoints, seconds, baselines, latency, roofline"
    for figure in drawn:
        width, height = (float(value) for value in figure.attrib["viewBox"].split()[2:])
        assert figure.attrib["aria-label"]
        for element in figure.iter():
            for key, limit in (
                ("x", width),
                ("cx", width),
                ("x1", width),
                ("x2", width),
                ("y", height),
                ("cy", height),
            ):
                if key in element.attrib:
                    assert -1 <= float(element.attrib[key]) <= limit + 1, (element.tag, element.attrib)


def test_the_baseline_figure_draws_parity_goal_and_interval() -> None:
    manifest = sample_manifest()
    figure = charts.baseline_bars(manifest.metrics[0], manifest.goals)
    assert 'class="parity"' in figure and "goal 1.5x" in figure and 'class="whisker"' in figure
    assert "vllm" not in figure


def test_a_curve_needs_throughput_and_latency_at_one_load() -> None:
    manifest = sample_manifest()
    assert charts.curve_names(manifest.metrics) == ["candidate", "transformers_cb"]
    figure = ElementTree.fromstring(charts.latency_throughput(manifest.metrics, "tpot_p50"))
    assert len(list(figure.iter("circle"))) == 4
    assert charts.latency_throughput(manifest.metrics, "ttft_p50") == ""
    assert charts.latency_throughput((sample_metric("tpot_p50"),), "tpot_p50") == ""
    one_load = manifest.metrics[:2]
    assert charts.latency_throughput(one_load, "tpot_p50") == "", "one point is no curve"


def test_a_run_that_measured_nothing_still_has_a_page() -> None:
    reason = Refusal(gate="baseline", reason_class="not_measured", text="the required baseline died", file="log")
    bare = sample_manifest(
        status="uncertified", metrics=(), rounds=(), goals=(), authorship=(), accuracy={}, usage={}, reasons=(reason,)
    )
    text = Page(render_report(bare)).text
    assert "Why it is not certified" in text and "the required baseline died" in text and "No round was run." in text


def test_the_headline_claim_is_the_hardest_competent_baseline() -> None:
    metric = sample_metric("output_throughput")
    base = metric.baselines[0]
    easy = replace(base, name="transformers", baseline_class="naive", ratio=1.1)
    loose = replace(base, name="llama_cpp", precision="any", ratio=1.2)
    hard = replace(base, name="vllm", ratio=1.3)
    manifest = sample_manifest(metrics=(replace(metric, baselines=(easy, base, loose, hard)),))
    assert "against vllm, the hardest competent baseline (same bytes)" in Page(render_report(manifest)).text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1.0, "1"), (1.714, "1.71"), (120.04, "120"), (0.0513, "0.0513"), (15234.2, "15234")]
)
def test_numbers_have_three_significant_figures(value: float, text: str) -> None:
    assert svg.number(value) == text


def test_ticks_are_round_and_inside() -> None:
    assert svg.linear_ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert svg.log_ticks(0.9, 22.0) == pytest.approx([1, 2, 5, 10, 20])
    assert svg.log_ticks(1.1, 1.9) == pytest.approx([1.2, 1.4, 1.6, 1.8])
    low, high = svg.bounds([3.0, 3.0])
    assert low < 3.0 < high


def test_audits_and_the_number_that_chose_the_winner_are_told() -> None:
    audits = (
        AuditResult(name="repeated_prompt", passed=True, text="1.01 [0.98, 1.03] times as fast"),
        AuditResult(name="soak", passed=False, text="memory <grew> by 30%"),
    )
    selection = Selection(
        metric="output_throughput", unit="tok/s", load="c8", selected=150.0, certified=120.0, ratio=0.8
    )
    text = Page(render_report(sample_manifest(audits=audits, selection=selection))).text
    assert "repeated prompt" in text and "memory <grew> by 30%" in text
    assert "150 tok/s in the round that chose the winner among" in text and "0.8x" in text
    assert "Audits of the running server" not in Page(render_report(sample_manifest())).text
