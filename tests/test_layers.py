"""The shape of the tree: layers, sizes, imports, exceptions. Whatever is listed by name has its reason beside it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "vibeserve"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "contract"),
    ("core",),
    ("spec", "progress", "arguments"),
    ("hardware", "weights", "skills", "sandbox", "journal", "checkpoint", "workloads", "schedules", "prompts"),
    ("modalities",),
    ("config",),
    ("hosts", "plan", "lease", "rules"),
    ("service", "client", "seeds", "planning", "policies", "profiles"),
    ("agents",),
    ("accuracy", "benchmark", "audit", "baselines", "control"),
    ("roles", "rivals"),
    ("seed_rival", "remote"),
    ("rounds", "resolution", "results", "decision_study", "live_audits", "joined"),
    ("golden", "steered"),
    ("certification",),
    ("synthesis", "reverification"),
    ("recordings", "status"),
    ("artifact", "report"),
    ("build", "comparison", "initialise", "exploits"),
    ("sweeps", "loopback", "upgrading", "host_loopback", "ablation"),
    ("crash_loop",),
    ("cli",),
)
"""from the ground up; a module imports from lower layers only"""

SAME_LAYER: dict[tuple[str, str], str] = {
    ("report", "artifact"): "a page is rendered from a manifest",
    ("artifact", "report"): "packaging writes the page that an artifact ships",
}
"""(importer, imported) -> why it is right"""

HEAVY = {
    "accelerate",
    "aiohttp",
    "cuda",
    "gguf",
    "httpx2",
    "hydra",
    "invoke",
    "jinja2",
    "jsonschema",
    "llguidance",
    "numpy",
    "omegaconf",
    "openai",
    "rich",
    "safetensors",
    "starlette",
    "tokenizers",
    "torch",
    "transformers",
    "uvicorn",
    "yaml",
}
"""imported inside functions only"""

IMPORTED_LATE: dict[str, str] = {
    "config/plugins.py": "subclasses of Hydra's; only imported by a function that composes",
    "cli/verbs.py": "the invoke collection; only imported by tasks.py",
    "modalities/image/network.py": "arithmetic; only imported by a function that loads the reference",
    "modalities/image/semantic.py": "part of it",
    "modalities/image/pixels.py": "arithmetic; only imported by a function that loads the reference",
    "modalities/image_tokens/network.py": "arithmetic; only imported by a function that loads the reference",
    "modalities/image_tokens/pixels.py": "arithmetic; only imported by a function that loads the reference",
}
"""files whose heavy imports are at the top, because nothing imports them before they are needed"""

MAX_FUNCTION_LINES, MAX_FILE_LINES = 60, 500
SOFT_FUNCTION_LINES, SOFT_FILE_LINES = 40, 300
SOFT_SHARE = 0.05
"""share of functions and of files that may lie between the soft and the hard limit"""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def package_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def product_files() -> list[Path]:
    """Everything that ships: the package, the scaffolds, the components, tasks.py."""
    folders = [PACKAGE, ROOT / "templates", ROOT / "skills"]
    return [*(path for folder in folders for path in sorted(folder.rglob("*.py"))), ROOT / "tasks.py"]


def module_of(path: Path) -> str:
    """Name of the layered module that `path` belongs to; empty for the package's own `__init__`."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, layered module) of every import of this package in `path`, at any depth."""
    for node in ast.walk(tree_of(path)):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module == "vibeserve":
            names = [f"vibeserve.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "vibeserve" and len(parts) > 1 and not parts[1].startswith("__"):
                yield node.lineno, parts[1]


LAYER_OF = {module: number for number, layer in enumerate(LAYERS) for module in layer}


def test_every_module_has_a_layer() -> None:
    missing = {module_of(path) for path in package_files()} - set(LAYER_OF) - {""}
    assert missing == set(), "name the layer of a new module in LAYERS"


def test_the_page_on_architecture_names_every_module() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("## Layers")[1].split("## ")[0]
    assert set(re.findall(r"`([a-z_]+)`", table)) == set(LAYER_OF)


def test_imports_go_downwards_only() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {module_of(path)} (layer {LAYER_OF[module_of(path)]}) imports "
        f"{module} (layer {LAYER_OF.get(module, '?')})"
        for path in package_files()
        if module_of(path)
        for line, module in imported_modules(path)
        if module != module_of(path)
        and LAYER_OF.get(module, len(LAYERS)) >= LAYER_OF[module_of(path)]
        and (module_of(path), module) not in SAME_LAYER
    ]
    assert wrong == []


def test_every_exception_of_the_layers_is_used() -> None:
    used = {(module_of(path), module) for path in package_files() for _, module in imported_modules(path)}
    assert set(SAME_LAYER) <= used


def functions_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", (node.end_lineno or 0) - node.lineno + 1


def test_no_function_is_longer_than_the_hard_limit_and_few_than_the_soft_one() -> None:
    sizes = dict(item for path in product_files() for item in functions_of(path))
    assert {name: size for name, size in sizes.items() if size > MAX_FUNCTION_LINES} == {}
    long = [name for name, size in sizes.items() if size > SOFT_FUNCTION_LINES]
    assert len(long) <= SOFT_SHARE * len(sizes), long


def test_no_file_is_longer_than_the_hard_limit_and_few_than_the_soft_one() -> None:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in product_files()}
    assert {name: size for name, size in sizes.items() if size > MAX_FILE_LINES} == {}
    long = [name for name, size in sizes.items() if size > SOFT_FILE_LINES]
    assert len(long) <= SOFT_SHARE * len(sizes), long


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Catches everything and does not raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {kind.id if isinstance(kind, ast.Name) else "" if kind is not None else "bare" for kind in kinds}
    reraises = any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))
    return bool(names & {"bare", "Exception", "BaseException"}) and not reraises


def test_nothing_swallows_every_exception() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in product_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ExceptHandler) and is_broad(node)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept: pass", True),
        ("try: f()\nexcept (ValueError, BaseException): g()", True),
        ("try: f()\nexcept BaseException:\n  g()\n  raise", False),
        ("try: f()\nexcept OSError: pass", False),
    ],
)
def test_the_check_itself_tells_broad_from_narrow(source: str, expected: bool) -> None:
    (handler,) = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ExceptHandler)]
    assert is_broad(handler) is expected


def test_nothing_is_left_to_do() -> None:
    words = ("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")
    wrong = [
        f"{path.relative_to(ROOT)}: {word}" for path in product_files() for word in words if word in path.read_text()
    ]
    assert wrong == []


def top_level_imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, first part) of imports that run when the file is imported; those under TYPE_CHECKING do not."""
    pending = list(tree_of(path).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.split(".")[0]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            pending += [*node.body, *node.orelse]
        elif isinstance(node, ast.Try | ast.With | ast.ClassDef):
            pending += node.body


def dotted(path: Path) -> str:
    """`vibeserve.config.check` of `vibeserve/config/check.py`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_files(path: Path) -> Iterator[str]:
    """Dotted names of what `path` imports of this package, at any depth of its code; names that are no files too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def child_files() -> frozenset[str]:
    """Files that only child processes run: a `__main__` guard and no importer, and what only such files import."""
    files = {dotted(path): path for path in package_files()}
    importers: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for imported in set(imported_files(path)) & set(files):
            importers[imported].add(name)
    guarded = {
        name
        for name, path in files.items()
        if any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree_of(path).body)
    }
    child = {name for name in guarded if not importers[name]}
    while more := {name for name in files if name not in child and importers[name] and importers[name] <= child}:
        child |= more
    return frozenset(child)


def test_heavy_modules_are_imported_inside_functions() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in package_files()
        if str(path.relative_to(PACKAGE)) not in IMPORTED_LATE and dotted(path) not in child_files()
        for line, name in top_level_imports(path)
        if name in HEAVY
    ]
    assert wrong == []


def test_importing_what_a_run_needs_loads_nothing_heavy() -> None:
    """The same promise, kept by the interpreter: importing every public module that is no child program."""
    modules = [
        name for layer in LAYERS for name in layer if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists()
    ]
    code = "import sys\n" + "\n".join(f"import vibeserve.{name}" for name in modules)
    code += f"\nprint(*sorted({{name.split('.')[0] for name in sys.modules}} & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_only_config_knows_hydra() -> None:
    wrong = {
        str(path.relative_to(ROOT))
        for path in package_files()
        if module_of(path) != "config"
        for node in ast.walk(tree_of(path))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "hydra")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "hydra" for alias in node.names))
    }
    assert wrong == set()
