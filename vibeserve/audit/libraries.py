"""What a built library may take from others: the gate after the build, over symbols in place of source text.

Source can spell a name in ways that no pattern knows (macros, pasted tokens, labels of the assembler); what the loader
binds is written down in the library itself. A kernel computes, allocates, and starts threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vibeserve.audit.elf import ElfError, read_library
from vibeserve.audit.native import NATIVE_SUFFIXES, SYSTEM_NAMES, pastes_tokens, uses_amx_permission
from vibeserve.audit.policy import words
from vibeserve.core.nouns import Refusal

MAX_SHOWN = 6
NEEDED = re.compile(
    r"(libc|libm|libmvec|libstdc\+\+|libgcc_s|libgomp|libomp|libiomp5|libpthread|libatomic)\.so(\.\d+)*"
)
"""libraries that a kernel may be linked with, and the loader itself (thread-local storage)"""
LOADER = re.compile(r"ld-linux[\w-]*\.so\.\d+")
SYMBOLS = words("""
    memcpy memmove memset memcmp memchr memrchr mempcpy strlen strnlen strcmp strncmp strcpy strncpy strcat strchr
    strrchr strstr malloc calloc realloc free aligned_alloc posix_memalign memalign malloc_usable_size abort qsort
    bsearch abs labs llabs rand rand_r srand strtol strtoul strtoll strtod strtof atoi atof isnan isinf finite
    printf fprintf puts putchar fputs fputc fwrite fflush snprintf sprintf vsnprintf vfprintf perror stderr stdout
    mmap munmap madvise mlock munlock sysconf getpagesize get_nprocs get_nprocs_conf sched_yield sched_getcpu
    sched_getaffinity nanosleep clock_nanosleep usleep clock_gettime clock gettimeofday time
    pthread_create pthread_join pthread_detach pthread_self pthread_equal pthread_once pthread_setname_np sem_init
    sem_destroy sem_wait sem_trywait sem_timedwait sem_post
    __gxx_personality_v0 __gmon_start__ _ITM_registerTMCloneTable _ITM_deregisterTMCloneTable __stack_chk_fail
    __tls_get_addr __dso_handle __errno_location __assert_fail __cpu_model __cpu_indicator_init __cpu_features2
    __libc_single_threaded
""")
FAMILIES = re.compile(
    r"_Z(n[aw]|d[al])\w*|_ZS\w+|_ZNK?S\w+|_ZT[ISV]\w+|_ZThn\w+|_ZGTt\w+"
    r"|__cxa_\w+|_Unwind_\w+|__(mem|str|stp|v?s?n?printf|fprintf|vfprintf)\w*_chk|GOMP_\w+|omp_\w+|__kmpc_\w+"
    r"|pthread_(mutex|cond|rwlock|spin|barrier|key|attr|mutexattr|condattr)_?\w*|pthread_[gs]etspecific"
    r"|__atomic_\w+|_ZGV\w+|__(mul|div|add|sub|neg|eq|ne|lt|le|gt|ge|fix|float|extend|trunc|pow)\w*[dstx][fi]\w*"
)
"""operators new and delete, the C++ library, exceptions, OpenMP, locks, vector mathematics, compiler helpers"""
NOT_OF_THE_LIBRARY = re.compile(r"_ZN?K?S\w*(filebuf|fstream|filesystem|random_device)|pthread_attr_setaffinity\w*")
"""of the families: what opens files or chooses cores"""
MATHS = re.compile(
    r"(a?(sin|cos|tan)h?|atan2|sincos|exp|exp2|exp10|expm1|log|log2|log10|log1p|logb|ilogb|pow|sqrt|cbrt|hypot|erfc?"
    r"|[lt]gamma|fabs|fmod|remainder|fma|fmax|fmin|fdim|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint|ldexp|frexp|modf"
    r"|scalbl?n|copysign|nextafter|nan|roundeven)[fl]?|__(exp|log|pow|sqrt|sin|cos)\w*_finite"
)


def check_libraries(workspace: Path) -> list[Refusal]:
    """Refusals of gate `build` for everything below the workspace's `build/` that is no library of computations."""
    may_call_system = _may_ask_for_amx(workspace)
    refusals = []
    for path in sorted((workspace / "build").rglob("*")):
        if path.is_file():
            name = path.relative_to(workspace).as_posix()
            refusals += [_refusal(name, *found) for found in _faults(path, may_ask_for_amx=may_call_system)]
    return refusals


def _faults(path: Path, *, may_ask_for_amx: bool) -> Iterator[tuple[str, str]]:
    """(reason class, text)"""
    try:
        library = read_library(path.read_bytes())
    except ElfError as error:
        yield "foreign_output", f"{error}; the build step compiles shared libraries of runtime/native"
        return
    foreign = [name for name in library.needed if not NEEDED.fullmatch(name) and not LOADER.fullmatch(name)]
    if foreign:
        yield "foreign_symbol", f"it is linked with {_shown(foreign)}"
    if library.entries:
        yield "foreign_symbol", f"it tells the loader where else to look ({', '.join(library.entries)})"
    taken = sorted(name for name in library.undefined if not _is_allowed(name, may_ask_for_amx=may_ask_for_amx))
    if taken:
        yield "foreign_symbol", f"it takes {_shown(taken)} from the system"
    rebound = sorted(library.rebound & SYSTEM_NAMES)
    if rebound:
        yield "foreign_symbol", f"it defines {_shown(rebound)} and binds it by name, which finds the system's"


def _is_allowed(symbol: str, *, may_ask_for_amx: bool) -> bool:
    if symbol == "syscall":
        return may_ask_for_amx
    if NOT_OF_THE_LIBRARY.match(symbol):
        return False
    return symbol in SYMBOLS or bool(FAMILIES.fullmatch(symbol) or MATHS.fullmatch(symbol))


def _may_ask_for_amx(workspace: Path) -> bool:
    """Whether the sources ask for AMX tiles by a system call, and spell no name that the scan cannot read."""
    texts = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in sorted((workspace / "runtime").rglob("*"))
        if path.suffix in NATIVE_SUFFIXES and path.is_file()
    ]
    return any(map(uses_amx_permission, texts)) and not any(map(pastes_tokens, texts))


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def _refusal(name: str, reason_class: str, fault: str) -> Refusal:
    advice = "Valid: arithmetic, memory, mathematics, OpenMP and threads; no files, processes, sockets, signals"
    return Refusal(gate="build", reason_class=reason_class, text=f"{name}: {fault}. {advice}", file=name)
