"""Render the report page from the manifest: the template holds the words, `charts` the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.core.environment import Environment as MachineEnvironment
from vibeserve.core.manifest import BaselineValue, Manifest, MetricResult
from vibeserve.core.nouns import RatioInterval
from vibeserve.core.paths import data_dir
from vibeserve.journal import Event
from vibeserve.planning import calibration_text
from vibeserve.report import charts, markdown, search_charts, svg
from vibeserve.report.history import History, history_of
from vibeserve.report.profile import ProfileRow, profile_bars
from vibeserve.status import RoundRow

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "report.html.j2"


def render_report(
    manifest: Manifest, *, events: Sequence[Event] = (),
    profile: tuple[Sequence[ProfileRow], Sequence[ProfileRow]] = ((), ()),
) -> str:  # fmt: skip
    """The page as HTML text. It loads nothing: no script, font or picture from elsewhere. Same manifest and journal,
    same bytes.

    `events`: of the run's journal, for what the manifest does not hold: where rounds started from, what each cost.
    `profile`: rows of the seed and of the winner, where a profiler measured more than the rounds' spans.
    """
    from markupsafe import Markup

    headline = manifest.headline()
    history = history_of(manifest, events)
    figures = {
        "baselines": charts.baseline_bars(headline, manifest.goals) if headline else "",
        "roofline": charts.roofline_bars(headline) if headline else "",
        **_search_figures(
            history, profile=profile if all(profile) else history.profile, is_scored=manifest.calibration is not None
        ),
    }  # fmt: skip
    curves = [(name, charts.latency_throughput(manifest.metrics, name)) for name in charts.LATENCIES]
    return (
        environment()
        .get_template(TEMPLATE)
        .render(
            manifest=manifest,
            headline=headline,
            history=history,
            best=best_claim(headline),
            # the figures escape every text they take in
            figures={name: Markup(figure) for name, figure in figures.items()},
            curves=[(name, Markup(figure)) for name, figure in curves if figure],
            curve_names=charts.curve_names(manifest.metrics),
            css=Markup((_folder() / "report.css").read_text(encoding="utf-8")),
            tables=[(precision, _rows(manifest, precision)) for precision in ("same_bytes", "any")],
            refusals=[(entry.number, refusal) for entry in manifest.rounds for refusal in entry.refusals],
        )
    )


def _search_figures(
    history: History, *, profile: tuple[Sequence[ProfileRow], Sequence[ProfileRow]], is_scored: bool
) -> dict[str, str]:
    """`is_scored`: the clock was a real one, so that a measured ratio says something of a forecast."""
    rows, nodes = history.rows, history.nodes
    return {
        "rounds": search_charts.trajectory(rows, nodes), "graph": search_charts.graph(rows, nodes),
        "forecasts": search_charts.forecasts(rows) if is_scored else "", "profile": profile_bars(*profile),
        "seconds": search_charts.seconds_by_round(rows),
        "tokens": search_charts.tokens_by_round(rows, history.spent, roles=[each.role for each in history.roles]),
    }  # fmt: skip


def interval_text(interval: RatioInterval | BaselineValue | RoundRow | None) -> str:
    """`1.62x [1.55, 1.70]`; a dash where nothing was measured."""
    if interval is None or interval.ratio is None:
        return "-"
    if interval.ci_low is None or interval.ci_high is None:
        return f"{svg.number(interval.ratio)}x"
    return f"{svg.number(interval.ratio)}x [{svg.number(interval.ci_low)}, {svg.number(interval.ci_high)}]"


def bytes_text(base: BaselineValue) -> str:
    """What a baseline reads per token and how near it comes to that precision's roofline; empty where nobody knows."""
    facts = []
    if base.weight_bits is not None:
        facts.append(f"weights {svg.number(base.weight_bits)} bit")
    if base.kv_bits is not None:
        facts.append(f"KV {svg.number(base.kv_bits)} bit")
    if base.bytes_per_token is not None:
        facts.append(f"{svg.number(base.bytes_per_token / 1e6)} MB/token")
    if base.roofline_share is not None:
        facts.append(f"{base.roofline_share:.0%} of the roofline")
    return ", ".join(facts)


def environment_facts(seen: MachineEnvironment | None) -> list[tuple[str, str]]:
    """(name, text) of what was recorded of the machine and the hardware's identity does not say; empty without it."""
    if seen is None:
        return []
    packages = ", ".join(f"{name} {version}" for name, version in sorted(seen.packages.items()))
    return [
        ("cpu_governor", seen.cpu_governor or "none to ask"),
        ("virtual", "yes" if seen.is_virtual else "no"),
        ("kernel", seen.kernel),
        ("python", seen.python),
        ("packages", f"{packages}; lock {seen.lock_digest[:16]}"),
        ("engine_cpus", f"{', '.join(map(str, seen.engine_cpus))} ({seen.threads} threads)"),
        ("client_cpus", ", ".join(map(str, seen.client_cpus))),
        ("load_average_before", markdown.known(seen.load_average_before)),
        ("cpu_pressure_before", markdown.share(seen.cpu_pressure_before)),
        ("cpu_pressure", markdown.share(seen.cpu_pressure)),
        ("steal_share", markdown.share(seen.steal_share)),
        ("stopped_by", seen.stopped_by or "not recorded"),
        ("memory_counted_by", seen.memory_counted_by),
    ]


def _rows(manifest: Manifest, precision: str) -> list[tuple[MetricResult, BaselineValue]]:
    """The baselines of one table: same bytes and any precision never mix."""
    return [(metric, base) for metric in manifest.metrics for base in metric.baselines if base.precision == precision]


def best_claim(headline: MetricResult | None) -> BaselineValue | None:
    """The headline's hardest competent baseline in the same-bytes table: the one whose ratio is the lowest."""
    if headline is None:
        return None
    measured = [base for base in headline.baselines if base.ratio is not None and base.baseline_class == "competent"]
    same_bytes = [base for base in measured if base.precision == "same_bytes"]
    return min(same_bytes or measured, key=lambda base: base.ratio or 0.0, default=None)


def _folder() -> Path:
    return data_dir("templates") / "report"


def environment() -> Environment:
    """Templates of `templates/report/`, escaping HTML, with the filters that pages share."""
    return _environment(autoescape=True)


def markdown_environment() -> Environment:
    """The same for pages in Markdown, whose own filters escape."""
    made = _environment(autoescape=False)
    made.filters.update(
        {"cell": markdown.cell, "code": markdown.code, "known": markdown.known, "share": markdown.share}
    )
    return made


def _environment(*, autoescape: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_folder()),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "number": svg.number,
        "interval": interval_text,
        "bytes_read": bytes_text,
        "words": _words,
        "facts": environment_facts,
        "calibration": calibration_text,
    }
    environment.filters.update(filters)
    return environment


def _words(name: str) -> str:
    return name.replace("_", " ")
