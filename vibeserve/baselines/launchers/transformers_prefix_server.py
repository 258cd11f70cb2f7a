"""Batched transformers over a copied prefix cache, behind the completions API: what one builds in a day for shared
prefixes from stock parts. Runs by itself.

Arguments: --model DIR --dtype DTYPE --host H --port P --threads T --max-num-seqs N --max-prefixes N
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

MIN_PREFIX_TOKENS = 64
"""a shorter common beginning is not worth a cache of its own"""
NUM_REMEMBERED = 64
"""prompts with which a new one is compared"""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
MODEL_NAME = "model"


@dataclass(kw_only=True, eq=False)
class Request:
    """One prompt and what became of it."""

    prompt_ids: list[int]
    max_tokens: int
    ignore_eos: bool
    num_logprobs: int
    events: asyncio.Queue[Event]
    loop: asyncio.AbstractEventLoop
    output_ids: list[int] = field(default_factory=list)
    num_emitted: int = 0
    """of `output_ids`, in text that was sent"""
    num_decoded: int = 0
    """of `output_ids`, in front of what is decoded again with the next token"""
    is_gone: bool = False

    def send(self, event: Event) -> None:
        self.loop.call_soon_threadsafe(self.events.put_nowait, event)


@dataclass(frozen=True, kw_only=True)
class Event:
    """Text that has become ready, with its tokens."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[tuple[float, dict[str, float]], ...] = ()
    finish_reason: str | None = None
    error: str | None = None


class Batch:
    """Rows that decode together: one cache, padded on the left, and how long each row really is."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.requests: list[Request] = []
        self.cache: Any = None
        self.lengths: list[int] = []
        self.next_ids: list[int] = []

    def join(self, requests: Sequence[Request], cache: Any, *, length: int, next_ids: Sequence[int]) -> None:
        """Take up rows of one length; `next_ids` are their first output tokens."""
        self.cache = cache if self.cache is None else joined(self.model.config, [self.cache, cache])
        self.requests += requests
        self.lengths += [length] * len(requests)
        self.next_ids += next_ids

    def step(self) -> Any:
        """Logits [num_rows, vocabulary] after each row's next token."""
        import torch

        size = 1 + max(self.lengths)
        real = torch.tensor(self.lengths) + 1
        mask = (torch.arange(size) >= size - real.unsqueeze(1)).long()
        ids, positions = torch.tensor(self.next_ids).unsqueeze(1), (real - 1).unsqueeze(1)
        output = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=self.cache, use_cache=True
        )
        self.lengths = [length + 1 for length in self.lengths]
        return output.logits[:, -1].float()

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other rows, and the padding that nobody needs any more."""
        if len(rows) == len(self.requests):
            return
        self.requests = [self.requests[row] for row in rows]
        self.lengths = [self.lengths[row] for row in rows]
        self.next_ids = [self.next_ids[row] for row in rows]
        self.cache = selected(self.model.config, self.cache, rows, length=max(self.lengths)) if rows else None


class Engine:
    """One thread: admit, prefill behind a copied prefix, decode."""

    def __init__(self, model: Any, tokenizer: Any, *, max_num_seqs: int, max_prefixes: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.end_ids = end_ids_of(model)
        self.max_num_seqs = max_num_seqs
        self.max_prefixes = max_prefixes
        self.submitted: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self.waiting: deque[Request] = deque()
        self.batch = Batch(model)
        self.prefixes: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self.remembered: deque[list[int]] = deque(maxlen=NUM_REMEMBERED)
        self.has_failed = False

    def run(self) -> None:
        """Serve until the process ends."""
        import torch

        try:
            with torch.inference_mode():
                while True:
                    self._take()
                    self._admit()
                    if self.batch.requests:
                        self._accept(self.batch.step(), self.batch.requests)
                        self._leave()
        finally:
            self.has_failed = True
            for request in [*self.batch.requests, *self.waiting]:
                request.send(Event(error="the engine has failed", finish_reason="error"))

    def _take(self) -> None:
        if not self.batch.requests and not self.waiting:
            self.waiting.append(self.submitted.get())
        while not self.submitted.empty():
            self.waiting.append(self.submitted.get())

    def _admit(self) -> None:
        room = self.max_num_seqs - len(self.batch.requests)
        taken = [self.waiting.popleft() for _ in range(min(room, len(self.waiting)))]
        for prefix, group in self._grouped([request for request in taken if not request.is_gone]):
            kept, length = self._prefix_cache(prefix), len(group[0].prompt_ids)
            config = self.model.config
            cache = new_cache(config) if kept is None else repeated(config, kept, len(group))
            logits = self._prefill([request.prompt_ids[len(prefix) :] for request in group], cache, start=len(prefix))
            self.batch.join(group, cache, length=length, next_ids=[0] * len(group))
            self._accept(logits, group)
        self._leave()

    def _grouped(self, requests: Sequence[Request]) -> Iterator[tuple[tuple[int, ...], list[Request]]]:
        """Requests that may be prefilled as one batch: behind the same prefix, of the same length. A row of padding
        would go through the recurrent states."""
        groups: dict[tuple[tuple[int, ...], int], list[Request]] = {}
        prompts = [request.prompt_ids for request in (*requests, *self.waiting)]
        for number, request in enumerate(requests):
            others = [*self.remembered, *prompts[:number], *prompts[number + 1 :]]
            prefix = self._prefix_of(request.prompt_ids, others)
            # without a prefix a prompt goes alone: one batch of long prompts would hold all of their scores
            part = len(request.prompt_ids) if prefix else -number
            groups.setdefault((prefix, part), []).append(request)
        self.remembered.extend(request.prompt_ids for request in requests)
        for (prefix, _), group in groups.items():
            yield prefix, group

    def _prefix_of(self, ids: list[int], others: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """The kept prefix, unless much more is shared: prompts agree in a few tokens behind it by chance."""
        kept = max((prefix for prefix in self.prefixes if tuple(ids[: len(prefix)]) == prefix), key=len, default=())
        num_shared = shared_tokens(ids, others)
        is_kept_enough = len(kept) < len(ids) and num_shared - len(kept) < MIN_PREFIX_TOKENS
        return kept if is_kept_enough else tuple(ids[:num_shared])

    def _prefix_cache(self, prefix: tuple[int, ...]) -> Any:
        if not prefix:
            return None
        if prefix not in self.prefixes:
            cache = new_cache(self.model.config)
            self._prefill([list(prefix)], cache, start=0)
            self.prefixes[prefix] = cache
        self.prefixes.move_to_end(prefix)
        while len(self.prefixes) > self.max_prefixes:
            self.prefixes.popitem(last=False)
        return self.prefixes[prefix]

    def _prefill(self, rows: list[list[int]], cache: Any, *, start: int) -> Any:
        import torch

        ids = torch.tensor(rows)
        positions = torch.arange(start, start + ids.shape[1]).expand(len(rows), -1)
        output = self.model(input_ids=ids, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].float()

    def _accept(self, logits: Any, requests: Sequence[Request]) -> None:
        """One token for each of `requests`, the last ones of the batch or all."""
        tokens: list[int] = logits.argmax(-1).tolist()
        first = len(self.batch.requests) - len(requests)
        for number, (request, token) in enumerate(zip(list(requests), tokens, strict=True)):
            self.batch.next_ids[first + number] = token
            request.output_ids.append(token)
            logprobs = top_logprobs(logits[number], token, self.tokenizer, request.num_logprobs)
            self._send(request, logprobs)

    def _send(self, request: Request, logprobs: tuple[tuple[float, dict[str, float]], ...]) -> None:
        text = self._new_text(request)
        token = request.output_ids[-1]
        finish = None
        if token in self.end_ids and not request.ignore_eos:
            finish = "stop"
        elif len(request.output_ids) >= request.max_tokens:
            finish = "length"
        request.send(Event(text=text, token_ids=(token,), logprobs=logprobs, finish_reason=finish))
        request.is_gone = request.is_gone or finish is not None

    def _new_text(self, request: Request) -> str:
        """What the last token added to the text; nothing while it ends inside a character."""
        ids = request.output_ids
        before = self.tokenizer.decode(ids[request.num_decoded : request.num_emitted], skip_special_tokens=True)
        whole = self.tokenizer.decode(ids[request.num_decoded :], skip_special_tokens=True)
        is_last = len(ids) >= request.max_tokens
        if (whole.endswith(REPLACEMENT) and not is_last) or len(whole) <= len(before):
            return ""
        request.num_decoded, request.num_emitted = request.num_emitted, len(ids)
        text: str = whole[len(before) :]
        return text

    def _leave(self) -> None:
        self.batch.keep([row for row, request in enumerate(self.batch.requests) if not request.is_gone])


def shared_tokens(ids: Sequence[int], others: Sequence[Sequence[int]]) -> int:
    """Tokens that `ids` has in common with the beginning of another prompt; 0 where that is short, or all of it."""
    best = 0
    for other in others:
        pairs = enumerate(zip(ids, other, strict=False))
        same = next((place for place, (a, b) in pairs if a != b), min(len(ids), len(other)))
        if same < len(ids):
            best = max(best, same)
    return best if best >= MIN_PREFIX_TOKENS else 0


def new_cache(config: Any) -> Any:
    """transformers' own cache of the architecture, empty."""
    from transformers import DynamicCache

    return DynamicCache(config=config)


def repeated(config: Any, cache: Any, num_rows: int) -> Any:
    """A copy of a cache of one row, so many times."""
    return _mapped(config, [cache], lambda tensors, _: tensors[0].repeat_interleave(num_rows, dim=0))


def selected(config: Any, cache: Any, rows: Sequence[int], *, length: int) -> Any:
    """These rows, and the last `length` tokens of their keys and values."""
    import torch

    index = torch.tensor(list(rows))

    def pick(tensors: list[Any], is_context: bool) -> Any:
        chosen = tensors[0].index_select(0, index)
        return chosen[:, :, -length:] if is_context else chosen

    return _mapped(config, [cache], pick)


def joined(config: Any, caches: Sequence[Any]) -> Any:
    """All rows of several caches; shorter contexts are padded on the left."""
    import torch
    from torch.nn import functional

    def join(tensors: list[Any], is_context: bool) -> Any:
        if is_context:
            longest = max(tensor.shape[2] for tensor in tensors)
            tensors = [functional.pad(tensor, (0, 0, longest - tensor.shape[2], 0)) for tensor in tensors]
        return torch.cat(tensors)

    return _mapped(config, caches, join)


def _mapped(config: Any, caches: Sequence[Any], make: Any) -> Any:
    """A new cache, each tensor made of those in its place; `make(tensors, is_context)`."""
    result = new_cache(config)
    for number, layer in enumerate(result.layers):
        places = [cache.layers[number] for cache in caches]
        if hasattr(places[0], "recurrent_states"):
            conv = make([place.conv_states[0] for place in places], False)
            recurrent = make([place.recurrent_states[0] for place in places], False)
            layer.lazy_initialization(conv_states=conv, recurrent_states=recurrent)
            layer.conv_states[0].copy_(conv)
            layer.recurrent_states[0].copy_(recurrent)
            layer.has_previous_state[0] = True
        else:
            keys = make([place.keys for place in places], True)
            layer.lazy_initialization(keys, keys)
            layer.keys, layer.values = keys, make([place.values for place in places], True)
    return result


def top_logprobs(row: Any, token: int, tokenizer: Any, num_top: int) -> tuple[tuple[float, dict[str, float]], ...]:
    """Log-probability of the token and of the likeliest ones; nothing where none are asked for."""
    if not num_top:
        return ()
    logprobs = row.log_softmax(-1)
    top = logprobs.topk(num_top)
    likeliest = {
        tokenizer.decode([each]): value for each, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    }
    return ((float(logprobs[token]), likeliest),)


def end_ids_of(model: Any) -> tuple[int, ...]:
    declared = model.generation_config.eos_token_id
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, list) else (declared,)


class Api:
    """Routes of the completions API, as far as a benchmark asks for them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def health(self, _: Any) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse({"status": "ok"}, status_code=503 if self.engine.has_failed else 200)

    async def models(self, _: Any) -> Any:
        from starlette.responses import JSONResponse

        return JSONResponse({"object": "list", "data": [{"id": MODEL_NAME, "object": "model"}]})

    async def completions(self, http_request: Any) -> Any:
        """POST /v1/completions: greedy, one prompt."""
        from starlette.responses import JSONResponse, StreamingResponse

        body = await http_request.json()
        prompt = body["prompt"]
        request = Request(
            prompt_ids=self.engine.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt),
            max_tokens=int(body.get("max_tokens", 16)),
            ignore_eos=bool(body.get("ignore_eos", False)),
            num_logprobs=int(body.get("logprobs") or 0),
            events=asyncio.Queue(),
            loop=asyncio.get_running_loop(),
        )
        self.engine.submitted.put(request)
        if body.get("stream"):
            return StreamingResponse(self._stream(request), media_type="text/event-stream")
        events = [event async for event in self._events(request)]
        return JSONResponse(self._whole(request, events))

    async def _events(self, request: Request) -> AsyncIterator[Event]:
        try:
            while True:
                event = await request.events.get()
                yield event
                if event.finish_reason is not None:
                    return
        finally:
            request.is_gone = True

    async def _stream(self, request: Request) -> AsyncIterator[str]:
        async for event in self._events(request):
            if event.error is not None:
                yield f"data: {json.dumps({'error': {'message': event.error, 'type': 'server_error'}})}\n\n"
                return
            yield f"data: {json.dumps({'object': 'text_completion', 'choices': [choice_of([event])]})}\n\n"
        yield f"data: {json.dumps({'object': 'text_completion', 'choices': [], 'usage': usage_of(request)})}\n\n"
        yield "data: [DONE]\n\n"

    def _whole(self, request: Request, events: Sequence[Event]) -> dict[str, Any]:
        return {
            "object": "text_completion", "model": MODEL_NAME, "choices": [choice_of(events)], "usage": usage_of(request)
        }  # fmt: skip


def choice_of(events: Sequence[Event]) -> dict[str, Any]:
    """One choice made of consecutive events."""
    logprobs = [each for event in events for each in event.logprobs]
    lists = {"token_logprobs": [each[0] for each in logprobs], "top_logprobs": [each[1] for each in logprobs]}
    return {
        "index": 0,
        "text": "".join(event.text for event in events),
        "token_ids": [token for event in events for token in event.token_ids],
        "logprobs": lists if logprobs else None,
        "finish_reason": events[-1].finish_reason,
    }


def usage_of(request: Request) -> dict[str, int]:
    num_prompt, num_output = len(request.prompt_ids), len(request.output_ids)
    return {"prompt_tokens": num_prompt, "completion_tokens": num_output, "total_tokens": num_prompt + num_output}


def build_engine(folder: str, *, dtype: str, max_num_seqs: int, max_prefixes: int) -> Engine:
    """The engine over the model of `folder`, not started."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return Engine(model, tokenizer, max_num_seqs=max_num_seqs, max_prefixes=max_prefixes)


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", required=True, choices=("float32", "bfloat16"))
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--max-num-seqs", type=int, required=True)
    parser.add_argument("--max-prefixes", type=int, required=True)
    arguments = parser.parse_args()
    import torch
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    torch.set_num_threads(arguments.threads)
    engine = build_engine(
        arguments.model, dtype=arguments.dtype, max_num_seqs=arguments.max_num_seqs,
        max_prefixes=arguments.max_prefixes,
    )  # fmt: skip
    threading.Thread(target=engine.run, name="engine", daemon=True).start()
    api = Api(engine)
    routes = [
        Route("/health", api.health), Route("/v1/models", api.models),
        Route("/v1/completions", api.completions, methods=["POST"]),
    ]  # fmt: skip
    uvicorn.run(Starlette(routes=routes), host=arguments.host, port=arguments.port, log_level="warning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
