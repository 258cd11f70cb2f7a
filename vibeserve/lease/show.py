"""Leases as `vibeserve status` shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.lease.queue import DeviceQueue, Entry


def lease_rows(root: Path) -> list[dict[str, Any]]:
    """Every holder and waiter of every device, as data."""
    return [{"device": device, **to_data(entry)} for device, entry in _entries(root)]


def lease_lines(root: Path) -> list[str]:
    """The same, a line each."""
    return [
        f"device {device}: {'held' if entry.is_held else 'wanted'} {entry.mode.value} by {entry.owner} ({entry.what})"
        for device, entry in _entries(root)
    ]


def _entries(root: Path) -> list[tuple[str, Entry]]:
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    return [(folder.name, entry) for folder in folders for entry in DeviceQueue(folder, expiry_s=0.0).entries()]
