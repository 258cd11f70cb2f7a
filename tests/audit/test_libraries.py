"""The gate after the build: what a compiled library binds, whatever its source spells."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve.audit import check_libraries
from vibeserve.audit.elf import ElfError, read_library
from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble, load_skills, resolve

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
NUM_HEADER_BYTES = 64


def compiled(workspace: Path, source: str, *flags: str, name: str = "k") -> Path:
    folder = workspace / "runtime" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    (workspace / "build").mkdir(exist_ok=True)
    (folder / f"{name}.cpp").write_text(source)
    output = workspace / "build" / f"lib{name}.so"
    command = ["g++", "-O1", "-fPIC", "-shared", *flags, str(folder / f"{name}.cpp"), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    return output


def texts(workspace: Path) -> list[str]:
    return [
        f"{each.gate}/{each.reason_class}: {each.text.partition('. Valid')[0]}" for each in check_libraries(workspace)
    ]


HONEST = """
#include <omp.h>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
#include <sys/mman.h>
std::mutex lock;
thread_local std::vector<float> scratch;
extern "C" float f(float *x, long n) {
    std::lock_guard<std::mutex> held(lock);
    scratch.resize(n);
    if (n < 0) throw std::runtime_error("no rows: " + std::to_string(n));
    std::thread other([&] { x[0] = std::exp(x[0]) + erff(x[1]); });
    other.join();
    float sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (long i = 0; i < n; i++) sum += std::tanh(x[i]) + std::pow(x[i], 3.0f);
    void *p = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, 4096, 14);
    munmap(p, 4096);
    std::printf("%f %ld\\n", sum, (long)std::chrono::steady_clock::now().time_since_epoch().count());
    return sum;
}
"""


def test_a_kernel_passes_stripped_or_not(tmp_path: Path) -> None:
    output = compiled(tmp_path, HONEST, "-fopenmp")
    assert texts(tmp_path) == []
    assert {"GOMP_parallel", "tanhf", "mmap"} <= read_library(output.read_bytes()).undefined
    compiled(tmp_path, HONEST, "-fopenmp", "-s")
    assert texts(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "symbol"),
    [
        ("#define P(a,b) a##b\nextern \"C\" int P(sys,tem)(const char*);\nint f() { return P(sys,tem)(\"id\"); }",
         "system"),
        ("extern \"C\" int go(const char*) __asm__(\"system\");\nint f() { return go(\"id\"); }", "system"),
        ("#include <dlfcn.h>\nvoid* f() { return dlsym(0, \"x\"); }", "dlsym"),
        ("#include <fstream>\nvoid f() { std::ofstream(\"x\") << 1; }", "_ZNSt13basic_filebufI"),
        ("#include <sys/socket.h>\nint f() { return socket(1, 1, 0); }", "socket"),
        ("extern \"C\" int PyRun_SimpleString(const char*);\nint f() { return PyRun_SimpleString(\"\"); }",
         "PyRun_SimpleString"),
        ("#include <signal.h>\n#include <time.h>\nint f(timer_t* t) { return timer_create(1, 0, t); }", "timer_create"),
        ("#include <unistd.h>\nlong f(long n) { return syscall(n); }", "syscall"),
        ("#include <pthread.h>\nvoid f() { pthread_exit(0); }", "pthread_exit"),
        ("#include <sys/mman.h>\nint f(void* p) { return mprotect(p, 1, 7); }", "mprotect"),
    ],
)  # fmt: skip
def test_what_a_library_takes_is_read_from_the_library(tmp_path: Path, source: str, symbol: str) -> None:
    compiled(tmp_path, source, "-s")
    (text,) = texts(tmp_path)
    assert text.startswith("build/foreign_symbol: build/libk.so: it takes ")
    assert symbol in text


def test_a_definition_that_the_system_would_replace_is_refused(tmp_path: Path) -> None:
    """The loader looks for the name in the whole process first."""
    source = 'extern "C" __attribute__((weak)) int system(const char*) { return 0; }\nint f() { return system("id"); }'
    compiled(tmp_path, source, "-O0")
    assert texts(tmp_path) == [
        "build/foreign_symbol: build/libk.so: it defines system and binds it by name, which finds the system's"
    ]


def test_amx_may_be_asked_for_where_the_source_says_so_plainly(tmp_path: Path) -> None:
    plain = "#include <unistd.h>\n#include <sys/syscall.h>\nlong f() { return syscall(SYS_arch_prctl, 0x1023, 18); }\n"
    compiled(tmp_path, plain)
    assert texts(tmp_path) == []
    pasted = "#define P(a,b) a##b\n#include <unistd.h>\nlong g(long n) { return P(sys,call)(n); }\n"
    compiled(tmp_path, pasted, name="other")
    assert texts(tmp_path) == [
        "build/foreign_symbol: build/libk.so: it takes syscall from the system",
        "build/foreign_symbol: build/libother.so: it takes syscall from the system",
    ]


def test_where_else_the_loader_looks_is_refused(tmp_path: Path) -> None:
    compiled(tmp_path, "int f() { return 1; }", "-Wl,-rpath,/tmp")
    assert texts(tmp_path) == [
        "build/foreign_symbol: build/libk.so: it tells the loader where else to look (DT_RUNPATH)"
    ]
    compiled(tmp_path, "int f() { return 1; }", "-Wl,--no-as-needed", "-lresolv")
    assert texts(tmp_path) == ["build/foreign_symbol: build/libk.so: it is linked with libresolv.so.2"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"uid=0(root)\n", "it is no library (no ELF header)"),
        (b"", "it is no library (no ELF header)"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 20, "it is a damaged library"),
        (b"\x7fELF\x01\x01\x01" + b"\0" * 80, "it is no shared library of 64 bits"),
    ],
)
def test_what_is_no_library_is_no_build_output(tmp_path: Path, data: bytes, fault: str) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "libwho.so").write_bytes(data)
    (text,) = texts(tmp_path)
    assert text.startswith(f"build/foreign_output: build/libwho.so: {fault}")


NATIVE = ("native-forward", "batched-decode-attention", "widened-bf16-linears", "int8-groupwise-linears")


@pytest.mark.slow
@pytest.mark.parametrize("name", NATIVE)
def test_every_native_component_passes_as_it_is_built(name: str, tmp_path: Path) -> None:
    skills, workspace = load_skills(data_dir("skills")), tmp_path / "workspace"
    scaffold = data_dir("templates") / "runtime" / "text"
    assemble(scaffold, components=list(resolve([name], skills)), parameters={}, destination=workspace)
    subprocess.run([sys.executable, "-m", "runtime.build"], cwd=workspace, check=True, capture_output=True)
    built = sorted((workspace / "build").glob("*.so"))
    assert built and check_libraries(workspace) == []


def test_a_damaged_library_is_an_error_and_nothing_else(tmp_path: Path) -> None:
    """Whatever byte is changed: read, or refused as damaged, never another error."""
    data = compiled(tmp_path, "#include <cmath>\nfloat f(float x) { return std::tanh(x); }").read_bytes()
    whole = read_library(data)
    outcomes = set()
    for place in [*range(NUM_HEADER_BYTES), *range(NUM_HEADER_BYTES, 2048, 7)]:
        for value in (0, 255):
            changed = data[:place] + struct.pack("B", value) + data[place + 1 :]
            try:
                outcomes.add(read_library(changed) == whole)
            except ElfError:
                outcomes.add(None)
    assert outcomes >= {True, None}
