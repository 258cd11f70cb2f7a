"""Rules on files that are not Python: C++ kernels, shell scripts, the lock."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vibeserve.audit.policy import ENGINES, HARMLESS_FILES, OUTSIDE_ROOTS

Found = tuple[int, str, str]
NATIVE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".inc", ".S", ".s", ".asm"})
SHELL_SUFFIXES = frozenset({".sh", ".bash", ".zsh", ".mk", ".cmake"})
SHELL_NAMES = frozenset({"Makefile", "CMakeLists.txt"})

_NATIVE_RULES: tuple[tuple[str, str, str], ...] = (
    (
        r"#\s*include\s*[<\"](sys/socket|netdb|netinet/\w+|arpa/inet|sys/un|curl/\w+)(\.h)?[>\"]",
        "outbound_connection",
        "includes sockets",
    ),
    (r"\b(socket|connect|getaddrinfo|sendto|sendmsg|gethostbyname)\s*\(", "outbound_connection", "opens a connection"),
    (
        r"\b(system|popen|execve?|execl|execlp|execvp|execvpe|fork|vfork|clone3?|posix_spawnp?|kill|ptrace|process_vm_readv|process_vm_writev)\s*\(",
        "process",
        "starts or touches another process",
    ),
    (r"\b(setsid|daemon)\s*\(", "detached_process", "leaves the server's process tree"),
    (r"\b(exit|_exit|_Exit|quick_exit|atexit)\s*\(", "exit_status", "ends the process with a status of its own"),
    (r"\b(dlopen|dlsym|dlmopen)\s*\(", "system_library", "loads a library"),
    (
        r"\b(fopen|freopen|open|openat|creat|shm_open|memfd_create|opendir)\s*\(|\bstd::(basic_)?[io]?fstream\b|#\s*include\s*<(fstream|filesystem|cstdio_file)>",
        "file_access",
        "opens files",
    ),
    (r"\b(getenv|secure_getenv)\s*\(|\benviron\b", "environment_probe", "reads the environment"),
    (r"\b(clock_settime|settimeofday|adjtimex?|stime)\s*\(", "clock_patch", "sets a clock"),
    (
        r"\b(sched_setaffinity|pthread_setaffinity_np|setpriority|sched_setscheduler|pthread_setschedparam)\s*\(",
        "scheduling",
        "changes affinity or priority",
    ),
    (r"__attribute__\s*\(\(\s*(constructor|destructor)", "native_code", "runs when loaded, before it is called"),
    (
        r"\"[^\"\n]*\bsyscall\b[^\"\n]*\"|\bint\s+\$?0x80\b|\bsysenter\b",
        "native_code",
        "issues a system call from assembly",
    ),
)
_SYSCALL = re.compile(r"\bsyscall\s*\(\s*([^,)]*)")
_AMX_PERMISSION = frozenset({"SYS_arch_prctl", "__NR_arch_prctl", "158"})
"""arch_prctl(ARCH_REQ_XCOMP_PERM) is how a process asks for AMX tiles."""
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_SHELL = re.compile(
    r"(^|[\s;&|($`])(curl|wget|nc|ncat|netcat|socat|ssh|scp|sftp|telnet|ftp|pip3?|apt-get|apt|npm|git|nohup|setsid)(\s|$)|/dev/(tcp|udp)/"
)
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def check_native(text: str) -> Iterator[Found]:
    """Findings in C, C++, CUDA or assembly source."""
    code = _COMMENT.sub(_blank_comment, text)
    for pattern, reason, what in _NATIVE_RULES:
        for match in re.finditer(pattern, code):
            yield _line(code, match.start()), reason, f"{what} ({match.group(0).strip()[:40]})"
    for match in _SYSCALL.finditer(code):
        if match.group(1).strip() not in _AMX_PERMISSION:
            yield _line(code, match.start()), "native_code", f"issues the system call {match.group(1).strip()[:40]}"
    for match in _STRING.finditer(code):
        if (
            match.group(1).startswith(tuple(root + "/" for root in OUTSIDE_ROOTS))
            and match.group(1) not in HARMLESS_FILES
        ):
            yield _line(code, match.start()), "file_access", f"names {match.group(1)[:60]!r}"


def _blank_comment(match: re.Match[str]) -> str:
    """Keep strings; replace a comment by as many line ends as it had, so that lines still count."""
    text = match.group(0)
    return text if text.startswith('"') else "\n" * text.count("\n") or " "


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def check_shell(text: str) -> Iterator[Found]:
    """Findings in shell scripts and make files: a runtime builds and starts by `service.yaml` alone."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split("#", 1)[0]
        match = _SHELL.search(stripped)
        if match is not None:
            yield number, "outbound_connection", f"runs {match.group(0).strip()}"


def check_lock(text: str, *, allow_engines: frozenset[str]) -> Iterator[Found]:
    """Findings in the runtime's requirement lock: engines that it would install."""
    for number, line in enumerate(text.splitlines(), 1):
        match = _REQUIREMENT.match(line)
        if match is None or line.lstrip().startswith("#"):
            continue
        module = match.group(1).lower().replace("-", "_").replace(".", "_").removesuffix("_cpu")
        if module in ENGINES and module not in allow_engines:
            yield number, "engine_import", f"requires the engine {match.group(1)}"
