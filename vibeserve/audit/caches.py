"""Rule: no replies kept by prompt. Heuristics over one file, each finding with its reason.

A finding needs both halves: a key made of a whole prompt (or of its hash, identity or length), and a store that
holds or gives back replies. Keys by request id or slot, and KV blocks by block hash, are the honest shapes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vibeserve.audit.names import Names

Found = tuple[int, str, str]
_PROMPT = re.compile(
    r"(^|_)(prompts?|prompt_ids|prompt_tokens_ids|prompt_token_ids|messages|input_ids|body|payload|conversation)$"
)
_WHOLE_REQUEST = re.compile(
    r"^(req|request|body|payload|prompt|prompts|messages|prompt_ids|input_ids|prompt_token_ids|conversation)$"
)
_REPLY = re.compile(
    r"repl(y|ies)|respons|answer|complet|output|generat|memo|result|served|cached_text|(^|_)text|texts$|stream",
    re.IGNORECASE,
)
_STORE = re.compile(r"cache|memo|seen|repl(y|ies)|respons|answer|store|known|recall|lookup|history", re.IGNORECASE)
_WRAPPERS = frozenset(
    {
        "hash",
        "id",
        "len",
        "tuple",
        "str",
        "repr",
        "bytes",
        "frozenset",
        "sorted",
        "hexdigest",
        "digest",
        "encode",
        "strip",
        "lower",
        "dumps",
        "sha1",
        "sha256",
        "sha512",
        "md5",
        "blake2b",
        "blake2s",
        "crc32",
        "adler32",
        "join",
        "tobytes",
        "format",
        "intern",
    }
)
_CACHE_DECORATORS = frozenset(
    {"functools.cache", "functools.lru_cache", "functools.cached_property", "cachetools.cached", "joblib.Memory"}
)


def check_caches(tree: ast.AST, names: Names) -> Iterator[Found]:
    """Findings of class `reply_cache` in one file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _check_decorated(node, names)
            yield from _check_function(node)
        elif (
            isinstance(node, ast.Call)
            and names.dotted(node.func) in _CACHE_DECORATORS
            and node.args
            and isinstance(node.args[0], ast.Attribute | ast.Name)
        ):
            target = node.args[0].attr if isinstance(node.args[0], ast.Attribute) else node.args[0].id
            if re.search(r"generate|complete|reply|respond|answer|forward|decode_all", target):
                yield node.lineno, "reply_cache", f"keeps the results of {target}() by its arguments"


def _check_decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, names: Names) -> Iterator[Found]:
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if names.dotted(target) not in _CACHE_DECORATORS:
            continue
        arguments = [item.arg for item in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
        prompts = [item for item in arguments if _is_prompt_name(item)]
        if prompts:
            yield node.lineno, "reply_cache", f"{node.name}() is cached by {', '.join(prompts)}"


def _is_prompt_name(name: str) -> bool:
    return bool(_PROMPT.search(name) or _WHOLE_REQUEST.match(name))


def _check_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    keys = _tainted(function)
    looked_up: dict[str, int] = {}
    for node in ast.walk(function):
        store = _access(node, keys)
        if store is None:
            continue
        container, line, value = store
        if value is not None and (_REPLY.search(container) or _STORE.search(container) or _mentions_reply(value)):
            yield line, "reply_cache", f"stores in {container} by prompt"
        elif value is None and _STORE.search(container):
            looked_up[container] = line
    for container, line in looked_up.items():
        yield line, "reply_cache", f"looks {container} up by prompt"


def _tainted(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Local names that hold a whole prompt or a digest of one (assignments followed in order, twice for loops)."""
    tainted: set[str] = set()
    for _ in range(2):
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _is_prompt_key(node.value, tainted):
                tainted |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif (
                isinstance(node, ast.AnnAssign | ast.NamedExpr)
                and node.value is not None
                and _is_prompt_key(node.value, tainted)
            ):
                tainted |= {node.target.id} if isinstance(node.target, ast.Name) else set()
    return tainted


def _is_prompt_key(node: ast.AST, tainted: set[str]) -> bool:
    """Whether an expression is a whole prompt, or a wrapper (hash, tuple, length ...) around one."""
    if isinstance(node, ast.Name):
        return node.id in tainted or _is_prompt_name(node.id)
    if isinstance(node, ast.Attribute):
        return bool(_PROMPT.search(node.attr))
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return isinstance(key, str) and _is_prompt_name(key)
    if isinstance(node, ast.Tuple):
        return any(_is_prompt_key(item, tainted) for item in node.elts)
    if isinstance(node, ast.Call):
        name = (
            node.func.attr
            if isinstance(node.func, ast.Attribute)
            else node.func.id
            if isinstance(node.func, ast.Name)
            else ""
        )
        if name == "get" and node.args and isinstance(node.args[0], ast.Constant):
            return isinstance(node.args[0].value, str) and _is_prompt_name(node.args[0].value)
        inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        return name in _WRAPPERS and any(_is_prompt_key(item, tainted) for item in inner)
    return False


def _access(node: ast.AST, keys: set[str]) -> tuple[str, int, ast.AST | None] | None:
    """(container, line, stored value or None for a look-up) of a mapping access by a prompt key."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _is_prompt_key(target.slice, keys):
                return _name(target.value), node.lineno, node.value
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_prompt_key(node.slice, keys):
        return _name(node.value), node.lineno, None
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In | ast.NotIn)
        and _is_prompt_key(node.left, keys)
    ):
        return _name(node.comparators[0]), node.lineno, None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.args
        and _is_prompt_key(node.args[0], keys)
    ):
        if node.func.attr in ("get", "pop"):
            return _name(node.func.value), node.lineno, None
        if node.func.attr in ("setdefault", "put", "set", "__setitem__"):
            return _name(node.func.value), node.lineno, node.args[-1]
    return None


def _name(node: ast.AST) -> str:
    return ast.unparse(node)


def _mentions_reply(value: ast.AST) -> bool:
    return any(
        _REPLY.search(node.id if isinstance(node, ast.Name) else node.attr)
        for node in ast.walk(value)
        if isinstance(node, ast.Name | ast.Attribute)
    )
