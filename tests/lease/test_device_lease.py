"""Leases among real processes: measurements never overlap, the dead and the silent do not block, interrupts let go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from lease_process import CPU, TIMING

from vibeserve.core.documents import write_document
from vibeserve.errors import InfraError
from vibeserve.hardware import HardwareFacts
from vibeserve.hardware.facts import GpuFacts
from vibeserve.lease import Device, DeviceLease, DeviceQueue, Entry, Mode, Owner, Timing, devices_of, lease_lines
from vibeserve.progress import QuietProgress
from vibeserve.spec import Hardware

SCRIPT = Path(__file__).with_name("lease_process.py")
Start = Callable[..., "subprocess.Popen[str]"]
LIMIT_S = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process that takes leases under `tmp_path`; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def call(run: str, mode: str, *, hold_s: float, num_times: int = 1) -> subprocess.Popen[str]:
        argv = [sys.executable, str(SCRIPT), str(tmp_path), run, mode, str(hold_s), str(num_times)]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running[-1]

    yield call
    for process in running:
        process.send_signal(signal.SIGCONT) if process.poll() is None else None
        process.kill()
        process.communicate()


HASTY = replace(TIMING, expiry_s=0.5)


def lease_of(root: Path, timing: Timing) -> SimpleNamespace:
    progress = QuietProgress()
    mine = DeviceLease([CPU], root=root, run="mine", progress=progress, timing=timing)
    return SimpleNamespace(lease=mine, progress=progress)


@pytest.fixture
def lease(tmp_path: Path) -> SimpleNamespace:
    """A lease of this process, and what it told."""
    return lease_of(tmp_path, TIMING)


@pytest.fixture
def hasty(tmp_path: Path) -> SimpleNamespace:
    """The same, that soon takes silence for death."""
    return lease_of(tmp_path, HASTY)


def entries(root: Path) -> list[Entry]:
    return DeviceQueue(root / "cpu", expiry_s=TIMING.expiry_s).entries()


def wait_until(condition: Callable[[], bool], *, what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not seen: {what}"
        time.sleep(0.01)


def wait_for_holder(root: Path, run: str, mode: Mode) -> None:
    def is_there() -> bool:
        return any(e.is_held and e.owner.run == run and e.mode is mode for e in entries(root))

    wait_until(is_there, what=f"{run} holding {mode.value}")


def intervals(output: str) -> list[tuple[str, float, float]]:
    words = [line.split() for line in output.splitlines()]
    starts, ends = words[0::2], words[1::2]
    return [(mode, float(at), float(ends[i][2])) for i, (_, mode, at) in enumerate(starts)]


def test_measurements_never_overlap_anything_of_another_process(tmp_path: Path, start: Start) -> None:
    processes = [start(f"measuring-{number}", "exclusive", hold_s=0.05, num_times=4) for number in range(3)]
    processes += [start(f"building-{number}", "shared", hold_s=0.3) for number in range(2)]
    outputs = [process.communicate(timeout=LIMIT_S) for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, [errors for _, errors in outputs]
    all_of = [(index, *each) for index, (output, _) in enumerate(outputs) for each in intervals(output)]
    assert len(all_of) == 3 * 4 + 2
    for first, mode, begin, end in all_of:
        for second, other_mode, other_begin, other_end in all_of:
            if first != second and "exclusive" in (mode, other_mode):
                assert end <= other_begin or other_end <= begin, (first, second)
    assert entries(tmp_path) == []


def test_heavy_work_of_several_runs_goes_together(tmp_path: Path, start: Start) -> None:
    for number in range(2):
        start(f"building-{number}", "shared", hold_s=100 * LIMIT_S)
        wait_for_holder(tmp_path, f"building-{number}", Mode.SHARED)
    assert [entry.is_held for entry in entries(tmp_path)] == [True, True]


def test_waiting_is_told_with_the_holder_and_does_not_count_as_work(
    tmp_path: Path, start: Start, lease: SimpleNamespace
) -> None:
    holder = start("other-run", "exclusive", hold_s=0.5)
    wait_for_holder(tmp_path, "other-run", Mode.EXCLUSIVE)
    clock_s, before_s = time.monotonic(), lease.lease.monotonic()
    with lease.lease.exclusive("certification"):
        assert [entry.owner.run for entry in entries(tmp_path) if entry.is_held] == ["mine"]
        waited_s = time.monotonic() - clock_s
    (stage, text), *rest = lease.progress.events
    assert stage == "lease"
    assert text.startswith(f"waiting for the CPU: held by run other-run, pid {holder.pid}, since ")
    assert text.endswith(" (measuring)")
    assert rest[-1] == ("lease", "has the CPU")
    assert lease.lease.monotonic() - before_s < waited_s


def test_a_free_device_is_taken_without_a_word(lease: SimpleNamespace) -> None:
    with lease.lease.shared("building"), lease.lease.exclusive("measuring"), lease.lease.exclusive("again"):
        pass
    assert lease.progress.events == []


def test_the_lease_of_a_killed_owner_is_taken_over(tmp_path: Path, start: Start) -> None:
    """A dead process is known to be dead: nobody waits for its silence, which would take for ever here."""
    patient = replace(TIMING, expiry_s=1e9)
    lease = DeviceLease([CPU], root=tmp_path, run="mine", progress=QuietProgress(), timing=patient)
    holder = start("killed", "exclusive", hold_s=100 * LIMIT_S)
    wait_for_holder(tmp_path, "killed", Mode.EXCLUSIVE)
    holder.kill()
    holder.wait()
    with lease.exclusive("measuring"):
        assert [entry.owner.run for entry in entries(tmp_path)] == ["mine"]


def test_a_killed_waiter_does_not_hold_up_those_behind_it(tmp_path: Path, start: Start, lease: SimpleNamespace) -> None:
    start("reader", "shared", hold_s=100 * LIMIT_S)
    wait_for_holder(tmp_path, "reader", Mode.SHARED)
    waiter = start("waiter", "exclusive", hold_s=0.0)
    wait_until(lambda: any(e.mode is Mode.EXCLUSIVE for e in entries(tmp_path)), what="the waiter's entry")
    waiter.kill()
    waiter.wait()
    with lease.lease.shared("building"):
        pass


def test_a_process_that_stands_still_loses_its_lease_and_its_measurement(
    tmp_path: Path, start: Start, hasty: SimpleNamespace
) -> None:
    holder = start("stopped", "exclusive", hold_s=0.2)
    wait_for_holder(tmp_path, "stopped", Mode.EXCLUSIVE)
    holder.send_signal(signal.SIGSTOP)
    with hasty.lease.exclusive("measuring"):
        assert [entry.owner.run for entry in entries(tmp_path)] == ["mine"]
        holder.send_signal(signal.SIGCONT)
    _, errors = holder.communicate(timeout=LIMIT_S)
    assert holder.returncode != 0
    assert "the lease of the CPU was taken over during measuring" in errors
    assert "what it measured is void" in errors


def test_nobody_overtakes_a_waiting_measurement(tmp_path: Path, start: Start) -> None:
    """Building that goes on and on must not starve a measurement."""
    first = start("first", "shared", hold_s=1.0)
    wait_for_holder(tmp_path, "first", Mode.SHARED)
    measuring = start("measuring", "exclusive", hold_s=0.2)
    wait_until(
        lambda: any(e.mode is Mode.EXCLUSIVE and not e.is_held for e in entries(tmp_path)), what="a waiting measurement"
    )
    late = start("late", "shared", hold_s=0.0)
    outputs = {name: each.communicate(timeout=LIMIT_S)[0] for name, each in
               (("first", first), ("measuring", measuring), ("late", late))}  # fmt: skip
    ((_, begin, end),) = intervals(outputs["measuring"])
    assert intervals(outputs["first"])[0][2] <= begin
    assert end <= intervals(outputs["late"])[0][1]


def test_what_is_raised_inside_goes_on_and_the_shared_place_is_taken_again(
    tmp_path: Path, lease: SimpleNamespace
) -> None:
    with lease.lease.shared("search"):
        with pytest.raises(ZeroDivisionError), lease.lease.exclusive("measuring"):
            assert [entry.mode for entry in entries(tmp_path)] == [Mode.EXCLUSIVE]
            raise ZeroDivisionError
        assert [(entry.mode, entry.what) for entry in entries(tmp_path)] == [(Mode.SHARED, "search")]
    assert entries(tmp_path) == []


def test_an_interrupt_lets_go_of_everything_at_once(tmp_path: Path, start: Start, lease: SimpleNamespace) -> None:
    with contextlib.suppress(KeyboardInterrupt), lease.lease.shared("search"), lease.lease.exclusive("measuring"):
        start("next", "exclusive", hold_s=100 * LIMIT_S)
        wait_until(lambda: any(e.owner.run == "next" for e in entries(tmp_path)), what="the next one's entry")
        raise KeyboardInterrupt
    wait_for_holder(tmp_path, "next", Mode.EXCLUSIVE)


def test_an_interrupt_while_waiting_leaves_no_place_in_the_queue(tmp_path: Path, start: Start) -> None:
    start("holder", "exclusive", hold_s=100 * LIMIT_S)
    wait_for_holder(tmp_path, "holder", Mode.EXCLUSIVE)
    waiter = start("waiter", "exclusive", hold_s=0.0)
    wait_until(lambda: len(entries(tmp_path)) == 2, what="the waiter's entry")
    waiter.send_signal(signal.SIGINT)
    waiter.communicate(timeout=LIMIT_S)
    assert [entry.owner.run for entry in entries(tmp_path)] == ["holder"]


def fake_entry(root: Path, *, owner: Owner) -> None:
    entry = Entry(ticket=1, token="abcd", mode=Mode.EXCLUSIVE, is_held=True, what="measuring", owner=owner)
    write_document(root / "cpu" / entry.file_name, entry)


def test_an_entry_of_an_earlier_boot_or_of_a_pid_that_was_given_again_is_dropped(
    tmp_path: Path, lease: SimpleNamespace
) -> None:
    me = Owner.myself(run="old")
    for owner in (replace(me, boot_id="another"), replace(me, start_ticks=me.start_ticks - 1)):
        fake_entry(tmp_path, owner=owner)
        with lease.lease.exclusive("measuring"):
            pass
    assert lease.progress.events == []


def test_an_owner_that_cannot_be_looked_up_expires_only_by_its_silence(tmp_path: Path, hasty: SimpleNamespace) -> None:
    owner = replace(Owner.myself(run="elsewhere"), host="another-machine", boot_id="another")
    assert not owner.is_gone and not owner.is_alive
    fake_entry(tmp_path, owner=owner)
    started_s = time.monotonic()
    with hasty.lease.exclusive("measuring"):
        assert time.monotonic() - started_s >= HASTY.expiry_s
    assert "on another-machine" in hasty.progress.events[0][1]


def test_a_lease_that_cannot_be_read_is_named(tmp_path: Path, lease: SimpleNamespace) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/000000001-x.lease.json").write_text("{")
    with pytest.raises(InfraError, match=r"000000001-x\.lease\.json cannot be read: .*\nnext: remove it"):
        with lease.lease.exclusive("measuring"):
            pass


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lease = DeviceLease([CPU], root=tmp_path / "file", run="r", progress=QuietProgress(), timing=TIMING)
    with pytest.raises(InfraError, match=r"cannot be kept in .*file/cpu: .*\nnext: .*VIBESERVE_LEASES"):
        with lease.shared("building"):
            pass


def test_leases_are_shown(tmp_path: Path, lease: SimpleNamespace) -> None:
    with lease.lease.exclusive("certification"):
        (line,) = lease_lines(tmp_path)
    assert line.startswith(f"device cpu: held exclusive by run mine, pid {os.getpid()}, since ")
    assert line.endswith(" (certification)")
    assert lease_lines(tmp_path) == []


def machine(*gpus: str) -> HardwareFacts:
    return HardwareFacts(
        system="Linux", kernel="6", cpu_model="x", cpu_flags=(), cpus=(0, 1), memory_gib=8.0,
        gpus=tuple(GpuFacts(name="H100", sm=90, memory_gib=80.0, uuid=uuid) for uuid in gpus),
    )  # fmt: skip


def test_a_target_on_gpus_measures_its_gpus_and_shares_the_cpu(tmp_path: Path) -> None:
    cpu, *gpus = devices_of(Hardware(name="h100", kind="cuda", count=2), machine("GPU-aa", "", "GPU-cc"))
    assert (cpu.name, cpu.measuring) == ("cpu", Mode.SHARED)
    assert [(gpu.name, gpu.title, gpu.measuring) for gpu in gpus] == [
        ("gpu-aa", "GPU 0", Mode.EXCLUSIVE), ("gpu-1", "GPU 1", Mode.EXCLUSIVE),
    ]  # fmt: skip
    leases = [
        DeviceLease(devices, root=tmp_path, run="r", progress=QuietProgress(), timing=TIMING)
        for devices in ([cpu, gpus[0]], [cpu, gpus[1]])
    ]
    # both measure at once: they have the CPU in common, and no GPU
    with leases[0].exclusive("measuring"), leases[1].exclusive("measuring"):
        pass


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_other_targets_measure_the_machine(kind: str) -> None:
    assert devices_of(Hardware(name="x", kind=kind), machine()) == (Device(name="cpu", title="the CPU"),)
