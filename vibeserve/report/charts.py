"""The report's figures: pure functions from manifest documents to SVG text ('' where there is nothing to draw)."""

from __future__ import annotations

from collections.abc import Sequence

from vibeserve.core.manifest import GoalResult, MetricResult
from vibeserve.report import svg

WIDTH = 880.0
LATENCIES = ("tpot_p50", "ttft_p50", "e2el_p50")
THROUGHPUT = "output_throughput"
NUM_SERIES_COLOURS = 7


def baseline_bars(metric: MetricResult, goals: Sequence[GoalResult]) -> str:
    """Ratio of the candidate to each baseline with its interval. Lines: parity at 1, and the goals on this metric."""
    rows = [base for base in metric.baselines if base.ratio is not None]
    if not rows:
        return ""
    row_height, left, top = 34.0, 210.0, 12.0
    height = top + row_height * len(rows) + 40
    high = max(max(base.ratio or 0.0, base.ci_high or 0.0) for base in rows)
    limits = [goal.limit for goal in goals if _is_ratio_goal(goal, metric) and goal.limit is not None]
    x = svg.Scale(low=0.0, high=max(high, 1.0, *limits) * 1.12, start=left, end=WIDTH - 16)
    body = _grid_x(x, top=top, bottom=height - 40)
    for limit in limits:
        body.append(svg.line(x(limit), top, x(limit), height - 40, css="goal"))
        body.append(svg.text(x(limit) + 4, top + 4, f"goal {svg.number(limit)}x", css="tick"))
    body.append(svg.line(x(1.0), top, x(1.0), height - 40, css="parity"))
    for index, base in enumerate(rows):
        ratio, y = base.ratio or 0.0, top + row_height * index + row_height / 2
        interval = f" [{svg.number(base.ci_low)}, {svg.number(base.ci_high)}]" if base.ci_low and base.ci_high else ""
        label = f"{svg.number(ratio)}x{interval}"
        body.append(
            svg.text(left - 10, y + 4, f"{base.name} ({base.precision.replace('_', ' ')})", css="label", anchor="end")
        )
        body.append(svg.rect(left, y - 9, x(ratio) - left, 18, css="bar", title=f"{base.name}: {label}"))
        if base.ci_low and base.ci_high:
            body.append(svg.line(x(base.ci_low), y, x(base.ci_high), y, css="whisker"))
        inside = x(base.ci_high or ratio) > WIDTH - 150
        body.append(
            svg.text(
                left + 8 if inside else x(base.ci_high or ratio) + 8, y + 4, label, css="onbar" if inside else "value"
            )
        )
    body.append(
        svg.text(left, height - 6, f"{metric.name} at {metric.load}: candidate / baseline, 1 = parity", css="axis")
    )
    return svg.figure(
        WIDTH, height, body, label=f"Ratio of the candidate to each baseline, {metric.name} at {metric.load}"
    )


def latency_throughput(metrics: Sequence[MetricResult], latency: str) -> str:
    """One curve per server over the loads: output throughput across, `latency` up. '' unless two loads have both: a
    single one is in the tables."""
    series = _curves(metrics, latency)
    points = [point for curve in series.values() for _, *point in curve]
    if len({load for curve in series.values() for load, *_ in curve}) < 2:
        return ""
    height, left, right, top, bottom = 300.0, 64.0, 16.0, 16.0, 48.0
    x_low, x_high = svg.bounds([point[0] for point in points], include=[0.0])
    y_low, y_high = svg.bounds([point[1] for point in points], include=[0.0])
    x = svg.Scale(low=max(x_low, 0.0), high=x_high, start=left, end=WIDTH - right)
    y = svg.Scale(low=max(y_low, 0.0), high=y_high, start=height - bottom, end=top)
    body = [*_grid_y(y, left=left, right=WIDTH - right, unit=""), *_grid_x(x, top=top, bottom=height - bottom)]
    for index, (name, curve) in enumerate(series.items()):
        css = f"s{min(index, NUM_SERIES_COLOURS)}"
        body.append(svg.polyline([(x(across), y(up)) for _, across, up in curve], css=f"curve {css}"))
        for load, across, up in curve:
            title = f"{name} at {load}: {svg.number(across)} tok/s, {latency} {svg.number(up)} s"
            body.append(svg.circle(x(across), y(up), css=f"dot {css}", title=title))
            body.append(svg.text(x(across) + 7, y(up) - 6, load, css="tick"))
    body.append(
        svg.text((left + WIDTH - right) / 2, height - 8, "output throughput, tok/s", css="axis", anchor="middle")
    )
    body.append(svg.text(left, top - 4, f"{latency}, s", css="axis"))
    return svg.figure(WIDTH, height, body, label=f"{latency} against output throughput, one curve per server")


def curve_names(metrics: Sequence[MetricResult]) -> list[str]:
    """Servers in the order of their colours."""
    names: dict[str, None] = {}
    for latency in LATENCIES:
        names.update(dict.fromkeys(_curves(metrics, latency)))
    return list(names)


def roofline_bars(metric: MetricResult) -> str:
    """Share of the roofline at each server's own precision, 0 to 100%."""
    shares = [("candidate", metric.roofline_share)] + [(base.name, base.roofline_share) for base in metric.baselines]
    rows = [(name, share) for name, share in shares if share is not None]
    if not rows:
        return ""
    row_height, left, top = 28.0, 210.0, 8.0
    height = top + row_height * len(rows) + 36
    x = svg.Scale(low=0.0, high=1.0, start=left, end=WIDTH - 60)
    body = _grid_x(x, top=top, bottom=height - 36, is_share=True)
    for index, (name, share) in enumerate(rows):
        y = top + row_height * index + row_height / 2
        css = "bar" if name == "candidate" else "bar other"
        body.append(svg.text(left - 10, y + 4, name, css="label", anchor="end"))
        body.append(svg.rect(left, y - 8, x(min(share, 1.0)) - left, 16, css=css, title=f"{name}: {share:.0%}"))
        body.append(svg.text(x(min(share, 1.0)) + 6, y + 4, f"{share:.0%}", css="value"))
    return svg.figure(WIDTH, height, body, label=f"Share of the roofline, {metric.name} at {metric.load}")


def _is_ratio_goal(goal: GoalResult, metric: MetricResult) -> bool:
    return goal.ratio is not None and (goal.metric, goal.load) == (metric.name, metric.load)


def _curves(metrics: Sequence[MetricResult], latency: str) -> dict[str, list[tuple[str, float, float]]]:
    """Server -> (load, throughput, latency), sorted by throughput."""
    across = {metric.load: metric for metric in metrics if metric.name == THROUGHPUT}
    up = {metric.load: metric for metric in metrics if metric.name == latency}
    curves: dict[str, list[tuple[str, float, float]]] = {}
    for load in across.keys() & up.keys():
        x_values, y_values = _values(across[load]), _values(up[load])
        for name in x_values.keys() & y_values.keys():
            curves.setdefault(name, []).append((load, x_values[name], y_values[name]))
    order = ["candidate", *(base.name for metric in metrics for base in metric.baselines)]
    return {name: sorted(curves[name], key=lambda point: point[1:]) for name in dict.fromkeys(order) if name in curves}


def _values(metric: MetricResult) -> dict[str, float]:
    baselines = {base.name: base.value for base in metric.baselines if base.value is not None}
    return {"candidate": metric.candidate, **baselines}


def _grid_y(y: svg.Scale, *, left: float, right: float, unit: str) -> list[str]:
    ticks = svg.log_ticks(y.low, y.high) if y.is_log else svg.linear_ticks(y.low, y.high)
    lines = [svg.line(left, y(tick), right, y(tick), css="grid") for tick in ticks]
    return lines + [
        svg.text(left - 8, y(tick) + 4, f"{svg.number(tick)}{unit}", css="tick", anchor="end") for tick in ticks
    ]


def _grid_x(x: svg.Scale, *, top: float, bottom: float, is_share: bool = False) -> list[str]:
    ticks = svg.linear_ticks(x.low, x.high)
    lines = [svg.line(x(tick), top, x(tick), bottom, css="grid") for tick in ticks]
    labels = [f"{tick:.0%}" if is_share else svg.number(tick) for tick in ticks]
    return lines + [
        svg.text(x(tick), bottom + 16, label, css="tick", anchor="middle")
        for tick, label in zip(ticks, labels, strict=True)
    ]
