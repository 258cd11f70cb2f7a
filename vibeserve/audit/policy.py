"""What a runtime may and may not do, as data: modules, files, budgets, and what to do instead.

Sources: the list of engines and of allowed imports is the runtime's contract (`docs/architecture.md`); the classes of
cheating are those of MLPerf Inference's compliance tests and of public incident threads.
"""

from __future__ import annotations

import re
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
    aiohttp asynchat asyncore boto3 ftplib gguf.utility grpc http.client httpcore httpx httpx2 huggingface_hub
    imaplib logging.handlers multiprocessing.connection multiprocessing.managers nntplib openai paramiko poplib
    pycurl requests smtpd smtplib starlette.testclient telnetlib torch.distributed.rpc torch.hub torch.utils.model_zoo
    urllib.request urllib3 webbrowser websocket websockets xmlrpc zmq
""")
"""`logging.handlers` sends records over the network; a StreamHandler is all that a server needs"""
DYNAMIC_MODULES = words("""
    bdb cProfile cloudpickle code codeop compileall dill distutils doctest ensurepip gguf.scripts idlelib imp
    jinja2.bccache jinja2.environment jinja2.loaders jinja2.nativetypes jinja2.utils joblib lib2to3 logging.config
    marshal modulefinder numpy.ctypeslib numpy.distutils numpy.f2py numpy.testing pdb pickle pickletools profile
    py_compile pydoc rlcompleter runpy starlette.templating test timeit torch.package torch.serialization torch.testing
    torch.utils.cpp_extension unittest uvicorn.importer venv zipapp zipimport
""")
"""What compiles, imports by a string, or reads objects that may be code."""
STATE_MODULES = words("dbm diskcache shelve sqlite3 tempfile")
PROCESS_MODULES = words("""
    asyncio.base_subprocess asyncio.subprocess concurrent.futures.process loky mailcap multiprocessing pexpect posix
    psutil pty subprocess tkinter torch.distributed.elastic torch.distributed.launch torch.distributed.run
    torch.multiprocessing torch.utils.bottleneck torch.utils.collect_env torch.utils.data uvicorn.supervisors
    uvicorn.workers
""")
PROBE_MODULES = words("pytest site trace tracemalloc")

HOPS = words("""
    _thread asyncio builtins ctypes importlib marshal multiprocessing os pickle posix pty runpy shutil signal
    socket subprocess sys tempfile
""")
"""Modules that others import for themselves: reached as an attribute of one of those they are not written down."""
NO_HOPS = words("signal.signal socket.socket torch.signal")
"""What only looks like one."""

TEMPLATES = words("""
    jinja2.TemplateError jinja2.TemplateSyntaxError jinja2.TemplateRuntimeError jinja2.UndefinedError
    jinja2.Undefined jinja2.StrictUndefined jinja2.ChainableUndefined jinja2.exceptions
    jinja2.sandbox.SandboxedEnvironment jinja2.sandbox.ImmutableSandboxedEnvironment jinja2.sandbox.SecurityError
    jinja2.ext.loopcontrols jinja2.ext.LoopControlExtension jinja2.ext.Extension jinja2.nodes jinja2.parser
    jinja2.lexer jinja2.runtime
""")
"""All of jinja2 that may be named: the sandbox that renders a model's chat template, its errors, its extensions."""
SANDBOX_RULES = words("is_safe_attribute is_safe_callable is_internal_attribute call_unop call_binop")
"""Methods of the sandbox that say what a template may reach."""

ALTERNATIVES: dict[str, str] = {
    "engine_import": "write the forward pass with torch and the seams of runtime/, or declare the engine in the"
    " target's allow_engines",
    "foreign_import": f"import only the standard library, {', '.join(sorted(ALLOWED))} and modules of runtime/",
    "outbound_connection": "serve from this process; a runtime listens on {host}:{port} and connects to nothing",
    "process": "do the work in this process, on threads; only runtime/build.py may call a compiler (g++, gcc,"
    " clang ...)",
    "detached_process": "keep every thread a part of the server's own process",
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
    "build_flag": "compile with flags that choose code and warnings: -O2 -O3 -march=... -m... -std=... -fopenmp"
    " -ffast-math -W... -DNAME=NUMBER; none that starts a program or reads a file",
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
COMPILER_FLAGS = re.compile(
    r"-O([0-3sgz]|fast)?|-std=[\w+]+|-[cg]|-g[0-3]|-o|-pipe|-w|-fPIC|-fpic|-fPIE|-shared|-pthread|-static-lib(gcc|stdc\+\+)"
    r"|-W(?!l,|a,|p,)[\w=+-]*|-pedantic|-Wl,(-O[12]|--as-needed|--no-undefined|-z,(now|relro))"
    r"|-m(?!relax-cmpxchg-loop$|fentry|instrument|nop-mcount|record|stackrealign$)[a-z0-9][\w.=,+-]*"
    r"|-D[A-Za-z_]\w*(=-?[0-9]\w*(\.\w+)?)?|-U[A-Za-z_]\w*|-I(\.|runtime(/\w+)*|native)|-l(m|gomp|stdc\+\+|pthread|mvec)"
    r"|-f(no-)?(openmp|openmp-simd|(fast|unsafe|associative|reciprocal|finite)-math[\w-]*|math-errno|trapping-math"
    r"|signed-zeros|rounding-math|strict-aliasing|exceptions|rtti|plt|common|semantic-interposition|builtin"
    r"|omit-frame-pointer|tree-[\w-]+|unroll[\w-]*|peel-loops|inline[\w-]*|prefetch-loop-arrays|split-loops"
    r"|ipa-[\w-]+|lto|whole-program|vectorize|slp-vectorize|stack-protector[\w-]*|asynchronous-unwind-tables"
    r"|unwind-tables|function-sections|data-sections|gcse|schedule-insns2?|rename-registers|wrapv|threadsafe-statics)"
    r"|-f(fp-contract|visibility|vect-cost-model|simd-cost-model|excess-precision|align-[a-z]+|inline-limit"
    r"|constexpr-[a-z-]+|template-depth|max-errors|tls-model|lto|abi-version|diagnostics-color)=[\w-]+"
)
"""Flags that choose code, warnings and names. Not among them is what starts another program (-wrapper, -B, -fplugin,
-specs, -fuse-ld), reads a file (@file, -include, -I elsewhere), or hands words to assembler and linker."""

BINARY_SUFFIXES = words("""
    .a .bin .bz2 .db .dll .dylib .egg .exe .gguf .gz .h5 .jar .npy .npz .o .onnx .ort .pb .pickle .pkl .pt .pt2
    .pth .pyc .pyd .safetensors .so .sqlite .tar .whl .xz .zip .zst
""")
MAX_FILE_BYTES = 256 * 1024
MAX_TREE_BYTES = 2 * 1024 * 1024
MAX_LITERAL_CHARS = 8 * 1024
MAX_LITERAL_ITEMS = 512
"""A runtime is source text: what it may carry beyond code is small (no baked answers, n-grams or tables of prompts)."""

SHIPPED = {"runtime/ranks.py": "tensor-parallel/assets/runtime/ranks.py"}
"""Modules that start the server's own ranks and join them, by their place below `skills/`: not judged by the rules for
processes and connections, as long as they are byte for byte what is shipped there."""
