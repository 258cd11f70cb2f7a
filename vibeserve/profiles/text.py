"""A profile in a few lines: for prompts, for a terminal, for a report."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.profiles.documents import Bottleneck, Profile

MAX_ROWS, MAX_FRAMES_TOLD = 6, 2
"""frames are told of the first row; of the others the largest alone"""
MAX_SYMBOLS_TOLD, MAX_THREADS_TOLD = 2, 3
MIN_TOLD = 0.01
MAX_FRAME_CHARS, MAX_SYMBOL_CHARS = 48, 32


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """One bottleneck as a row of text cells."""

    name: str
    share: str
    thread: str
    ceiling: str
    seconds_each: str
    floor: str
    distance: str
    frames: str


COLUMNS: dict[str, str] = {
    "name": "part", "share": "share", "thread": "thread", "ceiling": "at most", "seconds_each": "time each",
    "floor": "floor", "distance": "over the floor", "frames": "where",
}  # fmt: skip
"""heading of every cell of a `ReportRow`"""


def report_rows(profile: Profile | None) -> list[ReportRow]:
    """The ranked list, largest first; empty where there is no profile or it is not timed."""
    return [_row(each) for each in (profile.bottlenecks if profile else ())]


def _row(row: Bottleneck) -> ReportRow:
    return ReportRow(
        name=row.name, share=f"{row.share:.0%}", thread=row.thread, seconds_each=_time(row.seconds_each),
        ceiling=f"x{row.amdahl_ceiling:.2f}" if row.amdahl_ceiling is not None else "",
        floor=_time(row.floor_s), distance=f"x{row.distance:.1f}" if row.distance is not None else "",
        frames=", ".join(frame.name for frame in row.frames),
    )  # fmt: skip


def profile_lines(profile: Profile | None, *, max_rows: int = MAX_ROWS) -> list[str]:
    """The ranked list for a prompt: what was seen, one line a part, the rest in one line. Empty without a profile."""
    if profile is None:
        return []
    if profile.is_own_word:
        return [f"no profile of the framework's: {note}" for note in profile.notes]
    lines = [headline(profile)]
    told = [row for row in profile.bottlenecks[:max_rows] if row.share >= MIN_TOLD]
    lines += [_line(row, num_frames=1 if number else MAX_FRAMES_TOLD) for number, row in enumerate(told)]
    return [*lines, *_structure(profile)]


def headline(profile: Profile) -> str:
    """`stacks, 398 samples at c8, 1.02 of the control's output_throughput: timed; 3.1 ms per output token, floor ..`"""
    observed = profile.observed
    ratio = "without a control"
    if observed is not None and observed.ratio is not None:
        ratio = f"{observed.ratio:.2f} of the control's {observed.metric}"
    timed = "timed" if profile.is_timed else "not timed, so no shares"
    unit = ""
    if profile.is_timed and profile.unit_s is not None:
        floor = f", roofline {_time(profile.unit_floor_s)}" if profile.unit_floor_s else ""
        unit = f"; {_time(profile.unit_s)} per {profile.unit}{floor}"
    return f"{profile.tool}, {profile.num_samples} samples at {profile.load}, {ratio}: {timed}{unit}"


def _line(row: Bottleneck, *, num_frames: int) -> str:
    ceiling = f", at most x{row.amdahl_ceiling:.2f}" if row.amdahl_ceiling is not None else ""
    distance = f", x{row.distance:.1f} over its floor" if row.distance is not None else ""
    frames = "; ".join(f"{_cut(frame.name)} {frame.share:.0%}" for frame in row.frames[:num_frames])
    thread = f" on {row.thread}" if row.thread else ""
    return f"{row.name} {row.share:.0%}{thread}{ceiling}{distance}: {frames}"


def _structure(profile: Profile) -> list[str]:
    structure = profile.structure
    busy = [f"{each.name} {each.cpu_share:.0%}" for each in structure.threads if each.cpu_share >= MIN_TOLD]
    symbols = [f"{each.name[:MAX_SYMBOL_CHARS]} {each.share:.0%}" for each in structure.symbols[:MAX_SYMBOLS_TOLD]]
    lines = [f"CPU by thread: {', '.join(busy[:MAX_THREADS_TOLD])}"] if busy else []
    return [*lines, f"native: {', '.join(symbols)}"] if symbols else lines


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_FRAME_CHARS else f"{text[: MAX_FRAME_CHARS - 3]}..."
