"""A few SVG primitives: scales, ticks, text, marks. Output is deterministic; colours are CSS classes of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Linear or logarithmic map from `[low, high]` to the pixels `[start, end]`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log(x) if self.is_log else x for x in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)


def linear_ticks(low: float, high: float, *, num_about: int = 5) -> list[float]:
    """Round values in `[low, high]`, steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / max(num_about, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Values 1, 2, 5 times powers of ten in `[low, high]`; linear ticks where that leaves fewer than three."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**exponent for exponent in exponents for factor in (1, 2, 5)]
    kept = [tick for tick in ticks if low <= tick <= high]
    return kept if len(kept) >= 3 else linear_ticks(low, high)


def bounds(values: Iterable[float], *, include: Sequence[float] = (), margin: float = 0.08) -> tuple[float, float]:
    """Range of the values with a margin on both sides; never empty."""
    known = [*values, *include]
    low, high = min(known), max(known)
    pad = (high - low) * margin or abs(high) * margin or 1.0
    return low - pad, high + pad


def number(value: float) -> str:
    """Three significant figures, without exponents for what a reader meets here."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def px(value: float) -> str:
    return f"{value:.1f}"


def text(x: float, y: float, content: str, *, css: str = "label", anchor: str = "start") -> str:
    return f'<text class="{css}" x="{px(x)}" y="{px(y)}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, *, css: str) -> str:
    return f'<line class="{css}" x1="{px(x1)}" y1="{px(y1)}" x2="{px(x2)}" y2="{px(y2)}"/>'


def polyline(points: Iterable[tuple[float, float]], *, css: str) -> str:
    return f'<polyline class="{css}" points="{" ".join(f"{px(x)},{px(y)}" for x, y in points)}"/>'


def rect(x: float, y: float, width: float, height: float, *, css: str, title: str = "") -> str:
    body = f'x="{px(x)}" y="{px(y)}" width="{px(max(width, 0.0))}" height="{px(height)}" rx="2"'
    return f'<rect class="{css}" {body}>{_title(title)}</rect>'


def circle(x: float, y: float, *, css: str, title: str = "", radius: float = 5.0) -> str:
    return f'<circle class="{css}" cx="{px(x)}" cy="{px(y)}" r="{px(radius)}">{_title(title)}</circle>'


def cross(x: float, y: float, *, css: str, title: str = "", size: float = 5.0) -> str:
    left, right, top, bottom = px(x - size), px(x + size), px(y - size), px(y + size)
    path = f"M{left},{top}L{right},{bottom}M{left},{bottom}L{right},{top}"
    return f'<path class="{css}" d="{path}">{_title(title)}</path>'


def path(data: str, *, css: str) -> str:
    return f'<path class="{css}" d="{data}"/>'


def figure(width: float, height: float, body: Iterable[str], *, label: str, description: str = "") -> str:
    """The `svg` element; `label` is what a screen reader says, and `description` what is to be seen, in words."""
    size = f'viewBox="0 0 {px(width)} {px(height)}" style="max-width:{px(width)}px"'
    told = f"{label}: {description}" if description else label
    head = f'<svg {size} role="img" aria-label="{escape(told)}">'
    return "\n".join([head, *body, "</svg>"])


def _title(title: str) -> str:
    return f"<title>{escape(title)}</title>" if title else ""
