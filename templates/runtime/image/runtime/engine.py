"""The engine: one thread that draws, one image after the other, first come first served."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import torch

from . import placement, png
from .interfaces import DecoderLike, Drawn, Request, SamplerLike
from .metrics import Metrics
from .parameters import Parameters
from .spans import Spans


class OverloadedError(Exception):
    """As many requests are drawn and waiting as the parameters allow."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """An image that somebody waits for."""

    image: asyncio.Future[Drawn]
    dropped: threading.Event = field(default_factory=threading.Event)

    def drop(self) -> None:
        """Nobody waits any more: one that waits is never drawn, one that is drawn ends with the step."""
        self.dropped.set()
        self.image.cancel()


class Engine:
    """Everything but `_run` belongs to the event loop's thread."""

    def __init__(
        self, *, sampler: SamplerLike, decoder: DecoderLike, parameters: Parameters, metrics: Metrics, spans: Spans
    ) -> None:
        self.sampler, self.decoder = sampler, decoder
        self.parameters = parameters
        self.metrics, self.spans = metrics, spans
        configure = partial(placement.configure_threads, torch.get_num_threads())
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="engine", initializer=configure)

    def submit(self, request: Request) -> Order:
        """Queue a request; the order's future has the image, or what drawing it raised. Raises OverloadedError."""
        if self.metrics.num_unfinished > self.parameters.max_waiting:
            raise OverloadedError
        self.metrics.num_unfinished += 1
        loop, dropped = asyncio.get_running_loop(), threading.Event()
        future = self._executor.submit(self._run, request, dropped, perf_counter())
        future.add_done_callback(partial(self._announce, loop))
        return Order(image=asyncio.wrap_future(future), dropped=dropped)

    def stop(self) -> None:
        """Wait for the image that is drawn; what still waits is dropped."""
        self._executor.shutdown(cancel_futures=True)

    def _run(self, request: Request, dropped: threading.Event, arrival_s: float) -> Drawn:
        started_s = perf_counter()
        self.spans.add("queue", started_s - arrival_s)
        self.metrics.num_running = 1
        try:
            with torch.inference_mode():
                source = self.sampler.draw(request, is_dropped=dropped.is_set)
                drawn_s = perf_counter()
                self.spans.add("decode.linear", drawn_s - started_s)
                picture = png.encode(self.decoder.decode(source).numpy())
                self.spans.add("decode.other", perf_counter() - drawn_s)
            return Drawn(png=picture, source=source, seed=request.seed)
        finally:
            self.metrics.num_running = 0

    def _announce(self, loop: asyncio.AbstractEventLoop, future: Future[Drawn]) -> None:
        """Runs on whichever thread ended the request."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self.metrics.num_unfinished -= 1
