"""`python -m runtime.build`: compile `runtime/native/*.cpp` into `build/`; nothing to do where there is none."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

WORKSPACE = Path(__file__).resolve().parents[1]
SOURCES = WORKSPACE / "runtime" / "native"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fPIC", "-shared", "-Wall")
FLAGS_PREFIX = "// flags:"
"""a source's first line may add compiler flags"""


def main() -> int:
    """Compile every native source; returns the first failing compiler's exit status."""
    for source in sorted(SOURCES.glob("*.cpp")):
        status = compile_source(source)
        if status:
            return status
    return 0


def compile_source(source: Path) -> int:
    first_line = source.read_text(encoding="utf-8").partition("\n")[0]
    extra = first_line.removeprefix(FLAGS_PREFIX).split() if first_line.startswith(FLAGS_PREFIX) else []
    output = library_path(source.stem)
    output.parent.mkdir(exist_ok=True)
    command = ["g++", *FLAGS, *extra, str(source), "-o", str(output)]
    sys.stdout.write(" ".join(command) + "\n")
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode


def library_path(name: str) -> Path:
    """Where the library of `runtime/native/<name>.cpp` lies once built."""
    return WORKSPACE / "build" / f"lib{name}.so"


def load_library(name: str) -> ctypes.CDLL:
    """The compiled library of `runtime/native/<name>.cpp`. Raises FileNotFoundError before the build."""
    path = library_path(name)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; run: python -m runtime.build")
    return ctypes.CDLL(str(path))


if __name__ == "__main__":
    sys.exit(main())
