"""The engine: one thread that runs the model, one request after the other, first come first served."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

import torch

from . import placement
from .interfaces import ModelLike, Request
from .metrics import Metrics
from .parameters import Parameters
from .spans import Spans


class OverloadedError(Exception):
    """As many requests are in the model and waiting as the parameters allow."""


class Engine:
    """Everything but `_run` belongs to the event loop's thread."""

    def __init__(self, model: ModelLike, *, parameters: Parameters, metrics: Metrics, spans: Spans) -> None:
        self.model = model
        self.parameters = parameters
        self.metrics = metrics
        self.spans = spans
        configure = partial(placement.configure_threads, torch.get_num_threads())
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="engine", initializer=configure)

    def submit(self, request: Request) -> asyncio.Future[Any]:
        """Queue a request; the future has what the model's `run` returns or raises.

        Cancelled while it waits, a request never reaches the model. Raises OverloadedError.
        """
        if self.metrics.num_unfinished > self.parameters.max_waiting:
            raise OverloadedError
        self.metrics.num_unfinished += 1
        loop = asyncio.get_running_loop()
        future = self._executor.submit(self._run, request, perf_counter())
        future.add_done_callback(partial(self._announce, loop))
        return asyncio.wrap_future(future)

    def stop(self) -> None:
        """Wait for the request in the model; what still waits is dropped."""
        self._executor.shutdown(cancel_futures=True)

    def _run(self, request: Request, arrival_s: float) -> Any:
        started_s = perf_counter()
        self.spans.add("queue", started_s - arrival_s)
        self.metrics.num_running = 1
        try:
            return self.model.run(request)
        finally:
            self.metrics.num_running = 0
            self.spans.add("prefill", perf_counter() - started_s)

    def _announce(self, loop: asyncio.AbstractEventLoop, future: Future[Any]) -> None:
        """Runs on whichever thread ended the request."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        self.metrics.num_unfinished -= 1
