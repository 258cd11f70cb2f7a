"""Import one file of a target's folder. Files there may import each other by their plain names."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from vibeserve.core.documents import digest_of
from vibeserve.errors import SpecError


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
    with _FaultsOf(path), _siblings_importable(path.parent):
        found.loader.exec_module(module)
    return module


def _module_name(path: Path) -> str:
    return f"vibeserve_target_{digest_of(str(path.parent))[:12]}_{path.stem}"


class _FaultsOf:
    """Somebody's file: whatever it raises inside the block is a fault of that file, and is said as one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            sys.modules.pop(_module_name(self._path), None)
        if isinstance(error, Exception):
            text = f"{_where(error, self._path)}: {type(error).__name__}: {error}"
            raise SpecError(text, hint="docs/contract.md") from error


@contextmanager
def _siblings_importable(folder: Path) -> Iterator[None]:
    """`import reference` means this folder's file inside the block, and no other target's afterwards."""
    names = {path.stem for path in folder.glob("*.py")}
    kept = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # a target's folder is the user's: nothing is left in it
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(kept)


def _where(error: Exception, path: Path) -> str:
    """file:line of the fault: of the syntax error, else of the deepest frame in the folder."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == path.parent
    ]
    return lines[-1] if lines else str(path)
