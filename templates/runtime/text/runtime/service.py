"""What the HTTP seam is given: the engine and all that turns a request into sequences."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from time import perf_counter

import torch

from .engine import Engine
from .interfaces import ConstraintCompilerLike, ModelConfig, Output, Sequence, TokenizerLike
from .metrics import Metrics
from .parameters import Parameters
from .protocol import ApiError, Generation, Limits
from .spans import Spans


@dataclass(frozen=True, kw_only=True)
class Service:
    """Everything behind the API. `start` and `stop` frame the life of the event loop."""

    engine: Engine
    tokenizer: TokenizerLike
    constraints: ConstraintCompilerLike
    config: ModelConfig
    parameters: Parameters
    metrics: Metrics
    spans: Spans
    model_name: str
    api_key: str | None = None

    @property
    def limits(self) -> Limits:
        return Limits.of(self.config, self.parameters)

    async def sequences(
        self, generation: Generation, *, request_id: str, outputs: asyncio.Queue[Output]
    ) -> list[Sequence]:
        """One sequence per choice, all with the same sink. Raises ApiError for a wrong response_format."""
        return [
            await self._sequence(generation, index, request_id=request_id, outputs=outputs)
            for index in range(generation.num_choices)
        ]

    async def _sequence(
        self, generation: Generation, index: int, *, request_id: str, outputs: asyncio.Queue[Output]
    ) -> Sequence:
        constraint = None
        if generation.response_format is not None:
            try:
                # large schemas take a second to compile; the loop serves the other streams meanwhile
                constraint = await asyncio.to_thread(self.constraints.compile, generation.response_format)
            except ValueError as error:
                raise ApiError(400, str(error), param="response_format") from error
        params = generation.params
        generator = None
        if params.temperature > 0.0:
            generator = torch.Generator()
            generator.manual_seed(secrets.randbits(63) if params.seed is None else params.seed + index)
        return Sequence(
            request_id=request_id,
            index=index,
            prompt_token_ids=list(generation.prompt_of(index)),
            params=params,
            detokenizer=self.tokenizer.detokenizer(params.stop),
            sink=outputs,
            constraint=constraint,
            generator=generator,
            prediction_token_ids=generation.prediction,
            arrival_s=perf_counter(),
        )
