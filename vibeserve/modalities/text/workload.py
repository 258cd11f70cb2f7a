"""Text: what is asked (`vibeserve.workloads`), how it is sent (`wire`) and what is measured (`metrics`).

The load generator imports this to send, hence what makes requests and loads tokenizers is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.contract import CLOSED, Context, Metric, Pool, SendError, Session, Window
from vibeserve.core.documents import from_data
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.modalities.text.metrics import MEASURED, measure_text
from vibeserve.modalities.text.wire import COMPLETIONS_PATH, Collected, body_of
from vibeserve.spec import Tolerances, Workload

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SHORT_TOKENS = 8


def configure(context: Context) -> TextWorkload:
    return TextWorkload(context)


class TextWorkload:
    """See `contract.Workload`. The tokenizer is loaded when requests are made or replies measured, never to send."""

    METRICS: Sequence[Metric] = MEASURED
    REQUEST = PromptRequest
    RECORD = Reply

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def declared(self) -> Workload:
        return from_data(Workload, dict(self._context.workload))

    @property
    def tokenizer(self) -> Tokenizer:
        return _tokenizer(self._context.model_dir)

    def requests(self, seed: int, pool: Pool) -> Iterator[PromptRequest]:
        """Endless requests of the declared kind, one in `tolerances.logprob_share` with log-probabilities."""
        from vibeserve.workloads import request_stream

        share = from_data(Tolerances, dict(self._context.tolerances)).logprob_share
        return request_stream(self.declared, tokenizer=self.tokenizer, pool=pool, seed=seed, logprobs_share=share)

    def prepared(self, requests: Iterator[PromptRequest]) -> Iterator[PromptRequest]:
        """With what clients predict of the answers, where that takes the reference's own answers."""
        from vibeserve.modalities.text.answers import predicted_requests
        from vibeserve.workloads.predictions import FROM_ANSWER

        declared = self.declared
        if declared.kind != "code_edit" or declared.prediction not in FROM_ANSWER:
            return requests
        return predicted_requests(
            requests, kind=declared.prediction, model_dir=self._context.model_dir, tokenizer=self.tokenizer,
            num_ahead=declared.predictions_ahead,
        )  # fmt: skip

    async def send(self, session: Session, request: PromptRequest) -> Reply:
        """One completion; a reply that failed, or was cut, keeps what came before."""
        body = body_of(session.dialect, request, model=session.model)
        collected = Collected()
        try:
            await session.post(COMPLETIONS_PATH, body, on_line=collected.read)
        except SendError as error:
            # whoever says [DONE] and closes, without ending the body as HTTP wants it, has said everything
            is_whole = collected.is_done and str(error) == CLOSED
            return collected.reply(request, error=None if is_whole else str(error))
        return collected.reply(request)

    def measure(self, records: Sequence[Reply], windows: Sequence[Window]) -> dict[str, float]:
        return measure_text(records, windows, tokenizer=self.tokenizer, slo=self.declared.slo)

    def shortened(self, request: PromptRequest) -> PromptRequest:
        return replace(request, max_tokens=min(SHORT_TOKENS, request.max_tokens))

    def plain(self, request: PromptRequest) -> PromptRequest:
        """Without log-probabilities: a server that is not judged need not return them."""
        return replace(request, logprobs=0)


@lru_cache(maxsize=2)
def _tokenizer(model_dir: str) -> Tokenizer:
    from vibeserve.weights import load_tokenizer

    return load_tokenizer(Path(model_dir))
