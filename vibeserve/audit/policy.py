"""What a runtime may and may not do, as data: names, texts, budgets. The rules that read it are in the modules beside it.

Sources: the list of engines and of allowed imports is the runtime's contract (`docs/architecture.md`); the classes of cheating
are those of MLPerf Inference's compliance tests and of public incident threads.
"""

from __future__ import annotations

import sys

ENGINES = frozenset(
    {
        "accelerate",
        "aphrodite",
        "cyllama",
        "ctranslate2",
        "deepspeed",
        "exllamav2",
        "faster_whisper",
        "gpt4all",
        "intel_extension_for_pytorch",
        "ipex_llm",
        "ktransformers",
        "lightllm",
        "llama_cpp",
        "lmdeploy",
        "mii",
        "mistralrs",
        "mlc_llm",
        "mlx_lm",
        "moonshine_onnx",
        "moonshine_voice",
        "onnxruntime",
        "onnxruntime_genai",
        "openvino",
        "openvino_genai",
        "optimum",
        "sglang",
        "sgl_kernel",
        "tensorrt_llm",
        "text_generation_server",
        "transformers",
        "tritonclient",
        "vllm",
        "xinference",
        "xllamacpp",
    }
)
"""Top-level modules that serve or generate by themselves."""

ALLOWED = frozenset(
    {
        "torch",
        "numpy",
        "safetensors",
        "tokenizers",
        "gguf",
        "jinja2",
        "uvicorn",
        "starlette",
        "uvloop",
        "httptools",
        "llguidance",
        "xgrammar",
    }
)
"""Third-party modules that need no declaration."""

STDLIB = frozenset(sys.stdlib_module_names)

CLIENT_LIBRARIES = frozenset(
    {
        "aiohttp",
        "boto3",
        "ftplib",
        "grpc",
        "http.client",
        "httpcore",
        "httpx",
        "httpx2",
        "huggingface_hub",
        "imaplib",
        "nntplib",
        "openai",
        "paramiko",
        "poplib",
        "pycurl",
        "requests",
        "smtplib",
        "telnetlib",
        "torch.distributed.rpc",
        "torch.hub",
        "urllib.request",
        "urllib3",
        "webbrowser",
        "websocket",
        "websockets",
        "xmlrpc",
        "zmq",
    }
)
DYNAMIC_MODULES = frozenset(
    {
        "cloudpickle",
        "code",
        "codeop",
        "dill",
        "imp",
        "joblib",
        "marshal",
        "pickle",
        "pickletools",
        "runpy",
        "zipimport",
        "torch.package",
    }
)
STATE_MODULES = frozenset({"dbm", "shelve", "sqlite3", "tempfile", "diskcache"})
PROCESS_MODULES = frozenset({"pexpect", "pty", "psutil", "subprocess"})
PROBE_MODULES = frozenset({"site", "trace", "tracemalloc", "pytest"})

ALTERNATIVES: dict[str, str] = {
    "engine_import": "write the forward pass with torch and the seams of runtime/, or declare the engine in the target's allow_engines",
    "foreign_import": "import only the standard library, torch, numpy, safetensors, tokenizers, gguf, jinja2, uvicorn, starlette, uvloop, "
    "httptools, llguidance, xgrammar and modules of runtime/",
    "outbound_connection": "serve from this process; a runtime listens on {host}:{port} and connects to nothing",
    "process": "do the work in this process; only runtime/build.py may call a compiler (g++, gcc, c++, cc, clang, clang++)",
    "detached_process": "keep every thread and process a child that ends with the server",
    "file_access": "read only below {model_dir} and the workspace, by paths relative to them; write only build/, from runtime/build.py",
    "environment_probe": "serve every request alike; take settings from the command line or runtime/parameters.py",
    "reply_cache": "compute every reply; key state by request id or slot. Declared prefix reuse keeps KV blocks, never text or output ids",
    "dynamic_code": "write the code as plain modules with plain imports; load weights with safetensors",
    "clock_patch": "leave clocks alone; timing is done by another process",
    "monkey_patch": "wrap the function in a module of runtime/ in place of changing the library",
    "import_hook": "use plain packages below runtime/; nothing that changes how the interpreter starts or imports",
    "system_library": "load only libraries that the build step wrote to build/; use torch, mmap.madvise, resource or os.sysconf for the rest",
    "native_code": "native kernels compute on the pointers they are given, without system calls",
    "scheduling": "leave affinity and priority to the launcher; take the thread count from {threads}",
    "blob": "ship source text only; weights come from {model_dir}, compiled files from the build step",
    "symlink": "copy the file into the workspace",
    "entry_point": 'start with argv ["{python}", "-m", "runtime", ...] and build with ["{python}", "-m", "runtime.build", ...]',
    "syntax": "make the file parse under the interpreter that runs it",
}
"""Reason class of gate `scan` -> what to do instead."""

# name as resolved through the file's imports -> reason class and what is wrong with it. A trailing dot means "and all below".
FORBIDDEN_NAMES: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("eval", "exec", "compile", "__builtins__", "globals", "vars"),
        ("dynamic_code", "runs or rebinds code that cannot be read here"),
    ),
    **dict.fromkeys(
        (
            "builtins.eval",
            "builtins.exec",
            "builtins.compile",
            "types.FunctionType",
            "types.CodeType",
            "torch.load",
            "torch.jit.load",
            "torch.ops.load_library",
            "torch.export.load",
            "torch._inductor.aoti_load_package",
        ),
        ("dynamic_code", "loads code that cannot be read here"),
    ),
    **dict.fromkeys(
        (
            "importlib.util.spec_from_file_location",
            "importlib.util.module_from_spec",
            "importlib.machinery.",
            "importlib.reload",
        ),
        ("dynamic_code", "imports a file by path"),
    ),
    **dict.fromkeys(
        ("sys.path", "sys.meta_path", "sys.path_hooks", "sys.modules", "sys.path_importer_cache"),
        ("import_hook", "changes what an import finds"),
    ),
    **dict.fromkeys(
        (
            "os.system",
            "os.popen",
            "os.posix_spawn",
            "os.posix_spawnp",
            "os.kill",
            "os.killpg",
            "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell",
            "os.startfile",
            "signal.pidfd_send_signal",
        ),
        ("process", "starts or signals another process"),
    ),
    **{
        f"os.{name}": ("process", "replaces or starts a process")
        for name in (
            "execl",
            "execle",
            "execlp",
            "execlpe",
            "execv",
            "execve",
            "execvp",
            "execvpe",
            "spawnl",
            "spawnle",
            "spawnlp",
            "spawnlpe",
            "spawnv",
            "spawnve",
            "spawnvp",
            "spawnvpe",
        )
    },
    **dict.fromkeys(
        ("os.fork", "os.forkpty", "os.setsid", "os.setpgid", "os.setpgrp", "os.daemon"),
        ("detached_process", "leaves the server's process tree"),
    ),
    **dict.fromkeys(
        ("asyncio.open_connection", "asyncio.open_unix_connection", "socket.create_connection", "urllib.urlopen"),
        ("outbound_connection", "opens a connection"),
    ),
    **dict.fromkeys(("time.clock_settime", "time.clock_settime_ns"), ("clock_patch", "sets a clock")),
    **dict.fromkeys(
        (
            "gc.get_objects",
            "gc.get_referrers",
            "gc.get_referents",
            "sys._getframe",
            "sys._current_frames",
            "sys.settrace",
            "sys.setprofile",
            "sys.addaudithook",
            "inspect.stack",
            "inspect.currentframe",
            "inspect.getouterframes",
            "os.getppid",
            "threading.settrace",
        ),
        ("environment_probe", "looks at its callers or at the judge"),
    ),
    **dict.fromkeys(
        ("os.sched_setaffinity", "os.setpriority", "os.nice", "os.sched_setscheduler"),
        ("scheduling", "changes affinity or priority"),
    ),
    **dict.fromkeys(
        ("pathlib.Path.home", "os.path.expanduser", "os.getlogin"), ("file_access", "reaches for the home folder")
    ),
    **dict.fromkeys(
        ("os.symlink", "os.link", "os.mkfifo", "os.mknod", "os.memfd_create", "os.chroot", "os.mount"),
        ("file_access", "makes files that are no plain files"),
    ),
    **dict.fromkeys(
        (
            "torch.save",
            "numpy.save",
            "numpy.savez",
            "numpy.savez_compressed",
            "safetensors.torch.save_file",
            "safetensors.numpy.save_file",
            "os.makedirs",
            "os.mkdir",
            "shutil.",
        ),
        ("file_access", "writes files"),
    ),
    **dict.fromkeys(
        ("ctypes.util.find_library", "ctypes.pythonapi", "ctypes.memmove_to"),
        ("system_library", "reaches into system libraries"),
    ),
    **dict.fromkeys(
        ("ctypes.cdll.", "ctypes.windll.", "ctypes.oledll."), ("system_library", "loads a library by attribute")
    ),
}

FORBIDDEN_METHODS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        (
            "connect",
            "connect_ex",
            "create_connection",
            "create_unix_connection",
            "sock_connect",
            "open_connection",
            "sendto",
            "create_datagram_endpoint",
        ),
        ("outbound_connection", "opens a connection"),
    ),
    **dict.fromkeys(
        ("write_text", "write_bytes", "tofile", "symlink_to", "hardlink_to", "touch", "mkdir"),
        ("file_access", "writes files"),
    ),
    **dict.fromkeys(("expanduser",), ("file_access", "reaches for the home folder")),
    **dict.fromkeys(("exec_module", "load_module"), ("dynamic_code", "imports a file by path")),
}
FORBIDDEN_ATTRIBUTES: dict[str, tuple[str, str]] = dict.fromkeys(
    (
        "__subclasses__",
        "__globals__",
        "__code__",
        "__closure__",
        "__bases__",
        "f_back",
        "f_globals",
        "f_locals",
        "tb_frame",
        "__builtins__",
    ),
    ("dynamic_code", "reaches code through interpreter internals"),
)
REFLECTED_MODULES = frozenset(
    {"os", "sys", "builtins", "importlib", "socket", "subprocess", "time", "ctypes", "asyncio"}
)
"""`getattr` on these must use a literal name, which is then judged like the attribute itself."""

PATCH_TARGETS: dict[str, str] = {
    "time": "clock_patch",
    "datetime": "clock_patch",
    "asyncio": "monkey_patch",
    "socket": "monkey_patch",
    "json": "monkey_patch",
    "uvicorn": "monkey_patch",
    "starlette": "monkey_patch",
    "tokenizers": "monkey_patch",
    "builtins": "monkey_patch",
    "os": "monkey_patch",
    "sys": "monkey_patch",
    "hashlib": "monkey_patch",
    "random": "monkey_patch",
}
PATCH_EXEMPT = frozenset({"sys.stdout", "sys.stderr", "sys.excepthook", "sys.dont_write_bytecode"})

OUTSIDE_ROOTS = (
    "/proc",
    "/dev",
    "/sys",
    "/etc",
    "/home",
    "/root",
    "/tmp",
    "/var",
    "/usr",
    "/opt",
    "/mnt",
    "/run",
    "/srv",
    "/work",
    "/boot",
    "/lib",
    "/data",
    "/media",
    "/workspace",
    "/Users",
)
HARMLESS_FILES = frozenset(
    {
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/self/statm",
        "/proc/self/status",
        "/dev/null",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    }
)
"""Facts about the machine and the process itself; nothing of the judge's is in them."""

HARMLESS_SYMBOLS = frozenset({"madvise"})
"""What may be called straight from `ctypes.CDLL(None)`: advice on one's own pages (`mmap.madvise` cannot reach a tensor's)."""

PROBE_WORDS = ("PYTEST", "VIBESERVE", "_PYTEST", "BENCHMARK", "JUDGE", "EVALUATOR", "GITHUB_ACTIONS", "SLURM_")
"""Environment variables that begin so tell who is asking."""
PROBE_HEADERS = frozenset({"user-agent", "x-forwarded-for", "referer"})

HOOK_FILES = frozenset(
    {"sitecustomize.py", "usercustomize.py", "pyvenv.cfg", "pip.conf", "setup.cfg", "tox.ini", "pytest.ini"}
)
HOOK_VARIABLES = frozenset(
    {
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "PATH",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONSTARTUP",
        "PYTHONINSPECT",
        "PYTHONBREAKPOINT",
        "PYTHONUSERBASE",
        "PYTHONPYCACHEPREFIX",
        "BASH_ENV",
        "ENV",
        "IFS",
    }
)

HOOK_STRINGS = frozenset({"LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "sitecustomize", "usercustomize"})

COMPILERS = frozenset({"g++", "gcc", "c++", "cc", "clang", "clang++"})

BINARY_SUFFIXES = frozenset(
    {
        ".a",
        ".bin",
        ".bz2",
        ".db",
        ".dll",
        ".dylib",
        ".egg",
        ".exe",
        ".gguf",
        ".gz",
        ".h5",
        ".jar",
        ".npy",
        ".npz",
        ".o",
        ".onnx",
        ".ort",
        ".pb",
        ".pickle",
        ".pkl",
        ".pt",
        ".pt2",
        ".pth",
        ".pyc",
        ".pyd",
        ".safetensors",
        ".so",
        ".sqlite",
        ".tar",
        ".whl",
        ".xz",
        ".zip",
        ".zst",
    }
)
MAX_FILE_BYTES = 256 * 1024
MAX_TREE_BYTES = 2 * 1024 * 1024
MAX_LITERAL_CHARS = 8 * 1024
MAX_LITERAL_ITEMS = 512
"""A runtime is source text: what it may carry beyond code is small (no baked answers, n-grams or tables of prompts)."""
