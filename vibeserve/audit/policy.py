"""What a runtime may and may not do, as data: modules, files, budgets, and what to do instead.

Sources: the list of engines and of allowed imports is the runtime's contract (`docs/architecture.md`); the classes of
cheating are those of MLPerf Inference's compliance tests and of public incident threads.
"""

from __future__ import annotations

import sys

from vibeserve.core.engines import ENGINES as HIDDEN_MODULES


def words(text: str) -> frozenset[str]:
    """The names in a text, separated by white space."""
    return frozenset(text.split())


ENGINES = frozenset(HIDDEN_MODULES) | words("""
    aphrodite cyllama intel_extension_for_pytorch ipex_llm ktransformers lightllm mii mistralrs moonshine_onnx
    sgl_kernel tritonclient xinference
""")
"""Top-level modules that serve or generate by themselves: what the wall hides, and more."""

ALLOWED = words("""
    torch numpy safetensors tokenizers gguf jinja2 uvicorn starlette uvloop httptools llguidance xgrammar
""")
"""Third-party modules that need no declaration."""

STDLIB = frozenset(sys.stdlib_module_names)

CLIENT_LIBRARIES = words("""
    aiohttp boto3 ftplib grpc http.client httpcore httpx httpx2 huggingface_hub imaplib nntplib openai paramiko
    poplib pycurl requests smtplib telnetlib torch.distributed.rpc torch.hub urllib.request urllib3 webbrowser
    websocket websockets xmlrpc zmq
""")
DYNAMIC_MODULES = words("""
    bdb cProfile cloudpickle code codeop dill doctest imp joblib marshal pdb pickle pickletools profile runpy timeit
    torch.package torch.serialization torch.utils.cpp_extension zipimport
""")
STATE_MODULES = words("dbm diskcache shelve sqlite3 tempfile")
PROCESS_MODULES = words("pexpect posix psutil pty subprocess")
PROBE_MODULES = words("pytest site trace tracemalloc")

ALTERNATIVES: dict[str, str] = {
    "engine_import": "write the forward pass with torch and the seams of runtime/, or declare the engine in the"
    " target's allow_engines",
    "foreign_import": f"import only the standard library, {', '.join(sorted(ALLOWED))} and modules of runtime/",
    "outbound_connection": "serve from this process; a runtime listens on {host}:{port} and connects to nothing",
    "process": "do the work in this process; only runtime/build.py may call a compiler (g++, gcc, clang ...)",
    "detached_process": "keep every thread and process a child that ends with the server",
    "file_access": "read only below {model_dir} and the workspace, by paths relative to them; write only build/, from"
    " runtime/build.py",
    "environment_probe": "serve every request alike; take settings from the command line or runtime/parameters.py",
    "reply_cache": "compute every reply; key state by request id or slot. Declared prefix reuse keeps KV blocks, never"
    " text or output ids",
    "dynamic_code": "write the code as plain modules with plain imports; load weights with safetensors",
    "clock_patch": "leave clocks alone; timing is done by another process",
    "monkey_patch": "wrap the function in a module of runtime/ in place of changing the library",
    "import_hook": "use plain packages below runtime/; nothing that changes how the interpreter starts or imports",
    "system_library": "load only libraries that the build step wrote to build/; use torch, resource or os.sysconf"
    " for the rest (ctypes.CDLL(None).madvise is allowed as it stands)",
    "native_code": "native kernels compute on the pointers they are given, without system calls",
    "scheduling": "leave affinity and priority to the launcher; take the thread count from {threads}",
    "blob": "ship source text only; weights come from {model_dir}, compiled files from the build step",
    "symlink": "copy the file into the workspace",
    "entry_point": 'start with argv ["{python}", "-m", "runtime", ...] and build with ["{python}", "-m",'
    ' "runtime.build", ...]',
    "exit_status": "return from main() in runtime/__main__.py; tests assert, and leave pytest and its status alone",
    "syntax": "make the file parse under the interpreter that runs it",
}
"""Reason class of gate `scan` -> what to do instead."""

OUTSIDE_ROOTS = tuple(
    sorted(
        words("""
    /proc /dev /sys /etc /home /root /tmp /var /usr /opt /mnt /run /srv /work /boot /lib /data /media /workspace
    /Users
""")
    )
)
HARMLESS_FILES = words("""
    /proc/cpuinfo /proc/meminfo /proc/self/statm /proc/self/status /dev/null
    /sys/kernel/mm/transparent_hugepage/enabled
""")
"""Facts about the machine and the process itself; nothing of the judge's is in them."""

HARMLESS_SYMBOLS = words("madvise")
"""What may be called straight from `ctypes.CDLL(None)`: advice on one's own pages, such as a tensor's."""

PROBE_WORDS = ("PYTEST", "VIBESERVE", "_PYTEST", "BENCHMARK", "JUDGE", "EVALUATOR", "GITHUB_ACTIONS", "SLURM_")
"""Environment variables that begin so tell who is asking."""
PROBE_HEADERS = words("user-agent x-forwarded-for referer")

HOOK_FILES = words("sitecustomize.py usercustomize.py pyvenv.cfg pip.conf setup.cfg tox.ini pytest.ini")
HOOK_VARIABLES = words("""
    PATH PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT PYTHONBREAKPOINT PYTHONUSERBASE PYTHONPYCACHEPREFIX
    BASH_ENV ENV IFS
""")
HOOK_STRINGS = words("LD_PRELOAD LD_AUDIT PYTHONPATH PYTHONSTARTUP sitecustomize usercustomize")

COMPILERS = words("g++ gcc c++ cc clang clang++")

BINARY_SUFFIXES = words("""
    .a .bin .bz2 .db .dll .dylib .egg .exe .gguf .gz .h5 .jar .npy .npz .o .onnx .ort .pb .pickle .pkl .pt .pt2
    .pth .pyc .pyd .safetensors .so .sqlite .tar .whl .xz .zip .zst
""")
MAX_FILE_BYTES = 256 * 1024
MAX_TREE_BYTES = 2 * 1024 * 1024
MAX_LITERAL_CHARS = 8 * 1024
MAX_LITERAL_ITEMS = 512
"""A runtime is source text: what it may carry beyond code is small (no baked answers, n-grams or tables of prompts)."""
