"""Compile CUDA source for an architecture without a GPU, by NVRTC (NVIDIA's runtime compiler, a library)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vibeserve.errors import InfraError

INSTALL = "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"
STANDARD = "--std=c++17"


class NvrtcAbsentError(InfraError):
    """The library is not installed."""


def compile_problem(source: str, *, architecture: str) -> str:
    """The compiler's log where `source` does not compile for `architecture` (such as sm_90), else empty.

    Headers of the CUDA runtime are found where pip put them. Raises NvrtcAbsentError.
    """
    nvrtc = _library()
    options = [f"--gpu-architecture={architecture}", STANDARD, *(f"--include-path={path}" for path in _include_paths())]
    program = _value(nvrtc.nvrtcCreateProgram(source.encode(), b"snippet.cu", 0, [], []))
    status = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])[0]
    if not status.value:
        return ""
    log = b" " * _value(nvrtc.nvrtcGetProgramLogSize(program))
    nvrtc.nvrtcGetProgramLog(program, log)
    return " | ".join(log.decode(errors="replace").strip("\0 \n").splitlines()) or status.name


def _library() -> Any:
    try:
        from cuda.bindings import nvrtc

        _value(nvrtc.nvrtcVersion())
    except (ImportError, RuntimeError) as error:
        raise NvrtcAbsentError(f"NVRTC is not installed; next: {INSTALL}") from error
    return nvrtc


def _value(answer: tuple[Any, ...]) -> Any:
    """What a call gave; one value, or several."""
    status, *values = answer
    if status.value:
        raise InfraError(f"NVRTC: {status.name}")
    return values[0] if len(values) == 1 else tuple(values)


def _include_paths() -> list[str]:
    from importlib.util import find_spec

    located = find_spec("nvidia")
    roots = list(located.submodule_search_locations or []) if located else []
    found = [path for root in roots for path in sorted(Path(root).glob("*/include"))]
    return [str(each) for path in found for each in (path, path / "cccl") if each.is_dir()]
