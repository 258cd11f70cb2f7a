"""Names that a runtime may not use, as data: dotted name -> reason class and what is wrong with it.

A name counts as resolved through the file's imports; one that ends in a dot stands for all below it.
"""

from __future__ import annotations

from vibeserve.audit.policy import words

Hit = tuple[str, str]


def _table(*rows: tuple[str, str, str]) -> dict[str, Hit]:
    return {name: (reason, what) for reason, what, names in rows for name in sorted(words(names))}


NAMES: dict[str, Hit] = _table(
    (
        "dynamic_code",
        "runs or rebinds code that cannot be read here",
        """
        eval exec compile __builtins__ globals vars __path__ __spec__ __loader__""",
    ),
    (
        "dynamic_code",
        "loads code that cannot be read here",
        """
        builtins.eval builtins.exec builtins.compile types.FunctionType types.CodeType torch.load torch.jit.load
        torch.ops.load_library torch.classes.load_library torch.export.load torch._inductor.aoti_load_package""",
    ),
    (
        "dynamic_code",
        "evaluates text as code, or finds code by a text",
        """
        typing.get_type_hints typing.ForwardRef inspect.get_annotations codecs.register importlib.metadata.EntryPoint
        importlib.metadata.entry_points torch.fx.graph_module._exec_with_source""",
    ),
    (
        "dynamic_code",
        "imports a file by path",
        """
        importlib.util.spec_from_file_location importlib.util.module_from_spec importlib.machinery.
        importlib.reload""",
    ),
    (
        "import_hook",
        "changes what an import finds",
        """
        sys.path sys.meta_path sys.path_hooks sys.modules sys.path_importer_cache""",
    ),
    (
        "process",
        "starts or signals another process",
        """
        os.system os.popen os.posix_spawn os.posix_spawnp os.kill os.killpg os.startfile signal.pidfd_send_signal
        asyncio.create_subprocess_exec asyncio.create_subprocess_shell
        os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe
        os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe
        concurrent.futures.ProcessPoolExecutor signal.setitimer signal.pthread_kill signal.set_wakeup_fd
        socketserver.ForkingMixIn socketserver.ForkingTCPServer http.server.CGIHTTPRequestHandler""",
    ),
    ("detached_process", "leaves the server's process tree", "os.fork os.forkpty os.setsid os.setpgid os.setpgrp"),
    (
        "outbound_connection",
        "opens a connection",
        """
        asyncio.open_connection asyncio.open_unix_connection socket.create_connection urllib.urlopen
        asyncio.streams.open_connection asyncio.streams.open_unix_connection torch.distributed.TCPStore
        torch.distributed.rendezvous torch.distributed.distributed_c10d.TCPStore""",
    ),
    ("clock_patch", "sets a clock", "time.clock_settime time.clock_settime_ns"),
    ("exit_status", "ends the process at once, with a status of its own", "os._exit os.abort"),
    (
        "environment_probe",
        "looks at its callers or at the judge",
        """
        gc.get_objects gc.get_referrers gc.get_referents sys._getframe sys._current_frames sys.settrace sys.setprofile
        sys.addaudithook inspect.stack inspect.currentframe inspect.getouterframes os.getppid threading.settrace""",
    ),
    ("scheduling", "changes affinity or priority", "os.sched_setaffinity os.setpriority os.nice os.sched_setscheduler"),
    ("file_access", "reaches for the home folder", "pathlib.Path.home os.path.expanduser os.getlogin"),
    (
        "file_access",
        "makes files that are no plain files",
        """
        os.symlink os.link os.mkfifo os.mknod os.memfd_create os.chroot""",
    ),
    (
        "file_access",
        "writes files",
        """
        torch.save numpy.save numpy.savez numpy.savez_compressed safetensors.torch.save_file safetensors.numpy.save_file
        os.makedirs os.mkdir shutil.""",
    ),
    ("system_library", "reaches into system libraries", "ctypes.util.find_library ctypes.pythonapi"),
    ("system_library", "loads a library by attribute", "ctypes.cdll. ctypes.windll. ctypes.oledll."),
)

METHODS: dict[str, Hit] = _table(
    (
        "outbound_connection",
        "opens a connection",
        """
        connect connect_ex create_connection create_unix_connection sock_connect open_connection sendto
        create_datagram_endpoint""",
    ),
    ("file_access", "writes files", "write_text write_bytes tofile symlink_to hardlink_to touch mkdir"),
    ("file_access", "reaches for the home folder", "expanduser"),
    ("dynamic_code", "imports a file by path", "exec_module load_module run_module run_path"),
    (
        "process",
        "starts another process",
        """
        create_subprocess_exec create_subprocess_shell subprocess_exec subprocess_shell popen posix_spawn posix_spawnp
        spawnv_passfds execl execle execlp execv execve execvp execvpe spawnl spawnle spawnlp spawnv spawnve spawnvp""",
    ),
    ("detached_process", "leaves the server's process tree", "fork forkpty setsid setpgid"),
    ("system_library", "calls the system", "syscall prctl dlopen dlsym timer_create memfd_create ptrace"),
)
"""Called on anything: the receiver's type cannot be known."""

ATTRIBUTES: dict[str, Hit] = _table(
    (
        "dynamic_code",
        "reaches code through interpreter internals",
        """
        __subclasses__ __globals__ __code__ __closure__ __bases__ f_back f_globals f_locals tb_frame __builtins__
        __path__ __spec__ __loader__""",
    ),
)

REFLECTED_MODULES = words("""
    os sys builtins importlib socket subprocess time ctypes asyncio multiprocessing posix signal shutil logging
""")
"""`getattr` on these must use a literal name, which is then judged like the attribute itself; nor may
they be kept in a container, an attribute or an argument, where what is taken from them is not written down."""

PATCH_TARGETS: dict[str, str] = {
    **dict.fromkeys(("time", "datetime"), "clock_patch"),
    **dict.fromkeys(
        ("asyncio", "socket", "json", "uvicorn", "starlette", "tokenizers", "builtins", "os", "sys", "hashlib")
        + ("random",),
        "monkey_patch",
    ),
}
"""Modules whose attributes may not be assigned to -> reason class."""
PATCH_EXEMPT = words("sys.stdout sys.stderr sys.excepthook sys.dont_write_bytecode os.environ")
