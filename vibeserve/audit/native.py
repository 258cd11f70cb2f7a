"""Rules on files that are not Python: C++ kernels, shell scripts, the lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vibeserve.audit.policy import COMPILER_FLAGS, ENGINES, HARMLESS_FILES, OUTSIDE_ROOTS, words

Found = tuple[int, str, str]
NATIVE_SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".inc", ".S", ".s", ".asm"})
SHELL_SUFFIXES = frozenset({".sh", ".bash", ".zsh", ".mk", ".cmake"})
SHELL_NAMES = frozenset({"Makefile", "CMakeLists.txt"})

_INCLUDES = re.compile(
    r"#\s*include(_next)?\s*[<\"]((sys/(socket|un|ptrace|timerfd|signalfd|inotify|eventfd|prctl|wait)|netdb|netinet/\w+"
    r"|arpa/inet|curl/\w+|linux/\w+|Python|pybind11/\S+|dlfcn|spawn|signal|fcntl|mqueue|aio|fstream|filesystem"
    r"|cstdio_file)(\.h)?|[^>\"\n]*\.\./[^>\"\n]*|/[^>\"\n]*)[>\"]"
)
_INCLUDE_REASONS = {
    "sys/socket": "outbound_connection", "sys/un": "outbound_connection", "netdb": "outbound_connection",
    "netinet": "outbound_connection", "arpa": "outbound_connection", "curl": "outbound_connection",
    "sys/ptrace": "process", "sys/wait": "process", "spawn": "process", "signal": "process",
    "fstream": "file_access", "filesystem": "file_access", "fcntl": "file_access",
    "dlfcn": "system_library",
}  # fmt: skip
"""head of a header's name -> reason class; the other headers of the list are `native_code`"""
_SYSTEM: dict[str, tuple[str, frozenset[str]]] = {
    "outbound_connection": (
        "opens a connection", words("socket connect getaddrinfo sendto sendmsg gethostbyname socketpair accept4")),
    "process": (
        "starts or touches another process",
        words("""
            system popen execve execv execl execle execlp execvp execvpe fexecve fork vfork clone clone3 posix_spawn
            posix_spawnp kill killpg tgkill ptrace process_vm_readv process_vm_writev waitpid waitid sigaction
            sigqueue timer_create timer_settime setitimer pthread_kill pthread_exit pthread_sigmask pidfd_open""")),
    "detached_process": ("leaves the server's process tree", words("setsid setpgid daemon prctl unshare setns")),
    "exit_status": ("ends the process with a status of its own", words("exit _exit _Exit quick_exit atexit")),
    "system_library": ("loads a library", words("dlopen dlsym dlmopen dlvsym dl_iterate_phdr")),
    "file_access": (
        "opens files",
        words("""
            fopen fopen64 freopen fdopen open open64 openat openat2 creat shm_open memfd_create opendir
            mkstemp mkdir unlink rename readlink realpath stat lstat fstat statx fcntl ioctl inotify_init
            inotify_init1 sendfile""")),
    "environment_probe": ("reads the environment", words("getenv secure_getenv environ setenv putenv getppid")),
    "clock_patch": ("sets a clock", words("clock_settime settimeofday adjtime adjtimex stime")),
    "scheduling": (
        "changes affinity or priority",
        words("""
            sched_setaffinity pthread_setaffinity_np pthread_attr_setaffinity_np setpriority nice sched_setscheduler
            sched_setattr pthread_setschedparam""")),
    "native_code": ("changes how code runs", words("mprotect pkey_mprotect memfd_secret userfaultfd io_uring_setup")),
}  # fmt: skip
"""reason class -> what is wrong, and the functions"""
SYSTEM_NAMES = frozenset().union(*(names for _, names in _SYSTEM.values())) | {"syscall"}
_ALWAYS = SYSTEM_NAMES - words("""
    open open64 connect system kill exit environ stat clone nice rename unlink socket mkdir fork daemon creat syscall
""")
"""names that no kernel has a use of its own for: refused wherever they stand, called or not"""
_SYSTEM_CALL = re.compile(r"\b(?:std::|::)?(" + "|".join(sorted(SYSTEM_NAMES - {"syscall"})) + r")\s*\(")
_SYSTEM_WORD = re.compile(r"(?<![\w\"])(" + "|".join(sorted(_ALWAYS)) + r")\b(?!\s*\()")
_REASON_OF = {name: reason for reason, (_, names) in _SYSTEM.items() for name in names}
_ASM = re.compile(r"\b(?:__asm__|__asm|asm)\b[^;{}]*?\(((?:\s*\"(?:[^\"\\]|\\.)*\")+)\s*([:)])")
_INSTRUCTIONS = words("pause nop mfence lfence sfence cpuid rdtsc emms vzeroupper vzeroall yield isb")
"""one-word instructions; any other lone word in an assembler's statement is a symbol's name"""
_RAW_ASM = re.compile(r"\bsyscall\b|\bint\s+\$?0x80\b|\bsysenter\b|\bsvc\b|(^|[\s;])(\.[a-z]\w*|call\b|jmp\s+\*)")
_NATIVE_RULES: tuple[tuple[str, str, str], ...] = (
    (r"\bstd::(basic_)?[io]?fstream\b|\bstd::filesystem\b", "file_access", "opens files"),
    (r"__attribute__\s*\(\(\s*(constructor|destructor)", "native_code", "runs when loaded, before it is called"),
    (r"__attribute__\s*\(\([^)]*\b(alias|ifunc|weakref|symver)\b", "native_code", "binds a symbol by another name"),
    (r"#\s*pragma\s+(redefine_extname|weak|extern_prefix)|_Pragma\s*\(", "native_code", "binds a symbol by pragma"),
    (r"\b_?Py([A-Z][A-Za-z]*)?_\w+", "native_code", "calls the interpreter"),
    (r"\bPROT_EXEC\b", "native_code", "makes memory executable"),
    (r"#\s*embed\b", "blob", "embeds a file"),
)
_SYSCALL = re.compile(r"\bsyscall\b(?:\s*\(\s*([^,)]*))?")
_PASTE = re.compile(r"##|%:%:")
_AMX_PERMISSION = frozenset({"SYS_arch_prctl", "__NR_arch_prctl", "158"})
"""arch_prctl(ARCH_REQ_XCOMP_PERM) is how a process asks for AMX tiles."""
_FLAG_COMMENT = re.compile(r"^\s*(?://|/?\*+)\s*[\w ]*flags?\s*:\s*(.*?)(?:\*/)?\s*$", re.IGNORECASE)
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_SHELL = re.compile(
    r"(^|[\s;&|($`])(curl|wget|nc|ncat|netcat|socat|ssh|scp|sftp|telnet|ftp|pip3?|apt-get|apt|npm|git|nohup|setsid)(\s|$)|/dev/(tcp|udp)/"
)
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def check_native(text: str) -> Iterator[Found]:
    """Findings in C, C++, CUDA or assembly source."""
    yield from check_flag_comments(text)
    code = _COMMENT.sub(_blank_comment, _spliced(text))
    bare = _STRING.sub(_blank_string, code)
    yield from _check_names(bare)
    yield from _check_includes(code)
    for pattern, reason, what in _NATIVE_RULES:
        for match in re.finditer(pattern, bare):
            yield _line(bare, match.start()), reason, f"{what} ({match.group(0).strip()[:40]})"
    for match in _ASM.finditer(code):
        yield from _check_assembly(_line(code, match.start()), match)
    for match in _STRING.finditer(code):
        if (
            match.group(1).startswith(tuple(root + "/" for root in OUTSIDE_ROOTS))
            and match.group(1) not in HARMLESS_FILES
        ):
            yield _line(code, match.start()), "file_access", f"names {match.group(1)[:60]!r}"


def _check_names(bare: str) -> Iterator[Found]:
    for pattern in (_SYSTEM_CALL, _SYSTEM_WORD):
        for match in pattern.finditer(bare):
            reason = _REASON_OF[match.group(1)]
            yield _line(bare, match.start()), reason, f"{_SYSTEM[reason][0]} ({match.group(1)})"
    for match in _SYSCALL.finditer(bare):
        number = (match.group(1) or "").strip()
        if number not in _AMX_PERMISSION:
            yield _line(bare, match.start()), "native_code", f"issues the system call {number[:40] or 'by reference'}"


def _check_includes(code: str) -> Iterator[Found]:
    for match in _INCLUDES.finditer(code):
        header = match.group(2)
        known = (reason for head, reason in _INCLUDE_REASONS.items() if header.startswith(head))
        climbs = "../" in header or header.startswith("/")
        reason = next(known, "file_access" if climbs else "native_code")
        yield _line(code, match.start()), reason, f"includes {header[:40]}"


def _check_assembly(line: int, match: re.Match[str]) -> Iterator[Found]:
    """A statement computes on registers; a lone word is a label, which binds a function of another name."""
    text = " ".join(part.group(1) for part in _STRING.finditer(match.group(1)))
    text = text.replace("\\n", "\n").replace("\\t", " ")
    if _RAW_ASM.search(text):
        yield line, "native_code", f"issues a system call, calls or places data from assembly ({text.strip()[:40]})"
    elif match.group(2) == ")" and re.fullmatch(r"[A-Za-z_.$@][\w.$@]*", text) and text not in _INSTRUCTIONS:
        yield line, "native_code", f"binds a symbol by an assembler's label ({text[:40]})"


def check_flag_comments(text: str) -> Iterator[Found]:
    """Comments that the build step reads compiler flags from: each flag must be one of the list."""
    for number, line in enumerate(_spliced(text).splitlines(), 1):
        match = _FLAG_COMMENT.match(line)
        if match is not None:
            yield from ((number, *fault) for fault in flag_faults(match.group(1).split()))


def flag_faults(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(reason class, text) of every compiler flag that is not of the list."""
    for flag in flags:
        if not COMPILER_FLAGS.fullmatch(flag):
            yield "build_flag", f"adds the compiler flag {flag[:40]!r}"


def uses_amx_permission(text: str) -> bool:
    """Whether a native source asks for AMX tiles by a system call."""
    code = _COMMENT.sub(_blank_comment, _spliced(text))
    return any((match.group(1) or "").strip() in _AMX_PERMISSION for match in _SYSCALL.finditer(code))


def pastes_tokens(text: str) -> bool:
    """Whether its preprocessor makes names that are not written down."""
    return bool(_PASTE.search(_COMMENT.sub(_blank_comment, text)))


def _spliced(text: str) -> str:
    """Lines that a backslash continues are one to the compiler; the line ends move behind it, so that lines count."""
    return re.sub(r"((?:[^\n]*\\[ \t]*\r?\n)+)([^\n]*)", _join_lines, text)


def _join_lines(match: re.Match[str]) -> str:
    joined, count = re.subn(r"\\[ \t]*\r?\n", "", match.group(1))
    return joined + match.group(2) + "\n" * count


def _blank_string(match: re.Match[str]) -> str:
    return '""'


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
