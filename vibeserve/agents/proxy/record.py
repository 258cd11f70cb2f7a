"""What passed between a client and a model, one line an exchange."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.agents.proxy.redaction import Redactor
from vibeserve.agents.proxy.sse import parse_json
from vibeserve.agents.requests import AgentUsage
from vibeserve.core.documents import canonical_json, from_data
from vibeserve.errors import SpecError

SCHEMA_VERSION = 1
TRAFFIC = "traffic.jsonl"
MAX_BODY_BYTES = 2_000_000
UPSTREAM, PROXY = "upstream", "proxy"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Document: one request and its answer. No headers; the key is nowhere in it."""

    schema_version: int
    number: int
    """from 1, in the order in which the exchanges ended"""
    role: str
    key: str
    """session key of the call"""
    backend: str
    dialect: str
    model: str
    path: str
    is_metered: bool
    answered_by: str
    """`upstream`, or `proxy`: refused or failed before the API answered"""
    request: Any
    """JSON, or text where it is none"""
    status: int
    """0: the client went away before there was an answer"""
    content_type: str
    response: Any
    """JSON, or text: a stream's events as they came"""
    is_whole: bool
    """the answer came to its end and is here to its end"""
    note: str
    """what is missing of the bodies, or went wrong; empty as a rule"""
    usage: AgentUsage | None
    usd: float | None
    is_estimate: bool
    seconds: float


def body_of(data: bytes, *, name: str, redactor: Redactor, num_bytes: int | None = None) -> tuple[Any, str]:
    """(body as it is recorded, note): JSON where it is JSON, else text; what is longer than `MAX_BODY_BYTES` its
    beginning as text, with a note. `num_bytes`: length of the body where `data` is its beginning only."""
    clean = redactor.clean(data)
    num_bytes = len(clean) if num_bytes is None else num_bytes
    if num_bytes > MAX_BODY_BYTES:
        return clean[:MAX_BODY_BYTES].decode(errors="replace"), f"{name} of {num_bytes} bytes cut to {MAX_BODY_BYTES}"
    document = parse_json(clean)
    return (clean.decode(errors="replace") if document is None else document), ""


class Recorder:
    """Appends to `traffic.jsonl` in the folder of a call."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self.path = folder / TRAFFIC
        self._redactor = redactor
        self._num_exchanges = 0

    def add(self, **fields: Any) -> None:
        """One exchange; `fields` are those of `Exchange` but for its version and number. Raises OSError."""
        self._num_exchanges += 1
        exchange = Exchange(schema_version=SCHEMA_VERSION, number=self._num_exchanges, **fields)
        # the key once more over the whole line: notes quote what libraries say
        line = self._redactor.clean_text(canonical_json(exchange))
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def read_traffic(path: Path) -> list[Exchange]:
    """Every exchange of a recording. Raises SpecError for what is no recording."""
    import dacite

    hint = f"name a {TRAFFIC} that the proxy wrote"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SpecError(f"cannot read the recorded traffic {path}: {error}", hint=hint) from error
    exchanges: list[Exchange] = []
    for number, line in enumerate(lines, start=1):
        try:
            exchanges.append(from_data(Exchange, json.loads(line)))
        except (ValueError, dacite.DaciteError) as error:
            raise SpecError(f"{path}:{number}: no recorded exchange: {error}", hint=hint) from error
        if exchanges[-1].schema_version != SCHEMA_VERSION:
            text = f"{path}:{number}: schema_version {exchanges[-1].schema_version}, expected {SCHEMA_VERSION}"
            raise SpecError(text, hint=hint)
    return exchanges
