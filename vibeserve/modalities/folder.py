"""Import one file of a target's folder. Files there may import each other by their plain names."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType

from vibeserve.core.documents import digest_of
from vibeserve.errors import ContractError, SpecError, VibeServeError


def load_file(path: Path) -> ModuleType:
    """The module at `path`, once per process. SpecError with file and line when it cannot be imported."""
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    found = spec_from_file_location(name, path)
    if found is None or found.loader is None or not path.is_file():
        raise SpecError(f"{path}: no such file", hint="docs/contract.md")
    module = module_from_spec(found)
    sys.modules[name] = module
    try:
        with BlamedFile(path), _siblings_importable(path.parent):
            found.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _module_name(path: Path) -> str:
    return f"vibeserve_target_{digest_of(str(path.parent))[:12]}_{path.stem}"


class BlamedFile:
    """Context of somebody's file: what it raises inside comes out as one ContractError with file and line.

    Calling exit is no way out of a judgement either. The framework's own errors pass as they are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, VibeServeError) or not isinstance(error, Exception | SystemExit):
            return
        raise ContractError(blame(error, self._path), hint="docs/contract.md") from error


@contextmanager
def _siblings_importable(folder: Path) -> Iterator[None]:
    """`import reference` means this folder's file inside the block, and no other target's afterwards."""
    names = {path.stem for path in folder.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    finder = _Siblings(folder, names)
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, str(folder))
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a target's folder is the user's: nothing is left in it
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(folder))
        sys.meta_path.remove(finder)
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(kept)


class _Siblings(MetaPathFinder, Loader):
    """A sibling's plain name stands for the very module that `load_file` gives: its classes exist once."""

    def __init__(self, folder: Path, names: set[str]) -> None:
        self._folder = folder
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in self._names and not path else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return load_file(self._folder / f"{spec.name}.py")

    def exec_module(self, module: ModuleType) -> None:
        """It has run already."""


def blame(error: BaseException, path: Path) -> str:
    """`file:line: type: message` of what the file at `path` raised."""
    return f"{_where(error, path)}: {type(error).__name__}: {error}"


def _where(error: BaseException, path: Path) -> str:
    """file:line of the fault: of the syntax error, else of the deepest frame in the folder."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(path.parent)
    ]
    return lines[-1] if lines else str(path)
