"""The proxy of one call: a server on a unix socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from vibeserve.agents.ledger import Ledger
from vibeserve.agents.proxy.books import Books
from vibeserve.agents.proxy.forwarding import FORWARD_SCRIPT, script_of
from vibeserve.agents.proxy.handling import Desk, handle
from vibeserve.agents.proxy.incoming import MAX_REQUEST_BYTES
from vibeserve.agents.proxy.record import Recorder
from vibeserve.agents.proxy.redaction import Redactor
from vibeserve.agents.proxy.upstream import HttpTransport, Transport, Upstream
from vibeserve.agents.requests import AgentUsage
from vibeserve.errors import AgentCapError, AgentInfraError, InfraError

if TYPE_CHECKING:
    from aiohttp import web

READ_TIMEOUT_S = 600.0
_CLOSING_S = 0.1


class Proxy:
    """Everything that one call of a command-line agent asks a model passes here. Context manager, or `start`, `stop`.

    A client may ask for other models than the declared one (command-line agents use small ones for titles and
    summaries): each request counts under the name that it asks for, at that model's price.
    """

    def __init__(
        self,
        *,
        role: str,
        key: str,
        backend: str,
        model: str,
        ledger: Ledger,
        upstreams: Sequence[Upstream],
        record_dir: Path,
        max_turns: int,
        read_timeout_s: float = READ_TIMEOUT_S,
        transport: Transport | None = None,
    ) -> None:
        """`key`: session key of the call. `model`: the declared one, for requests that name none. `upstreams`: one for
        each dialect that the client may speak, made by `upstream_of`. `read_timeout_s`: longest silence of the API.
        `transport`: what stands in for the network, such as `ReplayUpstream`."""
        assert upstreams, "a proxy without an upstream lets nothing through"
        self.client_key = f"call-{secrets.token_hex(16)}"
        """the client's API key: random, of this call alone. Whoever does not show it is refused, since without network
        namespaces other users of the machine can reach the port inside as well"""
        self._model = model
        self._upstreams = {upstream.dialect: upstream for upstream in upstreams}
        self._record_dir = record_dir
        self._transport = transport
        self._read_timeout_s = read_timeout_s
        self._books = Books(role=role, key=key, backend=backend, max_turns=max_turns, ledger=ledger)
        self._folder: Path | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None

    @property
    def socket(self) -> Path:
        """The unix socket, while the proxy runs. In a private temporary folder: the name of a socket has 107 bytes at
        most (unix(7)), which the folder of a record may exceed."""
        assert self._folder is not None, "the proxy does not run"
        return self._folder / "proxy.sock"

    @property
    def stop_reason(self) -> str:
        """Why a request of this call was refused, as `ExitFacts.reason` has it: `cap`, `max_turns`, or empty."""
        return self._books.stop_reason

    @property
    def cap_error(self) -> AgentCapError | None:
        """The cap that refused a request."""
        return self._books.cap_error

    @property
    def last_failure(self) -> AgentInfraError | None:
        """How the API failed the latest request; None where that was answered. To be raised when the client gave up."""
        return self._books.last_failure

    @property
    def last_refusal(self) -> str:
        """What the API found wrong with the latest request itself (400 and its like), for `ExitFacts.detail`."""
        return self._books.last_refusal

    @property
    def num_turns(self) -> int:
        """Answered requests to a model."""
        return len(self._books.spends)

    @property
    def usage(self) -> AgentUsage:
        """What this proxy let through."""
        return self._books.usage

    @property
    def usd(self) -> float | None:
        """Cost of `usage`; None where a part of it has no price."""
        return self._books.usd

    def start(self) -> None:
        """Listen. Raises AgentInfraError where a key is needed and not there, InfraError where it cannot listen."""
        desk = self._desk()
        self._folder = Path(tempfile.mkdtemp(prefix="vibeserve-proxy-"))
        shutil.copy(FORWARD_SCRIPT, script_of(self.socket))
        ready: Future[None] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(desk, ready)), name="vibeserve-proxy", daemon=True
        )  # fmt: skip
        self._thread.start()
        try:
            ready.result()
        except OSError as error:
            self._thread.join()
            self._remove_folder()
            raise InfraError(f"the proxy of {self._books.key} cannot listen: {error}") from error

    def stop(self) -> None:
        """End what is in flight, count it, and close. Raises InfraError where a spend or a record could not be written.
        Without effect where it does not run."""
        if self._folder is None:
            return
        if self._thread is not None and self._loop is not None and self._closing is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
        self._remove_folder()
        if self._books.broken is not None:
            raise InfraError(f"what {self._books.key} spends cannot be recorded: {self._books.broken}")

    def _remove_folder(self) -> None:
        assert self._folder is not None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _desk(self) -> Desk:
        transport = self._transport or HttpTransport(read_timeout_s=self._read_timeout_s)
        keys = {} if transport.is_offline else {name: each.key() for name, each in self._upstreams.items()}
        redactor = Redactor(*keys.values())
        return Desk(
            client_key=self.client_key, model=self._model, upstreams=self._upstreams, keys=keys, transport=transport,
            books=self._books, recorder=Recorder(self._record_dir, redactor), redactor=redactor,
        )  # fmt: skip

    async def _serve(self, desk: Desk, ready: Future[None]) -> None:
        from aiohttp import web

        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            return await handle(request, desk)

        app = web.Application(client_max_size=MAX_REQUEST_BYTES)
        app.router.add_route("*", "/{path:.*}", answer)
        # a client that goes away ends its request; bodies stay as they were sent
        runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, auto_decompress=False, shutdown_timeout=_CLOSING_S
        )  # fmt: skip
        await runner.setup()
        try:
            await web.UnixSite(runner, str(self.socket)).start()
        except OSError as error:
            ready.set_exception(error)
            await runner.cleanup()
            return
        ready.set_result(None)
        await self._closing.wait()
        await runner.cleanup()
        await desk.transport.close()
