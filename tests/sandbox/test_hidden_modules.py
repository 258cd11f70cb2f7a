"""Hidden packages: not importable, not found, and closed when reached by path."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from vibeserve.sandbox.layout import interpreter_prefixes, site_folders, visible_entries

PROBE = """
import importlib.metadata, importlib.util, json, sys
{before}
def state(name):
    found = importlib.util.find_spec(name)
    try:
        __import__(name)
    except ImportError:
        return ["hidden", found is None]
    except PermissionError:
        return ["closed", False]
    return ["imported", False]
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({{"engine": state("engine"), "helper": state("helper"), "version": version("engine-dist"),
                  "kept": version("helper")}}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with an engine (package, other distribution name) and a helper (single module)."""
    root = tmp_path_factory.mktemp("env")
    venv.create(root, symlinks=True, with_pip=False)
    site = next(root.glob("lib/python3*/site-packages"))
    (site / "engine").mkdir()
    (site / "engine" / "__init__.py").write_text("")
    _metadata(site / "engine_dist-1.0.dist-info", "engine-dist", "engine/__init__.py,,\n")
    (site / "helper.py").write_text("")
    _metadata(site / "helper-2.0.dist-info", "helper", "helper.py,,\n")
    return root


def _metadata(folder: Path, name: str, record: str) -> None:
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "RECORD").write_text(record)


def test_a_hidden_engine_is_not_found_and_the_rest_is(make_wall, tmp_path, environment: Path) -> None:
    seen = _seen(make_wall(python=environment / "bin" / "python", hidden_modules=("engine",)), tmp_path)
    assert seen == {"engine": ["hidden", True], "helper": ["imported", False], "version": None, "kept": "1.0"}


def test_a_hidden_single_module_is_not_found(make_wall, tmp_path, environment: Path) -> None:
    seen = _seen(make_wall(python=environment / "bin" / "python", hidden_modules=("helper",)), tmp_path)
    assert (seen["engine"], seen["helper"], seen["kept"]) == (["imported", False], ["hidden", True], None)


def test_nothing_is_hidden_unless_named(make_wall, tmp_path, environment: Path) -> None:
    seen = _seen(make_wall(python=environment / "bin" / "python"), tmp_path)
    assert seen == {"engine": ["imported", False], "helper": ["imported", False], "version": "1.0", "kept": "1.0"}


def test_the_real_folder_on_the_path_does_not_help(make_wall, tmp_path, environment: Path) -> None:
    site = next(environment.glob("lib/python3*/site-packages"))
    wall = make_wall(python=environment / "bin" / "python", hidden_modules=("engine",))
    for before in (
        f"sys.path.insert(0, {str(site)!r})",
        f"sys.path.insert(0, {str(site).replace('/lib/', '/lib64/')!r})",
    ):
        assert _seen(wall, tmp_path, before=before)["engine"][0] in ("hidden", "closed")


def test_the_framework_itself_can_be_hidden(make_wall, answer) -> None:
    import vibeserve

    script = f"""
        import importlib.util, json, os
        print(json.dumps([importlib.util.find_spec("vibeserve") is None, os.access({vibeserve.__file__!r}, os.R_OK)]))
    """
    is_hidden, _ = answer(script, wall=make_wall(hidden_modules=("vibeserve",)))
    assert is_hidden


def _seen(wall, tmp_path: Path, *, before: str = ""):
    import json

    from vibeserve.sandbox import run

    done = run([str(wall.python), "-c", PROBE.format(before=before)], wall=wall, log=tmp_path / "log", timeout_s=60)
    assert done.returncode == 0, done.log_tail
    return json.loads(done.log_tail.splitlines()[-1])


@pytest.mark.parametrize(
    "name",
    ["_editable_impl_vibeserve.pth", "__editable__.vibeserve-0.1.0.pth", "__editable___vibeserve_0_1_0_finder.py"],
)
def test_editable_installs_are_hidden_too(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "other.py").touch()
    assert visible_entries(tmp_path, ("vibeserve",)) == (tmp_path / "other.py",)


def test_native_libraries_go_with_their_package(tmp_path: Path) -> None:
    for name in ("llama_cpp", "llama_cpp_python.libs", "numpy.libs"):
        (tmp_path / name).mkdir()
    (tmp_path / "llama_cpp.cpython-311-x86_64-linux-gnu.so").touch()
    _metadata(tmp_path / "llama_cpp_python-0.3.dist-info", "llama_cpp_python", "llama_cpp/__init__.py,,\n")
    visible = visible_entries(tmp_path, ("llama_cpp",))
    assert visible is not None
    assert [entry.name for entry in visible] == ["llama_cpp_python.libs", "numpy.libs"]


def test_prefixes_are_read_from_the_tree(environment: Path) -> None:
    prefixes = interpreter_prefixes(environment / "bin" / "python")
    assert environment in prefixes
    base = Path(sys.base_prefix)
    assert base in prefixes or base.is_relative_to("/usr")
    assert next(environment.glob("lib/python3*/site-packages")) in site_folders(environment / "bin" / "python")
