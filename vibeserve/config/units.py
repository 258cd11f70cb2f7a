"""Units of fields by their suffix, and what a text such as `10m` or `24GB` means in them."""

from __future__ import annotations

import re

UNITS: dict[str, tuple[str, str]] = {
    "_s": ("seconds", "600"),
    "_ms": ("milliseconds", "300"),
    "_gib": ("GiB (2^30 bytes)", "22.5"),
    "_gb_s": ("GB/s (10^9 bytes a second)", "300"),
    "_per_s": ("a number per second", "0.5"),
    "_per_hour": ("US dollars an hour", "2.5"),
    "usd": ("US dollars", "12.5"),
    "_usd": ("US dollars", "12.5"),
    "_tokens": ("tokens", "512"),
    "tokens": ("tokens", "2000000"),
    "_tokens_min": ("tokens", "128"),
    "_tokens_max": ("tokens", "512"),
    "tflops_f32": ("TFLOP/s (10^12 a second)", "67"),
    "tflops_bf16": ("TFLOP/s (10^12 a second)", "989"),
    "tops_int8": ("TOP/s (10^12 a second)", "1979"),
    "tops_int4": ("TOP/s (10^12 a second)", "3958"),
    "_nats": ("nats", "0.25"),
    "_share": ("a share of 1", "0.05"),
}
"""suffix of a field's name -> (unit in words, an example)"""

_FACTORS: dict[str, dict[str, float]] = {
    "_s": {"ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400},
    "_ms": {"us": 1e-3, "ms": 1, "s": 1e3, "sec": 1e3, "m": 6e4, "min": 6e4},
    "_gib": {"mb": 1e6 / 2**30, "mib": 2**-10, "gb": 1e9 / 2**30, "g": 1, "gib": 1, "tb": 1e12 / 2**30, "tib": 2**10},
    "_gb_s": {"mb/s": 1e-3, "gb/s": 1, "gib/s": 2**30 / 1e9, "tb/s": 1e3, "gbit/s": 0.125, "gbps": 0.125},
    "_per_s": {"/s": 1, "rps": 1, "/min": 1 / 60, "/h": 1 / 3600},
    "usd": {"$": 1, "usd": 1},
    "_usd": {"$": 1, "usd": 1},
    "_per_hour": {"$": 1, "usd": 1, "$/h": 1, "usd/h": 1},
    "_share": {"%": 0.01},
}
"""suffix of a field's name -> factor by unit as written. Tokens have none: 32k is 32000 to some, 32768 to others"""

_QUANTITY = re.compile(r"\s*(?P<sign>\$?)\s*(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-z/%$]*)\s*")


def unit_of(name: str) -> str:
    """The longest suffix of `UNITS` that field `name` ends in; empty when it has no unit."""
    fitting = [suffix for suffix in UNITS if name == suffix.lstrip("_") or name.endswith(suffix)]
    return max(fitting, key=len, default="")


def expected_in(name: str) -> str:
    """` in <unit>` for a field with a unit, else nothing."""
    suffix = unit_of(name)
    return f" in {UNITS[suffix][0]}" if suffix else ""


def advice(name: str, value: object) -> str:
    """`write 600` for a text that holds a quantity of the field's kind, else an example; nothing without a unit."""
    suffix = unit_of(name)
    if not suffix:
        return ""
    found = _QUANTITY.fullmatch(value.lower()) if isinstance(value, str) else None
    factor = _FACTORS.get(suffix, {}).get(found["unit"] or found["sign"]) if found else None
    if found is None or factor is None:
        return f"; such as {UNITS[suffix][1]}"
    return f"; write {float(found['number']) * factor:.6g}"
