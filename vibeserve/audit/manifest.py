"""Rule: `service.yaml` starts and builds the runtime's own modules, with nothing slipped into the environment."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.audit import policy
from vibeserve.audit.native import flag_faults

Found = tuple[int, str, str]


def check_service_file(text: str) -> Iterator[Found]:
    """Findings in the text of `service.yaml`."""
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        yield 0, "syntax", f"is not YAML: {error}"
        return
    if not isinstance(data, dict):
        yield 0, "syntax", "is not a mapping"
        return
    yield from _check_argv(data.get("argv"), "argv", "runtime")
    if data.get("build"):
        yield from _check_argv(data["build"], "build", "runtime.build")
        yield from _check_flags(data["build"])
    for name, value in (data.get("env") or {}).items():
        if str(name).upper() in policy.HOOK_VARIABLES or str(name).upper().startswith("LD_"):
            yield 0, "import_hook", f"env sets {name}={value}"


def _check_argv(argv: object, field: str, module: str) -> Iterator[Found]:
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    if words[:3] != ["{python}", "-m", module] and not (
        field == "build" and words and words[0].rsplit("/", 1)[-1] in policy.COMPILERS
    ):
        yield 0, "entry_point", f"{field} is {words or argv!r}"


def _check_flags(build: object) -> Iterator[Found]:
    """Of a build that is one compiler's command: its flags are of the list."""
    words = [str(word) for word in build] if isinstance(build, list) else []
    if words and words[0].rsplit("/", 1)[-1] in policy.COMPILERS:
        yield from ((0, *fault) for fault in flag_faults([word for word in words[1:] if word[:1] in ("-", "@")]))
