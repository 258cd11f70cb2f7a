"""A run's use of its devices: shared while it builds and judges, exclusive while it measures.

Two measurements never overlap on a device, and nothing heavy of another run overlaps a measurement: on a CPU a
re-scoring next door halves a throughput. To measure, a run gives its shared place back first and queues anew, so that
two runs never wait for each other.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vibeserve import spec
from vibeserve.errors import InfraError
from vibeserve.hardware import HardwareFacts
from vibeserve.lease.owner import Owner
from vibeserve.lease.queue import DeviceQueue, Entry, Mode
from vibeserve.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How often a holder beats, how often a waiter looks, and how long a silence counts as death. Seconds."""

    beat_s: float = 2.0
    poll_s: float = 0.5
    expiry_s: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Device:
    """Something that one measurement at a time may use."""

    name: str
    """folder of its queue: cpu, or gpu-<uuid>"""
    title: str
    measuring: Mode = Mode.EXCLUSIVE
    """as what a measurement holds it. One on GPUs shares the CPU: it only must not run beside one that measures it"""


class Lease(Protocol):
    """What the loops ask for. Blocks of one lease may be nested; they belong to one thread."""

    def shared(self, what: str) -> AbstractContextManager[None]:
        """Around heavy work that is not measured. Inside an exclusive block it adds nothing."""
        ...

    def exclusive(self, what: str) -> AbstractContextManager[None]:
        """Around a measurement. Whatever of ours could use the device meanwhile must be stopped."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Around a pause: what is held is given back meanwhile, and the time is spent waiting."""
        ...

    def monotonic(self) -> float:
        """Seconds, without those spent waiting: budgets are of work."""
        ...


class FreeLease:
    """The lease of someone who is alone: for tests and for benches without neighbours."""

    def shared(self, what: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def exclusive(self, what: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def aside(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def monotonic(self) -> float:
        return time.monotonic()


class DeviceLease:
    """Leases in the folder `root`, by file, for every process of this user."""

    def __init__(
        self, devices: Sequence[Device], *, root: Path, run: str, progress: Progress, timing: Timing | None = None
    ) -> None:
        self._timing = timing or Timing()
        self._devices = sorted(devices, key=lambda device: device.name)
        # one order for everyone: those who want several devices never wait for each other in a circle
        self._queues = [DeviceQueue(root / device.name, expiry_s=self._timing.expiry_s) for device in self._devices]
        self._run = run
        self._progress = progress
        self._held: _Held | None = None
        self._waited_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() - self._waited_s

    @contextmanager
    def shared(self, what: str) -> Iterator[None]:
        if self._held is not None:
            yield
            return
        self._acquire([Mode.SHARED for _ in self._devices], what=what)
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def exclusive(self, what: str) -> Iterator[None]:
        outer = self._held
        if outer is not None and outer.is_measuring:
            yield
            return
        self._release()
        self._acquire([device.measuring for device in self._devices], what=what, is_measuring=True)
        try:
            yield
        except Exception:
            self._release()
            self._return_to(outer)
            raise
        except BaseException:
            # an interrupt does not queue again
            self._release()
            raise
        lost = self._release()
        self._return_to(outer)
        if lost:
            raise InfraError(
                f"the lease of {', '.join(lost)} was taken over during {what}: this process stood still for more than "
                f"{self._timing.expiry_s:g} s, what it measured is void\nnext: start the same command again"
            )

    @contextmanager
    def aside(self) -> Iterator[None]:
        # not to be called while something is measured: what it held would be void
        outer, started_s = self._held, time.monotonic()
        self._release()
        try:
            yield
        finally:
            self._waited_s += time.monotonic() - started_s
        # an interrupt does not queue again
        self._return_to(outer)

    def _return_to(self, outer: _Held | None) -> None:
        if outer is not None:
            self._acquire([Mode.SHARED for _ in self._devices], what=outer.what)

    def _acquire(self, modes: Sequence[Mode], *, what: str, is_measuring: bool = False) -> None:
        start_s = time.monotonic()
        held = _Held(what=what, is_measuring=is_measuring, beat_s=self._timing.beat_s)
        self._held = held
        try:
            for device, queue, mode in zip(self._devices, self._queues, modes, strict=True):
                entry = queue.join(mode=mode, what=what, owner=Owner.myself(run=self._run))
                held.add(device, queue, entry)
                self._await(device, queue, entry)
        except BaseException:
            self._release()
            raise
        self._waited_s += time.monotonic() - start_s

    def _await(self, device: Device, queue: DeviceQueue, entry: Entry) -> None:
        told: Entry | None = None
        while blockers := queue.blockers(entry):
            if told is None or told.token != blockers[0].token:
                told = blockers[0]
                self._progress.event("lease", f"waiting for {device.title}: {told}", device=device.name)
            time.sleep(self._timing.poll_s)
        if told is not None:
            self._progress.event("lease", f"has {device.title}", device=device.name)

    def _release(self) -> list[str]:
        """Titles of the devices that had been taken away meanwhile."""
        held, self._held = self._held, None
        return held.release() if held is not None else []


class _Held:
    """What is held or waited for now, kept alive by a thread."""

    def __init__(self, *, what: str, is_measuring: bool, beat_s: float) -> None:
        self.what = what
        self.is_measuring = is_measuring
        self._places: list[tuple[Device, DeviceQueue, Entry]] = []
        self._is_over = threading.Event()
        self._heart = threading.Thread(target=self._beat, args=(beat_s,), name="vibeserve-lease", daemon=True)

    def add(self, device: Device, queue: DeviceQueue, entry: Entry) -> None:
        self._places.append((device, queue, entry))
        if not self._heart.is_alive():
            self._heart.start()

    def release(self) -> list[str]:
        self._is_over.set()
        if self._heart.is_alive():
            self._heart.join()
        return [device.title for device, queue, entry in reversed(self._places) if not queue.leave(entry)]

    def _beat(self, beat_s: float) -> None:
        while not self._is_over.wait(beat_s):
            for _, queue, entry in list(self._places):
                queue.beat(entry)


def devices_of(hardware: spec.Hardware, facts: HardwareFacts) -> tuple[Device, ...]:
    """What a run on `hardware` measures. CUDA: the first `count` GPUs that this process sees, by UUID where known."""
    if hardware.kind != "cuda":
        # the GPU of kind mps works out of the CPU's memory
        return (Device(name="cpu", title="the CPU"),)
    gpus = facts.gpus[: hardware.count]
    names = [f"gpu-{gpu.uuid.removeprefix('GPU-') or index}" for index, gpu in enumerate(gpus)]
    return (
        Device(name="cpu", title="the CPU", measuring=Mode.SHARED),
        *(Device(name=name, title=f"GPU {index}") for index, name in enumerate(names)),
    )
