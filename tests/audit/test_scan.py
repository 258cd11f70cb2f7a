"""The static scan by what it refuses, what it lets pass, and how a refusal reads."""

from __future__ import annotations

import py_compile
import shutil
from pathlib import Path

import pytest

from vibeserve.audit import purge_bytecode, scan_workspace
from vibeserve.core.paths import data_dir
from vibeserve.skills import Skill, assemble, compose_scaffold, load_skills, resolve, write_scaffold
from vibeserve.spec import Modality, Model

SERVICE = 'argv: ["{python}", "-m", "runtime", "--model-dir", "{model_dir}", "--host", "{host}", "--port", "{port}"]\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "__init__.py").write_text("")
    (tmp_path / "service.yaml").write_text(SERVICE)
    return tmp_path


def classes(workspace: Path, *, allow_engines: tuple[str, ...] = ()) -> set[str]:
    return {refusal.reason_class for refusal in scan_workspace(workspace, allow_engines=allow_engines)}


def classes_of(workspace: Path, source: str, *, name: str = "runtime/module.py") -> set[str]:
    path = workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return classes(workspace)


def test_an_empty_runtime_is_clean(workspace: Path) -> None:
    assert scan_workspace(workspace, allow_engines=[]) == []


SKILLS = load_skills(data_dir("skills"))


@pytest.mark.parametrize("skill", [pytest.param(skill, id=skill.name) for skill in SKILLS if skill.card is not None])
def test_every_component_passes(skill: Skill, tmp_path: Path) -> None:
    assert skill.card is not None
    conditions = skill.card.conditions
    model = Model(
        architecture=next(iter(conditions.architectures), "llama"),
        modality=Modality(next(iter(conditions.modalities), "text")),
    )
    scaffold, workspace = write_scaffold(compose_scaffold(model), tmp_path / "scaffold"), tmp_path / "workspace"
    assemble(scaffold, components=list(resolve([skill.name], SKILLS)), parameters={}, destination=workspace)
    assert scan_workspace(workspace, allow_engines=[]) == []


@pytest.mark.parametrize(
    "scaffold",
    [
        "runtime/text", "runtime/custom", "runtime/text_wrapped", "runtime/text_hybrid", "runtime/speech",
        "runtime/image",
    ],
)
def test_every_scaffold_passes(scaffold: str) -> None:
    assert scan_workspace(data_dir("templates") / scaffold, allow_engines=["transformers"]) == []


@pytest.mark.parametrize("kind", ["custom", "embedding"])
def test_what_a_new_target_starts_from_passes(kind: str, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(data_dir("templates") / "runtime" / "custom", workspace)
    shutil.copytree(data_dir("templates") / "target" / kind / "scaffold", workspace, dirs_exist_ok=True)
    assert scan_workspace(workspace, allow_engines=[]) == []


def test_a_refusal_names_file_line_fault_and_what_is_valid(workspace: Path) -> None:
    (workspace / "runtime" / "fast.py").write_text("import torch\nimport vllm\n")
    (refusal,) = scan_workspace(workspace, allow_engines=[])
    assert (refusal.gate, refusal.reason_class, refusal.file) == ("scan", "engine_import", "runtime/fast.py:2")
    assert refusal.text == (
        "runtime/fast.py:2: imports the engine vllm. Valid: write the forward pass with torch and the seams of "
        "runtime/, or declare the engine in the target's allow_engines"
    )


def test_a_declared_engine_is_allowed_and_no_other(workspace: Path) -> None:
    (workspace / "runtime" / "fast.py").write_text("import vllm\n")
    (workspace / "requirements.lock").write_text("vllm==0.32.0\ntorch==2.13.0\n")
    assert classes(workspace, allow_engines=("vllm",)) == set()
    assert classes(workspace, allow_engines=("sglang",)) == {"engine_import"}


@pytest.mark.parametrize(
    "source",
    [
        "from transformers import AutoModel",
        "import importlib\nimportlib.import_module('vllm.engine')",
        "from importlib import import_module as load\nload('sg' + 'lang')",
        "__import__('llama_cpp')",
        "import importlib.util as u\nu.find_spec('vllm')",
        "def f():\n    try:\n        import openvino_genai\n    except ImportError:\n        pass",
        "from vibeserve.core import nouns",
    ],
)
def test_engines_and_the_framework_are_found_however_they_are_imported(workspace: Path, source: str) -> None:
    assert classes_of(workspace, source) == {"engine_import"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import importlib\nimportlib.import_module(name)", "dynamic_code"),
        ("eval('1')", "dynamic_code"),
        ("run = exec\nrun('x = 1')", "dynamic_code"),
        ("import torch\ntorch.load('weights.pt')", "dynamic_code"),
        ("import marshal", "dynamic_code"),
        ("from os import *", "dynamic_code"),
        ("x = ().__class__.__bases__[0].__subclasses__()", "dynamic_code"),
        ("import os\ngetattr(os, name)()", "dynamic_code"),
        ("import base64\nbase64.b64decode('aGVsbG8=')", "dynamic_code"),
        ("import requests", "outbound_connection"),
        ("from urllib import request", "outbound_connection"),
        ("import http.client", "outbound_connection"),
        ("import asyncio\nasync def f():\n    await asyncio.open_connection('h', 1)", "outbound_connection"),
        ("import torch.hub", "outbound_connection"),
        ("import subprocess", "process"),
        ("import os as system_of\nsystem_of.system('ls')", "process"),
        ("import os\ngetattr(os, 'sys' + 'tem')('ls')", "process"),
        ("import os\nos.kill(1, 9)", "process"),
        ("import os\nos.setsid()", "detached_process"),
        ("open('/etc/passwd')", "file_access"),
        ("open(f'/proc/{pid}/mem', 'rb')", "file_access"),
        ("p = '/'.join(['/dev', 'shm', 'x'])", "file_access"),
        ("open('../../golden.json')", "file_access"),
        ("from pathlib import Path\nPath.home()", "file_access"),
        ("from pathlib import Path\nPath(__file__).parent.parent.parent", "file_access"),
        ("import os\nos.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))", "file_access"),
        ("open('notes.txt', 'a')", "file_access"),
        ("from pathlib import Path\nPath('x').open('w')", "file_access"),
        ("import sqlite3", "file_access"),
        ("import os\nos.environ['PYTEST_CURRENT_TEST']", "environment_probe"),
        ("import os\nos.getenv('VIBESERVE_RUN')", "environment_probe"),
        ("import os\ndict(os.environ)", "environment_probe"),
        ("agent = request.headers['User-Agent']", "environment_probe"),
        ("import time\ntime.time = lambda: 0", "clock_patch"),
        ("import time\nsetattr(time, 'perf_counter', f)", "clock_patch"),
        ("import json\njson.dumps = f", "monkey_patch"),
        ("import sys\nsys.path.insert(0, 'x')", "import_hook"),
        ("import sys\nsys.modules['torch'] = x", "import_hook"),
        ("import ctypes\nctypes.CDLL(None).getpid()", "system_library"),
        ("import ctypes\nctypes.CDLL('libc.so.6')", "system_library"),
        ("import pandas", "foreign_import"),
        ("from tests import helper", "foreign_import"),
        ("import os\nos.nice(-20)", "scheduling"),
        ("import os\nos._exit(0)", "exit_status"),
        # under another name
        ("import os\no = os\no.system('ls')", "process"),
        ("import os\na, b = os, 1\na.setsid()", "detached_process"),
        ("import os\ndef f(o=os):\n    o.kill(1, 9)", "process"),
        ("import time\nclock = watch = time\nwatch.time = f", "clock_patch"),
        ("from importlib import import_module\nload = import_module\nload(name)", "dynamic_code"),
        # not written down
        ("import os\ncall = getattr(os, name)", "dynamic_code"),
        ("import os\nreach = getattr\nreach(os, name)", "dynamic_code"),
        ("import os\nnext(map(getattr, [os], names))", "dynamic_code"),
        ("import os\nos.__dict__['system']", "dynamic_code"),
        ("import operator, os\noperator.attrgetter('system')(os)", "dynamic_code"),
        ("import operator, os\noperator.methodcaller(name)(os)", "dynamic_code"),
        ("TEXT = '" + "x" * 9000 + "'", "blob"),
        ("TABLE = [" + "1, " * 600 + "]", "blob"),
        ("def broken(:", "syntax"),
    ],
)
def test_what_is_refused(workspace: Path, source: str, expected: str) -> None:
    (workspace / "tests").mkdir()
    assert classes_of(workspace, source) == {expected}


@pytest.mark.parametrize(
    "source",
    [
        "from functools import lru_cache\n@lru_cache\ndef encode(prompt): ...",
        "REPLIES = {}\ndef f(prompt):\n    if prompt in REPLIES:\n        return REPLIES[prompt]",
        "class A:\n    def f(self, body):\n        key = hash(body['prompt'])\n        return self.cache.get(key)",
        "import hashlib\ndef f(x, prompt, text):\n    key = hashlib.md5(prompt.encode()).digest()\n    x[key] = text",
        "def f(self, request, output):\n    self.done[tuple(request.prompt_ids)] = output",
        "import functools\nfast = functools.lru_cache(None)(generate)\nslow = functools.cache(model.generate)",
    ],
)
def test_replies_kept_by_prompt_are_refused(workspace: Path, source: str) -> None:
    assert classes_of(workspace, source) == {"reply_cache"}


@pytest.mark.parametrize(
    "source",
    [
        # state by request or slot, KV blocks by block hash, lengths, cached tables
        "class A:\n    def f(self, request, text):\n        self.replies[request.request_id] = text",
        "class A:\n    def f(self, ids):\n        self.blocks[hash(tuple(ids[:16]))] = self.allocate()",
        "def f(prompt_ids):\n    return {'prompt_tokens': len(prompt_ids)}",
        "from functools import lru_cache\n@lru_cache\ndef rope(head_dim, theta): ...",
        "from functools import cache\n@cache\ndef token_text(token_id): ...",
        # names that look like forbidden ones
        "import torch\nmodel = torch.compile(model.eval())\nimport re\nre.compile('x')",
        "def build(compile=True):\n    return compile",
        "ROUTE = '/v1/completions'\nHEALTH = '/health'",
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ.get('LANG')",
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
        "import ctypes, mmap\nctypes.CDLL(None).madvise(a, b, mmap.MADV_HUGEPAGE)",
        "from pathlib import Path\nimport ctypes\nctypes.CDLL(str(Path(__file__).parents[1] / 'build/libk.so'))",
        "from pathlib import Path\ndef f(model_dir: Path):\n    return (model_dir / 'bf16/config.json').read_text()",
        "open('/proc/self/statm').read()",
        "import socket\nlistener = socket.socket()\nlistener.bind(('127.0.0.1', 0))",
        "import torch\ntorch.backends.mkldnn.enabled = True",
        "'''Reads /etc/passwd? No: this is text for people.'''",
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor",
        "import os\npath = os.path\npath.join('a', 'b')",
        "import operator\nsorted(items, key=operator.attrgetter('index'))",
        "def f(self):\n    return getattr(self, name), self.__dict__",
        "from . import spans\nfrom runtime.model import Model",
    ],
)
def test_what_honest_code_does_passes(workspace: Path, source: str) -> None:
    assert classes_of(workspace, source) == set()


def test_only_the_build_step_may_compile(workspace: Path) -> None:
    source = "import subprocess\nsubprocess.run(['g++', 'a.cpp'], check=True)\nopen('build/x', 'w')\n"
    assert classes_of(workspace, source, name="runtime/build.py") == set()
    assert classes_of(workspace, source, name="runtime/other.py") == {"process", "file_access"}
    (workspace / "runtime" / "other.py").unlink()
    assert classes_of(workspace, "import subprocess\nsubprocess.run('g++ a', shell=True)", name="runtime/build.py") == {
        "process"
    }


def test_the_runtimes_own_tests_may_use_test_tools_but_no_engine(workspace: Path) -> None:
    assert classes_of(workspace, "import pytest, subprocess, urllib.request\n", name="tests/test_api.py") == set()
    assert classes_of(workspace, "import transformers\n", name="tests/test_api.py") == {"engine_import"}


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit()",
        "raise SystemExit(0)",
        "import os\nleave = os._exit\nleave(0)",
        "import pytest\npytest.exit('done', returncode=0)",
        "import pytest\npytest.exit('done', code)",
        "def pytest_sessionfinish(session, exitstatus):\n    session.exitstatus = 0",
        "import atexit\natexit.register(f)",
    ],
)
def test_the_runtimes_own_tests_do_not_decide_how_they_end(workspace: Path, source: str) -> None:
    assert classes_of(workspace, source, name="tests/test_api.py") == {"exit_status"}


def test_a_test_run_without_its_model_may_stop_with_a_failure(workspace: Path) -> None:
    source = "import pytest\npytest.exit('no model', returncode=2)\npytest.exit('no model')\n"
    assert classes_of(workspace, source, name="tests/conftest.py") == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#include <sys/socket.h>", "outbound_connection"),
        ("void f() { system(\"ls\"); }", "process"),
        ("void f() { std::ifstream in(\"x\"); }", "file_access"),
        ("const char* p = \"/dev/shm/x\";", "file_access"),
        ("void f() { getenv(\"X\"); }", "environment_probe"),
        ("void f() { std::exit(0); }", "exit_status"),
        ("void f() { dlopen(\"x\", 1); }", "system_library"),
        ("void f() { asm volatile(\"syscall\"); }", "native_code"),
        ("void f() { syscall(SYS_connect, 1); }", "native_code"),
        ("__attribute__((constructor)) void f() {}", "native_code"),
    ],
)  # fmt: skip
def test_native_code_computes_only(workspace: Path, source: str, expected: str) -> None:
    assert classes_of(workspace, source, name="runtime/native/kernel.cpp") == {expected}


def test_honest_native_code_passes(workspace: Path) -> None:
    source = (
        "// fopen(\"x\") and system(\"y\") in a comment\n#include <immintrin.h>\n/* socket( */\n"
        "extern \"C\" void f(float* x) { syscall(SYS_arch_prctl, 0x1023, 18); madvise(x, 4096, 14); }\n"
    )  # fmt: skip
    assert classes_of(workspace, source, name="runtime/native/kernel.cpp") == set()


def test_files_that_are_no_source_are_refused(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    runtime = workspace / "runtime"
    (runtime / "weights.safetensors").write_bytes(b"x")
    (runtime / "notes.txt").write_bytes(b"a\0b")
    (runtime / "latin.txt").write_bytes(b"\xe9")
    (runtime / "large.json").write_text("1" * 300_000)
    (workspace / "sitecustomize.py").write_text("")
    (runtime / "extra.pth").write_text("import os")
    (workspace / "json.py").write_text("")
    (workspace / "numpy").mkdir()
    (runtime / "peek").symlink_to(tmp_path_factory.getbasetemp())
    (workspace / "fetch.sh").write_text("# curl in a comment\ncurl http://example.invalid\n")
    found = {(refusal.file, refusal.reason_class) for refusal in scan_workspace(workspace, allow_engines=[])}
    assert found == {
        ("runtime/weights.safetensors", "blob"),
        ("runtime/notes.txt", "blob"),
        ("runtime/latin.txt", "blob"),
        ("runtime/large.json", "blob"),
        ("sitecustomize.py", "import_hook"),
        ("runtime/extra.pth", "import_hook"),
        ("json.py", "import_hook"),
        ("numpy", "import_hook"),
        ("runtime/peek", "symlink"),
        ("fetch.sh:2", "outbound_connection"),
    }


def test_many_small_files_make_a_blob_too(workspace: Path) -> None:
    for number in range(10):
        (workspace / "runtime" / f"part{number}.txt").write_text("y" * 250_000)
    (refusal,) = scan_workspace(workspace, allow_engines=[])
    assert (refusal.reason_class, refusal.file) == ("blob", ".")


def test_byte_code_is_refused_and_can_be_purged(workspace: Path) -> None:
    source = workspace / "runtime" / "module.py"
    source.write_text("x = 1\n")
    # an unchecked-hash file is loaded whatever the source beside it says
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert classes(workspace) == {"blob"}
    assert purge_bytecode(workspace) == 1
    assert classes(workspace) == set()


def test_the_build_folder_is_not_read(workspace: Path) -> None:
    (workspace / "build").mkdir()
    (workspace / "build" / "libkernel.so").write_bytes(b"\x7fELF\0")
    assert scan_workspace(workspace, allow_engines=[]) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('argv: ["{python}", "-c", "import x"]', "entry_point"),
        ('argv: ["{python}", "-m", "runtime"]\nbuild: ["make"]', "entry_point"),
        ('argv: ["{python}", "-m", "runtime"]\nenv: {PYTHONPATH: x}', "import_hook"),
        ("[1, 2]", "syntax"),
        ("{", "syntax"),
    ],
)
def test_the_service_file_starts_the_runtime_and_nothing_else(workspace: Path, text: str, expected: str) -> None:
    (workspace / "service.yaml").write_text(text)
    assert classes(workspace) == {expected}


def test_one_refusal_per_place_and_reason(workspace: Path) -> None:
    (workspace / "runtime" / "a.py").write_text("import os\nos.system('a'); os.system('b')\nos.system('c')\n")
    found = [refusal.file for refusal in scan_workspace(workspace, allow_engines=[])]
    assert found == ["runtime/a.py:2", "runtime/a.py:3"]


def test_what_starts_ranks_passes_only_as_it_is_shipped(workspace: Path) -> None:
    shipped = (data_dir("skills") / "tensor-parallel/assets/runtime/ranks.py").read_text()
    assert classes_of(workspace, shipped, name="runtime/ranks.py") == set()
    assert "process" in classes_of(workspace, shipped + "\nsubprocess.run(['true'])\n", name="runtime/ranks.py")
    assert "process" in classes_of(workspace, shipped, name="runtime/module.py")
