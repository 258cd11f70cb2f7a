"""Device nodes of GPUs: found by their names, passed through the wall, and nothing else of /dev with them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vibeserve.sandbox import Resources, resources_of
from vibeserve.sandbox.layout import GPU_PATHS, gpu_paths
from vibeserve.sandbox.resources import gpu_devices
from vibeserve.spec import Hardware, Sandbox

GPUS = (
    "dri/renderD128", "kfd", "nvidia-caps/nvidia-cap1", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia11",
    "nvidiactl",
)  # fmt: skip
OTHERS = ("dri/card0", "dri/by-path", "kmsg", "nvidia-modeset", "nvidiafs", "null", "vda")


def test_gpus_are_found_by_their_names(tmp_path: Path) -> None:
    for name in (*GPUS, *OTHERS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.relative_to(tmp_path).as_posix() for path in gpu_devices(tmp_path)] == list(GPUS)
    assert gpu_devices(tmp_path / "nowhere") == ()


def test_only_targets_for_gpus_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = (Path("/dev/nvidia0"),)
    monkeypatch.setattr("vibeserve.sandbox.resources.gpu_devices", lambda: nodes)
    assert resources_of(Sandbox(), hardware=Hardware(name="gpu", kind="cuda")).devices == nodes
    assert resources_of(Sandbox(), hardware=Hardware(name="cpu", kind="cpu")).devices == ()


@pytest.fixture
def node() -> Path:
    """A device that no wall shows by itself and that anybody may open; this machine's GPU, where it has one."""
    usable = [path for path in (*gpu_devices(), *map(Path, ("/dev/fuse", "/dev/kvm"))) if _opens(path)]
    if not usable:
        pytest.skip("no device here that could be passed through")
    return usable[0]


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return stat.S_ISCHR(path.stat().st_mode)


def test_a_device_passes_through_where_it_is_named(make_wall, answer, node: Path) -> None:
    script = f"""
        import json, os
        def attempt(path):
            try:
                os.close(os.open(path, os.O_RDWR))
            except OSError as error:
                return type(error).__name__
            return "open"
        print(json.dumps([attempt({str(node)!r}), attempt("/dev/kmsg"), attempt("/dev/null")]))
    """
    given, kmsg, null = answer(script, wall=make_wall(resources=Resources(devices=(node,))))
    assert (given, null) == ("open", "open")
    assert kmsg in ("FileNotFoundError", "PermissionError")
    assert answer(script, wall=make_wall())[0] in ("FileNotFoundError", "PermissionError")


def test_what_drivers_read_is_shown_with_devices_only(make_wall, answer, node: Path) -> None:
    paths = [path for path in GPU_PATHS if Path(path).exists() and os.access(path, os.R_OK)]
    script = f"import json, os; print(json.dumps([os.access(p, os.R_OK) for p in {paths!r}]))"
    wall = make_wall(resources=Resources(devices=(node,)))
    assert set(GPU_PATHS) <= set(gpu_paths(wall))
    assert gpu_paths(make_wall()) == ()
    assert all(answer(script, wall=wall))
