"""Who may use a device now: shared by work that is not measured, exclusive to whoever measures; and who carries out a
run."""

from __future__ import annotations

from vibeserve.lease.device import Device, DeviceLease, FreeLease, Lease, Timing, devices_of
from vibeserve.lease.owner import Owner
from vibeserve.lease.queue import DeviceQueue, Entry, Mode
from vibeserve.lease.run import await_run, last_owner, living_owner, own_free_run, own_run
from vibeserve.lease.show import lease_lines, lease_rows

__all__ = [
    "Device",
    "DeviceLease",
    "DeviceQueue",
    "Entry",
    "FreeLease",
    "Lease",
    "Mode",
    "Owner",
    "Timing",
    "await_run",
    "devices_of",
    "last_owner",
    "lease_lines",
    "lease_rows",
    "living_owner",
    "own_free_run",
    "own_run",
]
