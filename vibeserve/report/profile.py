"""Where a request's time goes, before and after: rows of (name, share, ceiling), whatever measured them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vibeserve.report import svg

WIDTH = 880.0
LEFT, RIGHT, TOP, ROW = 190.0, 70.0, 10.0, 40.0


@dataclass(frozen=True, kw_only=True)
class ProfileRow:
    """One part of the whole."""

    name: str
    share: float
    """of the whole, 0 to 1"""
    ceiling: float | None = None
    """gain if it took no time at all, `1 / (1 - share)` (Amdahl 1967); None where it is the whole"""


def profile_rows(spans: Mapping[str, float]) -> list[ProfileRow]:
    """Rows of a round's spans, the largest first."""
    largest = sorted(spans.items(), key=lambda row: (-row[1], row[0]))
    return [
        ProfileRow(name=name, share=share, ceiling=1 / (1 - share) if share < 1 else None) for name, share in largest
    ]


def profile_bars(before: Sequence[ProfileRow], after: Sequence[ProfileRow]) -> str:
    """Two bars a part: of the seed and of the incumbent. '' without either."""
    if not before or not after:
        return ""
    first = {row.name: row for row in before}
    last = {row.name: row for row in after}
    names = sorted({*first, *last}, key=lambda name: (-_share(first, name), -_share(last, name), name))
    height = TOP + ROW * len(names) + 34
    high = max(_share(rows, name) for rows in (first, last) for name in names)
    x = svg.Scale(low=0.0, high=max(high, 0.01) * 1.05, start=LEFT, end=WIDTH - RIGHT)
    body = [svg.line(x(tick), TOP, x(tick), height - 34, css="grid") for tick in svg.linear_ticks(x.low, x.high)]
    body += [
        svg.text(x(tick), height - 16, f"{tick:.0%}", css="tick", anchor="middle")
        for tick in svg.linear_ticks(x.low, x.high)
    ]
    for index, name in enumerate(names):
        top = TOP + ROW * index + 5
        body.append(svg.text(LEFT - 10, top + 18, name, css="label", anchor="end"))
        body += _bar(first.get(name), x, top, css="bar other", whose="the seed")
        body += _bar(last.get(name), x, top + 15, css="bar", whose="the incumbent")
    told = "; ".join(f"{name} {_share(first, name):.0%} to {_share(last, name):.0%}" for name in names)
    return svg.figure(WIDTH, height, body, label="Share of the requests' wall time by span", description=told)


def _share(rows: Mapping[str, ProfileRow], name: str) -> float:
    return rows[name].share if name in rows else 0.0


def _bar(row: ProfileRow | None, x: svg.Scale, top: float, *, css: str, whose: str) -> list[str]:
    if row is None:
        return []
    ceiling = "" if row.ceiling is None else f"; without it at most {svg.number(row.ceiling)}x"
    title = f"{row.name}, {whose}: {row.share:.1%}{ceiling}"
    return [
        svg.rect(LEFT, top, x(row.share) - LEFT, 13, css=css, title=title),
        svg.text(x(row.share) + 6, top + 11, f"{row.share:.0%}", css="tick"),
    ]
