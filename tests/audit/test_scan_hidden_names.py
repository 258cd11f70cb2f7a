"""The scan on code that names what it uses by a text, through another module or by flags, and on what is honest."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.audit import scan_workspace

SERVICE = 'argv: ["{python}", "-m", "runtime", "--model-dir", "{model_dir}", "--host", "{host}", "--port", "{port}"]\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "service.yaml").write_text(SERVICE)
    return tmp_path


def found(workspace: Path, source: str, *, name: str = "runtime/module.py") -> list[tuple[str, str]]:
    (workspace / name).parent.mkdir(parents=True, exist_ok=True)
    (workspace / name).write_bytes(source.encode())
    refusals = scan_workspace(workspace, allow_engines=[])
    return [(refusal.reason_class, refusal.text.partition(". Valid")[0]) for refusal in refusals]


@pytest.mark.parametrize("cookie", ["unicode_escape", "latin-1", "rot13", "utf-7", "utf-8-sig"])
@pytest.mark.parametrize(
    "line", ["# -*- coding: {} -*-\n", "\n# vim: set fileencoding={} :\n", "#!/bin/x\r# coding={}\r"]
)
def test_source_is_utf8_and_says_nothing_else(workspace: Path, line: str, cookie: str) -> None:
    number = 1 if line.startswith("# -*-") else 2
    first = found(workspace, line.format(cookie) + "x = 1\n")[0]
    text = f"runtime/module.py:{number}: declares the encoding {cookie!r}; source is UTF-8"
    assert first == ("dynamic_code", text)


@pytest.mark.parametrize("text", ["# coding: utf-8\n", "# -*- coding: UTF8 -*-\n", "x = 1\ny = 2\n# coding: latin-1\n"])
def test_an_encoding_that_is_the_files_own_passes(workspace: Path, text: str) -> None:
    assert found(workspace, text) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from uvicorn.importer import import_from_string\nimport_from_string('vllm:LLM')", "dynamic_code"),
        ("import uvicorn\nuvicorn.importer.import_from_string('subprocess:run')", "dynamic_code"),
        ("import uvicorn\nuvicorn.run('vllm.entrypoints:app')", "engine_import"),
        ("import uvicorn\nuvicorn.Config(app, loop='subprocess:run')", "process"),
        ("import uvicorn\nuvicorn.run(app, workers=4)", "process"),
        ("import uvicorn\nuvicorn.run(app, log_config='x.yaml')", "dynamic_code"),
        ("LOGGING = {'handlers': {'a': {'()': 'x'}}}", "dynamic_code"),
        ("import logging.config", "dynamic_code"),
        ("import pydoc\npydoc.locate('subprocess.run')", "dynamic_code"),
        ("import typing\ntyping.get_type_hints(f)", "dynamic_code"),
        ("import importlib\nload = importlib.import_module\n", "dynamic_code"),
        ("import numpy\nnumpy.load(f, allow_pickle=True)", "dynamic_code"),
        # templates
        ("import jinja2\njinja2.Template(text)", "dynamic_code"),
        ("from jinja2 import Environment as E\nE()", "dynamic_code"),
        ("import jinja2\nenv = jinja2\nenv.Environment()", "dynamic_code"),
        ("from jinja2.sandbox import Environment", "dynamic_code"),
        ("from jinja2.nativetypes import NativeEnvironment", "dynamic_code"),
        ("from jinja2 import FileSystemLoader", "dynamic_code"),
        ("class E(Sandbox):\n    def is_safe_attribute(self, *given):\n        return True", "dynamic_code"),
        ("import numpy\nenvironment.globals['np'] = numpy", "dynamic_code"),
        ("import torch\nenvironment.filters['x'] = torch.ops", "dynamic_code"),
        ("import torch\ntemplate.render(messages=m, torch=torch)", "dynamic_code"),
        ("from jinja2.sandbox import SandboxedEnvironment as S\nS(extensions=['a.b'])", "dynamic_code"),
        # through another module
        ("import logging\nlogging.os", "dynamic_code"),
        ("from logging import os", "dynamic_code"),
        ("from .build import subprocess", "dynamic_code process"),
        ("from . import build\nbuild.subprocess.run(['id'])", "dynamic_code"),
        ("import runtime.build as b\nb.subprocess.run(['id'])", "dynamic_code process"),
        ("import logging\nlogging.os.system('id')", "dynamic_code process"),
        ("import logging as l\nx = l\nx.os.environ.copy()", "dynamic_code environment_probe"),
        ("import torch\ntorch.os.kill(1, 9)", "dynamic_code process"),
        # kept where it cannot be followed
        ("import os\n[os][0].listdir('.')", "dynamic_code"),
        ("import os\nclass A:\n    def __init__(self):\n        self.o = os", "dynamic_code"),
        ("import subprocess as s\ndef f():\n    return s", "dynamic_code process"),
        ("import socket\nTABLE = {'a': socket}", "dynamic_code"),
        ("x.y[0].posix_spawn('/x', [], {})", "process"),
        ("loop.subprocess_exec(f, 'id')", "process"),
        ("library.prctl(1)", "system_library"),
        # connections by classes that make one
        ("from multiprocessing.connection import Client", "outbound_connection"),
        ("import logging.handlers", "outbound_connection"),
        ("import logging\nlogging.handlers.SocketHandler('h', 1)", "outbound_connection"),
        ("from torch.distributed import TCPStore\nTCPStore('h', 1)", "outbound_connection"),
        ("import asyncio\nasyncio.streams.open_connection('h', 1)", "outbound_connection"),
        ("init(method='tcp://127.0.0.1:9')", "outbound_connection"),
        ("from starlette.testclient import TestClient", "outbound_connection"),
        # processes by a library
        ("import multiprocessing", "process"),
        ("import torch\ntorch.multiprocessing.spawn(f)", "dynamic_code process"),
        ("import torch.utils.cpp_extension", "dynamic_code"),
        ("from torch.utils.cpp_extension import load", "dynamic_code"),
        ("from concurrent.futures import ProcessPoolExecutor as P\nP()", "process"),
        ("import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor()", "process"),
        ("import loky", "process"),
        ("from torch.utils.data import DataLoader", "process"),
        ("from asyncio.subprocess import create_subprocess_exec", "process"),
        ("import asyncio\nasyncio.subprocess.create_subprocess_exec('id')", "dynamic_code process"),
    ],
)
def test_what_is_refused(workspace: Path, source: str, expected: str) -> None:
    assert {reason for reason, _ in found(workspace, source)} == set(expected.split()), found(workspace, source)


@pytest.mark.parametrize(
    "source",
    [
        "from jinja2 import TemplateError\nfrom jinja2.sandbox import ImmutableSandboxedEnvironment as E\n"
        "import jinja2.ext\ne = E(trim_blocks=True, extensions=[jinja2.ext.loopcontrols])\n"
        "def fail(text): raise TemplateError(text)\ne.globals['raise_exception'] = fail\n"
        "e.globals['now'] = lambda form: form\ne.from_string(text).render(messages=messages, tools=None)",
        "import uvicorn\nuvicorn.run(app, host=h, port=p, log_config=None, loop='uvloop', http='httptools', workers=1)",
        "import uvicorn\nuvicorn.run('runtime.http:app')",
        "import signal\nsignal.signal(signal.SIGTERM, stop)\nsignal.set_wakeup_fd",
        "import socket\nsocket.socket()",
        "import torch\ntorch.signal.windows.hann(4)",
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(1)",
        "from . import placement\nplacement.configure_threads(2)",
        "class Link:\n    def f(self):\n        return self.socket, self.os, self.signal.code",
        "import time, os\nclock = time\ndef f(o=os):\n    return hasattr(o, 'x'), hasattr(os, 'sched_getaffinity')",
        "import numpy\nnumpy.load(path, allow_pickle=False)",
        "import logging\nlogging.StreamHandler()\nURL = 'http://example.invalid/docs'",
        "import platform\nplatform.system()",
    ],
)  # fmt: skip
def test_what_honest_code_names_passes(workspace: Path, source: str) -> None:
    refused = found(workspace, source)
    # `signal.set_wakeup_fd` writes to a descriptor at every signal: nothing honest needs it
    assert [text for _, text in refused if "set_wakeup_fd" not in text] == []


def test_the_runtimes_own_tests_may_use_processes(workspace: Path) -> None:
    assert found(workspace, "import multiprocessing\nimport logging.handlers\n", name="tests/test_x.py") == []


@pytest.mark.parametrize(
    "flag",
    ["-wrapper", "-specs=x", "-fplugin=./x.so", "-B.", "-B", "@flags", "-include", "-fuse-ld=gold", "-Wl,--wrap=x",
     "-Wa,x", "-Xlinker", "-I/usr/include/python3", "-I..", "-DRUN=system", "-lcurl", "-l:x.so", "-x",
     "-fdump-tree-all", "-fprofile-use=x", "-T", "-nostdlib", "-ffile-prefix-map=a=b"],
)  # fmt: skip
def test_a_compiler_is_given_flags_of_a_list(workspace: Path, flag: str) -> None:
    expected = [("build_flag", f"runtime/native/x.cpp:1: adds the compiler flag {flag!r}")]
    assert found(workspace, f"// flags: -O3 {flag}\nint x;\n", name="runtime/native/x.cpp") == expected
    (workspace / "runtime" / "native" / "x.cpp").unlink()
    build = f"import subprocess\nsubprocess.run(['g++', '-O3', {flag!r}, 'a.cpp'])\n"
    assert found(workspace, build, name="runtime/build.py") == [
        ("build_flag", f"runtime/build.py:2: adds the compiler flag {flag!r}")
    ]
    (workspace / "runtime" / "build.py").unlink()
    service = SERVICE + f'build: ["g++", "-O3", "{flag}", "runtime/native/x.cpp"]\n'
    assert found(workspace, service, name="service.yaml") == [
        ("build_flag", f"service.yaml: adds the compiler flag {flag!r}")
    ]


FLAGS = (
    "-O3 -Ofast -march=native -mtune=znver3 -mavx512f -mamx-tile -mprefer-vector-width=512 -std=c++20 -std=gnu++17 "
    "-fPIC -shared -Wall -Wextra -Wno-maybe-uninitialized -Werror=return-type -fopenmp -ffast-math -fno-math-errno "
    "-funroll-loops -fno-exceptions -fno-rtti -ffp-contract=fast -fvisibility=hidden -flto -flto=auto -pthread -lm "
    "-lgomp -DROWS=4 -D_GNU_SOURCE -DNDEBUG -DSCALE=0.5f -Iruntime/native -Wl,-O1 -Wl,-z,now -g0 -pipe -falign-loops=32"
)


def test_flags_that_choose_code_pass(workspace: Path) -> None:
    assert found(workspace, f"// flags: {FLAGS}\nint x;\n", name="runtime/native/x.cpp") == []
    source = "parser.add_argument('--native')\n" + f"FLAGS = {tuple(FLAGS.split())!r}\n"
    assert found(workspace, source, name="runtime/build.py") == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#include <Python.h>", "native_code"),
        ("extern \"C\" int PyRun_SimpleString(const char*);", "native_code"),
        ("extern \"C\" int go(const char*) __asm__(\"system\");", "native_code"),
        ("void f() { asm(\".byte 0x0f\\n\\t.byte 0x05\"); }", "native_code"),
        ("void f() { asm volatile(\"call *%0\" : : \"r\"(p)); }", "native_code"),
        ("#pragma redefine_extname go system", "native_code"),
        ("int go(const char*) __attribute__((weakref(\"system\")));", "native_code"),
        ("#define GO dlsym\n", "system_library"),
        ("auto p = &execve;", "process"),
        ("#define CALL(n) syscall(n)", "native_code"),
        ("auto s = syscall;", "native_code"),
        ("void f() { sys\\\ntem(\"id\"); }", "process"),
        ("#include \"../../secret.h\"", "file_access"),
        ("#include \"/etc/passwd\"", "file_access"),
        ("#include <fcntl.h>", "file_access"),
        ("void f() { ptrace(0); }", "process"),
        ("void f(void* p) { mmap(p, 1, PROT_READ | PROT_EXEC, 0, 0, 0); }", "native_code"),
        ("#embed \"x\"", "blob"),
    ],
)  # fmt: skip
def test_native_code_names_no_other_way_out(workspace: Path, source: str, expected: str) -> None:
    assert {reason for reason, _ in found(workspace, source, name="runtime/native/k.cpp")} >= {expected}


def test_native_code_that_computes_passes(workspace: Path) -> None:
    source = (
        "// flags: -O3\n#include <immintrin.h>\n#include \"panels.h\"\n#define KERNEL(n) kernel_##n\n"
        "namespace Pyramid { struct Python {}; }\n"
        "inline void wait() { asm volatile(\"pause\"); asm volatile(\"\" ::: \"memory\"); }\n"
        "inline void load(const void* p) { asm volatile(\"ldtilecfg (%0)\" :: \"r\"(p)); }\n"
        "const char* text = \"system(open) dlsym PyRun_x\";\nint system_rows = 0, opened = 1;\n"
    )  # fmt: skip
    assert found(workspace, source, name="runtime/native/k.cpp") == []


def test_a_line_that_continues_keeps_its_number(workspace: Path) -> None:
    source = "#define A 1 + \\\n  2 + \\\n  3\nvoid f() { popen(0, 0); }\n"
    assert found(workspace, source, name="runtime/native/k.cpp") == [
        ("process", "runtime/native/k.cpp:4: starts or touches another process (popen)")
    ]
