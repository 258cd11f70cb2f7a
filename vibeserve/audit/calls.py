"""Rules on what code names, calls, assigns and spells out: connections, processes, files, clocks, internals."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.audit import forbidden, policy
from vibeserve.audit.names import Names, docstrings, fold
from vibeserve.audit.native import flag_faults
from vibeserve.audit.reach import check_hops, check_kept, check_reach, check_reflection

Found = tuple[int, str, str]
_SYSTEM_LIBRARY = re.compile(
    r"^(.*/)?lib([\w+-]+\.so\.\d[\d.]*|(c|dl|rt|util|pthread|resolv|curl|ssl|crypto|uv|python[\d.]*)\.(so|dylib))$"
)
"""versioned libraries are never a build step's; some are known by name without a version"""
_OPENERS = frozenset(
    {
        "open",
        "io.open",
        "io.FileIO",
        "os.open",
        "os.listdir",
        "os.scandir",
        "os.walk",
        "os.stat",
        "os.readlink",
        "pathlib.Path",
        "mmap.mmap",
        "numpy.load",
        "numpy.fromfile",
        "numpy.memmap",
        "numpy.loadtxt",
        "codecs.open",
        "glob.glob",
        "glob.iglob",
        "torch.from_file",
        "safetensors.safe_open",
        "safetensors.torch.load_file",
        "safetensors.numpy.load_file",
    }
)
_DECODERS = frozenset(
    {
        "base64.b64decode",
        "base64.b85decode",
        "base64.b32decode",
        "base64.b16decode",
        "base64.a85decode",
        "codecs.decode",
        "bytes.fromhex",
        "binascii.unhexlify",
        "binascii.a2b_base64",
        "zlib.decompress",
        "lzma.decompress",
        "bz2.decompress",
    }
)
_LOADERS = frozenset(
    {"ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.LoadLibrary", "ctypes.WinDLL", "ctypes.LibraryLoader"}
)


@dataclass(frozen=True, kw_only=True)
class FileContext:
    """`depth` = folders between the file and the workspace. `may_write` and `may_spawn` hold for the build step."""

    depth: int
    may_write: bool = False
    may_spawn: bool = False


def check_code(tree: ast.AST, names: Names, context: FileContext) -> Iterator[Found]:
    """Findings in one file of the runtime."""
    texts = docstrings(tree)
    rebound = _rebound(tree)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            yield from _check_climb(node, context)
        if isinstance(node, ast.Attribute | ast.Name):
            yield from check_reach(node, parents.get(id(node)), names)
            yield from check_hops(node, names) if isinstance(node, ast.Attribute) else check_kept(node, parents, names)
            is_own = _signals_itself(node, parents.get(id(node)), names)
            if not is_own and not (isinstance(node, ast.Name) and node.id in rebound):
                yield from _check_reference(node, names, context)
            if names.dotted(node) == "os.environ" and not context.may_spawn:
                yield from _check_environment(node, parents.get(id(node)))
        elif isinstance(node, ast.Call):
            yield from _check_call(node, names, context)
            if names.dotted(node.func) in _LOADERS:
                yield from _check_library(node, parents.get(id(node)))
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            yield from _check_assignment(node, names)
        elif isinstance(node, ast.Constant | ast.BinOp | ast.JoinedStr) and id(node) not in texts:
            yield from _check_text(node)
            if context.may_spawn:
                yield from _check_flag(node, parents.get(id(node)))
        elif isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            yield from _check_literal(node)


def _rebound(tree: ast.AST) -> set[str]:
    """Harmless built-in names that the file uses for its own variables (`compile` alone runs nothing)."""
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound & {"compile", "vars", "globals"}


def _signals_itself(node: ast.Attribute | ast.Name, parent: ast.AST | None, names: Names) -> bool:
    """`os.kill(os.getpid(), ...)`: a server that ends itself."""
    if names.dotted(node) != "os.kill" or not isinstance(parent, ast.Call) or not parent.args:
        return False
    target = parent.args[0]
    return isinstance(target, ast.Call) and names.dotted(target.func) == "os.getpid"


def _check_environment(node: ast.Attribute | ast.Name, parent: ast.AST | None) -> Iterator[Found]:
    by_name = isinstance(parent, ast.Subscript) or (
        isinstance(parent, ast.Attribute) and parent.attr in ("get", "setdefault", "pop")
    )
    if not by_name and not isinstance(parent, ast.Compare):
        yield node.lineno, "environment_probe", "reads the whole environment"


def _check_reference(node: ast.Attribute | ast.Name, names: Names, context: FileContext) -> Iterator[Found]:
    dotted = names.dotted(node)
    if isinstance(node, ast.Attribute) and node.attr in forbidden.ATTRIBUTES:
        reason, what = forbidden.ATTRIBUTES[node.attr]
        yield node.lineno, reason, f"{node.attr} {what}"
    if dotted is None or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
        return
    hit = _lookup(dotted, names)
    if hit is None or (context.may_write and hit[0] == "file_access") or (context.may_spawn and hit[0] == "process"):
        return
    yield node.lineno, hit[0], f"{dotted} {hit[1]}"


def _lookup(dotted: str, names: Names) -> tuple[str, str] | None:
    root = dotted.split(".")[0]
    if dotted in forbidden.NAMES and ("." not in dotted or names.is_module(root)):
        return forbidden.NAMES[dotted]
    if dotted in _LOADERS or "." not in dotted or not names.is_module(root):
        return None
    for name, hit in forbidden.NAMES.items():
        if name.endswith(".") and dotted.startswith(name):
            return hit
    return None


def _check_call(node: ast.Call, names: Names, context: FileContext) -> Iterator[Found]:
    dotted = names.dotted(node.func) or ""
    if isinstance(node.func, ast.Attribute) and dotted not in forbidden.NAMES:
        yield from _check_method(node, node.func, context)
    yield from check_reflection(node, names)
    if dotted in _DECODERS and node.args and fold(node.args[0]) is not None:
        yield node.lineno, "dynamic_code", f"{dotted} of a literal hides text from the reader"
    if dotted in _OPENERS or (isinstance(node.func, ast.Attribute) and node.func.attr == "open"):
        yield from _check_open(node, dotted, context)
    if dotted == "multiprocessing.shared_memory.SharedMemory" and any(item.arg == "name" for item in node.keywords):
        yield node.lineno, "file_access", "named shared memory outlives the server"
    if dotted.startswith("subprocess.") and context.may_spawn:
        yield from _check_compiler(node, dotted)


def _check_method(node: ast.Call, func: ast.Attribute, context: FileContext) -> Iterator[Found]:
    hit = forbidden.METHODS.get(func.attr)
    if hit is not None and not (context.may_write and hit[0] == "file_access"):
        yield node.lineno, hit[0], f".{func.attr}() {hit[1]}"
    if func.attr in ("get", "getlist", "getenv", "pop") and node.args:
        yield from _check_probe_key(node.lineno, node.args[0])


def _check_library(node: ast.Call, parent: ast.AST | None) -> Iterator[Found]:
    target = node.args[0] if node.args else None
    name = fold(target)
    if target is None or (isinstance(target, ast.Constant) and target.value is None):
        if not (isinstance(parent, ast.Attribute) and parent.attr in policy.HARMLESS_SYMBOLS):
            yield node.lineno, "system_library", "opens the symbols of the running process"
    elif name is not None and not name.startswith("build/"):
        yield node.lineno, "system_library", f"loads {name!r}"


def _check_open(node: ast.Call, dotted: str, context: FileContext) -> Iterator[Found]:
    path = fold(node.args[0]) if node.args else None
    if path and (path.startswith(("/", "~")) or ".." in path.split("/")) and path not in policy.HARMLESS_FILES:
        yield node.lineno, "file_access", f"opens {path!r}"
    if context.may_write or dotted == "pathlib.Path":
        return
    is_method = isinstance(node.func, ast.Attribute) and dotted not in _OPENERS
    index = 0 if is_method else 1
    mode = fold(node.args[index]) if len(node.args) > index else None
    mode = mode or next((fold(item.value) for item in node.keywords if item.arg == "mode"), None)
    if mode and re.fullmatch(r"[rwaxbt+]+", mode) and set(mode) & set("wax+"):
        yield node.lineno, "file_access", f"opens a file for writing (mode {mode!r})"


def _check_compiler(node: ast.Call, dotted: str) -> Iterator[Found]:
    if any(
        item.arg == "shell" and not (isinstance(item.value, ast.Constant) and item.value.value is False)
        for item in node.keywords
    ):
        yield node.lineno, "process", f"{dotted} through a shell"
    argv = node.args[0] if node.args else None
    first = argv.elts[0] if isinstance(argv, ast.List | ast.Tuple) and argv.elts else None
    program = fold(first)
    if program is not None and program.rsplit("/", 1)[-1] not in policy.COMPILERS:
        yield node.lineno, "process", f"the build step runs {program!r}"


def _check_flag(node: ast.Constant | ast.BinOp | ast.JoinedStr, parent: ast.AST | None) -> Iterator[Found]:
    """The build step's words that a compiler reads as flags; those of its own command line are none."""
    is_option = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Attribute)
    if is_option and isinstance(parent, ast.Call) and parent.func.attr == "add_argument":  # type: ignore[attr-defined]
        return
    text = fold(node)
    if text is not None and re.fullmatch(r"[-@]\S+", text):
        yield from ((node.lineno, *fault) for fault in flag_faults([text]))


def _check_climb(node: ast.expr, context: FileContext) -> Iterator[Found]:
    """Paths that leave the workspace upwards from `__file__`."""
    climbed = _climbed(node)
    if climbed is not None and climbed > context.depth + 1:
        yield node.lineno, "file_access", "climbs out of the workspace from __file__"


def _climbed(node: ast.expr) -> int | None:
    """Folders that an expression such as `Path(__file__).resolve().parents[2]` goes up, or None when it is none."""
    if isinstance(node, ast.Name):
        return 0 if node.id == "__file__" else None
    if isinstance(node, ast.Attribute) and node.attr == "parent":
        return _plus(_climbed(node.value), 1)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
        index = node.slice.value if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int) else 0
        return _plus(_climbed(node.value.value), index + 1)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("resolve", "absolute"):
            return _climbed(node.func.value)
        if node.args and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in ("Path", "PurePath", "abspath", "realpath", "dirname"):
                return _plus(_climbed(node.args[0]), 1 if name == "dirname" else 0)
    return None


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _check_assignment(node: ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete, names: Names) -> Iterator[Found]:
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
    for target in targets:
        inner = target.value if isinstance(target, ast.Subscript) else target
        if not isinstance(inner, ast.Attribute):
            continue
        dotted = names.dotted(inner)
        if dotted is None or dotted in forbidden.PATCH_EXEMPT or dotted in forbidden.NAMES:
            continue
        root = dotted.split(".")[0]
        if root in forbidden.PATCH_TARGETS and names.is_module(root):
            yield node.lineno, forbidden.PATCH_TARGETS[root], f"assigns to {dotted}"


def _check_text(node: ast.Constant | ast.BinOp | ast.JoinedStr) -> Iterator[Found]:
    text = fold(node)
    if not text:
        return
    if len(text) > policy.MAX_LITERAL_CHARS:
        yield node.lineno, "blob", f"holds a literal of {len(text)} characters (at most {policy.MAX_LITERAL_CHARS})"
    root = next((item for item in policy.OUTSIDE_ROOTS if text == item or text.startswith(item + "/")), None)
    if root is not None and text not in policy.HARMLESS_FILES:
        yield node.lineno, "file_access", f"names {text[:80]!r}, outside model_dir and workspace"
    if "../" in text:
        yield node.lineno, "file_access", f"names a path that climbs: {text[:80]!r}"
    if _SYSTEM_LIBRARY.match(text):
        yield node.lineno, "system_library", f"names the library {text!r}"
    if text in policy.HOOK_STRINGS:
        yield node.lineno, "import_hook", f"names {text}"
    yield from _check_probe_key(node.lineno, node)


def _check_probe_key(line: int, node: ast.AST) -> Iterator[Found]:
    text = fold(node)
    if not text:
        return
    if text.isupper() and text.startswith(policy.PROBE_WORDS):
        yield line, "environment_probe", f"reads {text!r}"
    if text.lower() in policy.PROBE_HEADERS:
        yield line, "environment_probe", f"looks at who asks ({text!r})"


def _check_literal(node: ast.List | ast.Tuple | ast.Set | ast.Dict) -> Iterator[Found]:
    items = node.values if isinstance(node, ast.Dict) else node.elts
    if len(items) > policy.MAX_LITERAL_ITEMS:
        yield node.lineno, "blob", f"holds a literal of {len(items)} items (at most {policy.MAX_LITERAL_ITEMS})"
