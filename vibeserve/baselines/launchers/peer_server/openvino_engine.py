"""OpenVINO GenAI's continuous batching over a GGUF, in an environment of its own.

`python -m peer_server.openvino_engine --gguf FILE --slots 16 ...` and what `serving.common_arguments` names.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import queue
import sys
from pathlib import Path
from typing import Any

from .asking import Ask, BadRequestError, Limits
from .serving import Texts, common_arguments, serve
from .streams import TokenStream

KV_BLOCK_TOKENS = 32
"""tokens of one block of the CPU plug-in's KV cache"""


class OpenVinoEngine:
    """See `serving.Engine`. All requests that are there share every step of the library's pipeline."""

    def __init__(
        self, gguf: Path, *, threads: int, slots: int, max_sequence_tokens: int, vocab_size: int, caches_prefixes: bool
    ) -> None:
        self._library = importlib.import_module("openvino_genai")
        self._tensor = importlib.import_module("openvino").Tensor
        scheduler = self._library.SchedulerConfig()
        scheduler.max_num_seqs = slots
        # a block more per sequence, because a reply may end inside of one
        scheduler.num_kv_blocks = slots * (-(-max_sequence_tokens // KV_BLOCK_TOKENS) + 1)
        scheduler.enable_prefix_caching = caches_prefixes
        # its threads are the wall's: bound to the engine's cores, so many of them as the plan says
        properties = {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False}
        self._pipeline = self._library.ContinuousBatchingPipeline(str(gguf), scheduler, "CPU", properties)
        self.limits = Limits(max_sequence_tokens=max_sequence_tokens, vocab_size=vocab_size, constrains=True)
        self._numbers = itertools.count()
        self._waiting: queue.SimpleQueue[tuple[Ask, TokenStream]] = queue.SimpleQueue()
        self._running: list[Running] = []

    def check(self, ask: Ask) -> None:
        try:
            self._config(ask).validate()
        except RuntimeError as error:
            raise BadRequestError(str(error)) from error

    def submit(self, ask: Ask, stream: TokenStream) -> None:
        self._waiting.put((ask, stream))

    def run(self) -> None:
        while True:
            self._take()
            try:
                self._pipeline.step()
            except RuntimeError as error:
                self._refuse_new_schemas(error)
            self._running = [each for each in self._running if not each.deliver()]

    def _refuse_new_schemas(self, error: RuntimeError) -> None:
        """A schema that its grammar library does not know fails the step that first meets it: those that have just come
        with one are refused. Anything else ends the server."""
        refused = [each for each in self._running if each.is_new and each.has_schema]
        if not refused:
            raise error
        for each in refused:
            each.refuse(f"response_format: {error}")
        self._running = [each for each in self._running if each not in refused]

    def _take(self) -> None:
        """Hand over what has come; wait where there is nothing to do."""
        while not self._running or not self._waiting.empty():
            ask, stream = self._waiting.get()
            if stream.is_abandoned:
                continue
            import numpy as np

            ids = self._tensor(np.array([ask.prompt_ids], dtype=np.int64))
            handle = self._pipeline.add_request(next(self._numbers), ids, self._config(ask))
            has_schema = ask.schema is not None
            self._running.append(Running(handle, stream, library=self._library, has_schema=has_schema))

    def _config(self, ask: Ask) -> Any:
        config = self._pipeline.get_config()
        config.do_sample = False
        config.max_new_tokens = ask.max_tokens
        config.ignore_eos = ask.ignore_eos
        config.apply_chat_template = False
        if ask.schema is not None:
            config.structured_output_config = self._library.StructuredOutputConfig(json_schema=ask.schema)
        return config


class Running:
    """One request inside the pipeline."""

    def __init__(self, handle: Any, stream: TokenStream, *, library: Any, has_schema: bool) -> None:
        self.has_schema = has_schema
        self.is_new = True
        """it has no token yet"""
        self._handle = handle
        self._stream = stream
        self._library = library

    def refuse(self, fault: str) -> None:
        self._handle.cancel()
        self._stream.fail(fault)

    def deliver(self) -> bool:
        """Pass on what the last step has brought; True when that was the end."""
        if self._stream.is_abandoned:
            self._handle.stop()
            return True
        reason = None
        while self._handle.can_read():
            self.is_new = False
            for output in self._handle.read().values():
                self._stream.put(output.generated_ids)
                reason = self._reason(output.finish_reason) or reason
        if reason is None and self._handle.get_status() == self._library.GenerationStatus.IGNORED:
            self._stream.fail("the request does not fit the KV cache")
            return True
        if reason is not None:
            self._stream.end(reason)
        return reason is not None

    def _reason(self, finish: Any) -> str | None:
        reasons = self._library.GenerationFinishReason
        return {reasons.STOP: "stop", reasons.LENGTH: "length"}.get(finish)


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    common_arguments(parser)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--slots", type=int, required=True, help="sequences in one step")
    parser.add_argument("--prefix-caching", action="store_true", help="where no prefix is shared it could only cost")
    arguments = parser.parse_args()
    texts = Texts(arguments.tokenizer_dir)
    engine = OpenVinoEngine(
        arguments.gguf,
        threads=arguments.threads,
        slots=arguments.slots,
        max_sequence_tokens=arguments.max_sequence_tokens,
        vocab_size=texts.vocab_size,
        caches_prefixes=arguments.prefix_caching,
    )
    serve(engine, texts=texts, arguments=arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
