"""Figures of the search: the trajectory with its failed rounds, the graph of checkpoints, forecasts beside results,
what rounds cost. Pure functions to SVG text ('' where there is nothing to draw)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vibeserve.report import svg
from vibeserve.status import Node, RoundRow, SpentBy, lanes_of

WIDTH = 880.0
LEFT, RIGHT, TOP = 88.0, 16.0, 18.0
LANE_STEP, FALL = 58.0, 26.0
"""of the graph: between two lanes, and from a lane to the rounds that left no checkpoint"""
MAX_TICKS = 20
LABEL_GAP = 44.0
"""least distance of two value labels"""
NUM_ROLE_COLOURS = 4


def trajectory(rows: Sequence[RoundRow], nodes: Sequence[Node]) -> str:
    """Cumulative ratio against round 0: a mark for every round, whiskers for intervals, a step line for the incumbent.
    What was never measured stands in a lane of its own below."""
    totals = {node.round: node for node in nodes}
    measured = [row for row in rows if totals[row.number].ratio is not None]
    if not measured:
        return ""
    plot_end, lane = 268.0, 322.0
    height = lane + 34 if len(measured) < len(rows) else plot_end + 46
    ends = [end for row in measured for end in _interval(row, totals[row.number])]
    low, high = svg.bounds(ends, include=[1.0])
    low = max(low, min(ends) * 0.8, 0.01)
    y = svg.Scale(low=low, high=high, start=plot_end, end=TOP, is_log=high / low > 4)
    x = _across(rows)
    body = [*_levels(y), *_numbers(rows, x, y=plot_end + 20)]
    body.append(svg.polyline(_incumbent(rows, nodes, x, y), css="incumbent"))
    for row in rows:
        node = totals[row.number]
        body += _mark(row, node, x(row.number), y) if node.ratio is not None else [_missing(row, x(row.number), lane)]
    body += _values(measured, totals, x, y)
    if len(measured) < len(rows):
        body.append(svg.line(LEFT, lane - 16, WIDTH - RIGHT, lane - 16, css="grid"))
        body.append(svg.text(LEFT - 8, lane + 4, "not measured", css="tick", anchor="end"))
    body.append(svg.text((LEFT + WIDTH - RIGHT) / 2, height - 4, "round", css="axis", anchor="middle"))
    label = "Headline ratio against round 0, by round"
    return svg.figure(WIDTH, height, body, label=label, description=_trajectory_words(rows, nodes))


def graph(rows: Sequence[RoundRow], nodes: Sequence[Node]) -> str:
    """Checkpoints from left to right, each joined to the one that it started from; what left none hangs below."""
    if len(nodes) < 2:
        return ""
    titles = {row.number: f"round {row.number}: {row.title or 'the seed'}: {row.outcome}" for row in rows}
    lanes = lanes_of(rows)
    falls = FALL if any(not node.is_kept for node in nodes) else 0.0
    height = 2 * TOP + LANE_STEP * max(lanes.values()) + falls + 4
    x = _across(rows)
    places = {
        node.round: (x(node.round), TOP + 6 + LANE_STEP * lanes[node.round] + (0 if node.is_kept else FALL))
        for node in nodes
    }
    edges = [
        _edge(places[node.parent], places[node.round], css=_edge_css(node))
        for node in sorted(nodes, key=lambda node: node.is_on_path)
        if node.parent in places
    ]
    marks = [_node(node, *places[node.round], title=titles[node.round]) for node in nodes]
    kept = [node for node in nodes if node.is_kept]
    labels = [
        svg.text(places[node.round][0], places[node.round][1] - 10, str(node.round), css="tick", anchor="middle")
        for node in kept
    ]
    told = "; ".join(f"round {node.round} from {node.parent}" for node in kept if node.parent is not None)
    label = "Checkpoints, each joined to the one that it started from"
    return svg.figure(WIDTH, height, [*edges, *marks, *labels], label=label, description=told)


def forecasts(rows: Sequence[RoundRow]) -> str:
    """Measured ratio over forecast ratio, a dot a tested hypothesis; on the diagonal the forecast was right."""
    tested = [row for row in rows if not row.refusals and not row.is_unactivated]
    points = [
        (row, row.forecast_ratio, row.ratio)
        for row in tested
        if row.forecast_ratio and row.ratio and row.forecast_ratio != 1.0
    ]
    if not points:
        return ""
    width, height, left, bottom = 520.0, 380.0, 56.0, 44.0
    values = [value for _, *pair in points for value in pair]
    is_log = max(values) / min(values) > 4
    low, high = (min(values) * 0.9, max(values) * 1.1) if is_log else svg.bounds(values, include=[1.0])
    x = svg.Scale(low=max(low, 0.05), high=high, start=left, end=width - RIGHT, is_log=is_log)
    y = svg.Scale(low=max(low, 0.05), high=high, start=height - bottom, end=TOP, is_log=is_log)
    ticks = svg.log_ticks(x.low, x.high) if is_log else svg.linear_ticks(x.low, x.high)
    body = [svg.line(x(tick), TOP, x(tick), height - bottom, css="grid") for tick in ticks]
    body += [svg.line(left, y(tick), width - RIGHT, y(tick), css="grid") for tick in ticks]
    body += [svg.text(x(tick), height - bottom + 16, svg.number(tick), css="tick", anchor="middle") for tick in ticks]
    body += [svg.text(left - 8, y(tick) + 4, svg.number(tick), css="tick", anchor="end") for tick in ticks]
    body.append(svg.line(x(x.low), y(x.low), x(x.high), y(x.high), css="parity"))
    for row, forecast, ratio in points:
        if row.ci_low and row.ci_high:
            bottom_y, top_y = y(max(row.ci_low, y.low)), y(min(row.ci_high, y.high))
            body.append(svg.line(x(forecast), bottom_y, x(forecast), top_y, css="whisker"))
        title = f"round {row.number}: forecast {svg.number(forecast)}x, measured {svg.number(ratio)}x: {row.title}"
        body.append(svg.circle(x(forecast), y(ratio), css="mark kept" if row.is_leading else "mark fell", title=title))
    body.append(svg.text((left + width - RIGHT) / 2, height - 6, "forecast", css="axis", anchor="middle"))
    body.append(svg.text(left, TOP - 6, "measured", css="axis"))
    told = f"{len(points)} tested hypotheses; the table below has each of them"
    return svg.figure(width, height, body, label="Forecast and measured ratio of each hypothesis", description=told)


def seconds_by_round(rows: Sequence[RoundRow]) -> str:
    """Wall time of each round, the part in which something was measured in full colour."""
    bars = {
        row.number: [("measuring", row.device_s), ("all else", max(0.0, row.seconds - row.device_s))] for row in rows
    }  # fmt: skip
    css = {"measuring": "bar", "all else": "bar other"}
    return _stacked(rows, bars, css=css, unit="s", label="Wall time by round, seconds")


def tokens_by_round(rows: Sequence[RoundRow], spent: Sequence[SpentBy], *, roles: Sequence[str]) -> str:
    """Tokens that agents took in each round, by role."""
    if not spent:
        return ""
    bars: dict[int, list[tuple[str, float]]] = {}
    for role in roles:
        for each in spent:
            if each.role == role:
                bars.setdefault(each.round, []).append((role, float(each.tokens)))
    css = {role: f"fill s{min(index, NUM_ROLE_COLOURS)}" for index, role in enumerate(roles)}
    return _stacked(rows, bars, css=css, unit="tokens", label="Tokens of agents by round and role")


def _stacked(
    rows: Sequence[RoundRow], bars: Mapping[int, Sequence[tuple[str, float]]], *, css: Mapping[str, str], unit: str,
    label: str,
) -> str:  # fmt: skip
    totals = {number: sum(value for _, value in parts) for number, parts in bars.items()}
    if not rows or not any(totals.values()):
        return ""
    height, bottom = 220.0, 44.0
    x = _across(rows, numbers=[*totals])
    y = svg.Scale(low=0.0, high=max(totals.values()) * 1.08, start=height - bottom, end=TOP)
    width = min(36.0, (WIDTH - LEFT - RIGHT) / len({*totals, *(row.number for row in rows)}) * 0.7)
    body = [*_levels(y, unit=""), *_numbers(rows, x, y=height - bottom + 18)]
    for number, parts in bars.items():
        top = y(0.0)
        for name, value in parts:
            size = y(0.0) - y(value)
            top -= size
            title = f"round {number}, {name}: {svg.number(value)} {unit}"
            body.append(svg.rect(x(number) - width / 2, top, width, size, css=css[name], title=title))
    body.append(svg.text((LEFT + WIDTH - RIGHT) / 2, height - 6, "round", css="axis", anchor="middle"))
    most = max(totals, key=lambda number: totals[number])
    told = f"{svg.number(sum(totals.values()))} {unit} in all; the most in round {most}"
    return svg.figure(WIDTH, height, body, label=label, description=told)


def _across(rows: Sequence[RoundRow], numbers: Sequence[int] = ()) -> svg.Scale:
    last = max([row.number for row in rows] + list(numbers))
    return svg.Scale(low=-0.6, high=last + 0.6, start=LEFT, end=WIDTH - RIGHT)


def _levels(y: svg.Scale, *, unit: str = "x") -> list[str]:
    ticks = svg.log_ticks(y.low, y.high) if y.is_log else svg.linear_ticks(y.low, y.high)
    lines = [svg.line(LEFT, y(tick), WIDTH - RIGHT, y(tick), css="grid") for tick in ticks]
    texts = [svg.text(LEFT - 8, y(tick) + 4, f"{svg.number(tick)}{unit}", css="tick", anchor="end") for tick in ticks]
    return lines + texts


def _numbers(rows: Sequence[RoundRow], x: svg.Scale, *, y: float) -> list[str]:
    """Numbers of the rounds, thinned out where they would touch."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, len(rows)) if len(rows) / step <= MAX_TICKS)
    return [
        svg.text(x(row.number), y, str(row.number), css="tick", anchor="middle")
        for row in rows
        if row.number % step == 0
    ]


def _interval(row: RoundRow, node: Node) -> tuple[float, float]:
    """Of the comparison that it was measured in, at the level of its opponent."""
    ratio = node.ratio or 1.0
    if not row.ratio or row.ci_low is None or row.ci_high is None:
        return ratio, ratio
    return ratio * row.ci_low / row.ratio, ratio * row.ci_high / row.ratio


def _incumbent(
    rows: Sequence[RoundRow], nodes: Sequence[Node], x: svg.Scale, y: svg.Scale
) -> list[tuple[float, float]]:  # fmt: skip
    path = [node for node in nodes if node.is_on_path and node.ratio is not None]
    points: list[tuple[float, float]] = []
    level = 1.0
    for node in path:
        points += [(x(node.round), y(level)), (x(node.round), y(node.ratio or 1.0))]
        level = node.ratio or 1.0
    return [*points, (x(rows[-1].number + 0.5), y(level))]


def _mark(row: RoundRow, node: Node, x: float, y: svg.Scale) -> list[str]:
    """Filled: accepted; hollow: measured and not better; a cross: a gate refused it, whatever its speed."""
    at = y(max(node.ratio or 1.0, y.low))
    low, high = (y(max(end, y.low)) for end in _interval(row, node))
    marks = [svg.line(x, low, x, high, css="whisker")] if low != high else []
    title = _title(row)
    if row.refusals:
        return [*marks, svg.cross(x, at, css="mark refused", title=title)]
    return [*marks, svg.circle(x, at, css="mark kept" if row.is_leading else "mark fell", title=title)]


def _missing(row: RoundRow, x: float, y: float) -> str:
    """A square: the machine's fault; a cross: the candidate's."""
    if row.outcome == "infra":
        return svg.rect(x - 5, y - 5, 10, 10, css="mark infra", title=_title(row))
    return svg.cross(x, y, css="mark refused", title=_title(row))


def _values(rows: Sequence[RoundRow], totals: Mapping[int, Node], x: svg.Scale, y: svg.Scale) -> list[str]:
    """Numbers at kept rounds, the newest first, as far as they do not touch each other."""
    texts: list[str] = []
    last = float("inf")
    for row in reversed([row for row in rows if row.is_leading]):
        at, ratio = x(row.number), totals[row.number].ratio or 1.0
        if last - at < LABEL_GAP:
            continue
        last = at
        is_right = at > WIDTH - RIGHT - 50
        texts.append(
            svg.text(at - 9 if is_right else at + 9, y(ratio) - 8, f"{svg.number(ratio)}x", css="value",
                     anchor="end" if is_right else "start")
        )  # fmt: skip
    return texts


def _title(row: RoundRow) -> str:
    return f"round {row.number}: {row.title or 'the seed'}: {row.outcome}: {row.reason}"


def _trajectory_words(rows: Sequence[RoundRow], nodes: Sequence[Node]) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.outcome] = counts.get(row.outcome, 0) + 1
    told = ", ".join(f"{num} {outcome.replace('_', ' ')}" for outcome, num in counts.items())
    last = [node for node in nodes if node.is_on_path and node.ratio is not None]
    end = f"; the incumbent reached {svg.number(last[-1].ratio or 1.0)} times round 0" if last else ""
    return f"{len(rows)} rounds: {told}{end}"


def _edge(start: tuple[float, float], end: tuple[float, float], *, css: str) -> str:
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:
        return svg.line(x1, y1, x2, y2, css=css)
    bend = min(x1 + 14, x2)
    turn = f"Q{svg.px(x1)},{svg.px(y2)} {svg.px(bend)},{svg.px(y2)}"
    return svg.path(f"M{svg.px(x1)},{svg.px(y1)}{turn}L{svg.px(x2)},{svg.px(y2)}", css=css)


def _edge_css(node: Node) -> str:
    return "edge path" if node.is_on_path else "edge kept" if node.is_kept else "edge"


def _node(node: Node, x: float, y: float, *, title: str) -> str:
    if node.is_kept:
        css = "mark kept" if node.is_on_path else "mark side"
        return svg.circle(x, y, css=css, title=title, radius=6.0 if node.is_on_path else 5.0)
    if node.outcome == "infra":
        return svg.rect(x - 3.5, y - 3.5, 7, 7, css="mark infra", title=title)
    if node.outcome in ("crashed", "timed_out"):
        return svg.cross(x, y, css="mark refused", title=title, size=4.0)
    return svg.circle(x, y, css="mark fell", title=title, radius=4.0)
