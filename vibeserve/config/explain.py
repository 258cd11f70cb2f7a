"""Turn what Hydra, OmegaConf and PyYAML raise into one SpecError without a traceback."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from vibeserve.errors import SpecError


def _as_it_is(problem: str) -> str:
    return problem


@contextlib.contextmanager
def explained(located: Callable[[str], str] = _as_it_is) -> Iterator[None]:
    """Raise SpecError for any fault of a composition inside the block; `located` puts a place before `key: what`."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise SpecError(
            "the spec does not compose", problems=[located(one_line(error))], hint="vibeserve check"
        ) from error


def one_line(error: BaseException) -> str:
    """The innermost message that Hydra or OmegaConf worded, with the key it names, on one line."""
    told: BaseException = error
    while told.__cause__ is not None and _is_worded(told.__cause__):
        told = told.__cause__
    text = str(told) or str(error)
    key = re.search(r"full_key: (\S+)", text)
    noise = re.compile(r"\s*(full_key|object_type|reference_type)\b|See https?://")
    if key and ("dict is not a subclass of" in text or re.match(r"(Could not override|Key '.*' not in)", text)):
        # OmegaConf cannot turn a mapping into a dataclass while it updates; merging files can
        return f"{key.group(1)}: a new entry is declared in the target's file, not on the command line"
    body = " ".join(line.strip() for line in text.splitlines() if not noise.match(line))
    return f"{key.group(1)}: {body}" if key else body


def _is_worded(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("hydra", "omegaconf")
