"""What the probes share: the clients, seeded prompts, and the greedy completion that several checks compare with."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import openai

from vibeserve.core.documents import from_data
from vibeserve.core.nouns import PromptRequest
from vibeserve.modalities import BundleRef, open_bundle
from vibeserve.modalities.probe_http import REQUEST_TIMEOUT_S, PlainHttp, expect
from vibeserve.modalities.text.probe_sampling import entropy
from vibeserve.spec import Tolerances, Workload
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool, request_stream

NUM_TOKENS = 8
"""of most probes: enough to tell texts apart, cheap for a slow server"""
PROMPT_TOKENS = 32
LONG_PROMPT_TOKENS = 200
REPLACEMENT = "\ufffd"
MAX_PROMPTS = 4
STABLE_GAP_NATS = 0.2
"""several times what bf16 rounding moves a log-probability by (mean below 0.05)"""

SAMPLED_PROMPT_TOKENS = 16
NUM_SAMPLED_PROMPTS = 6
"""of which the one is taken whose next token is neither certain nor anything at all"""
GOOD_ENTROPY_NATS = 2.5
"""where the tests of draws see most"""

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """A prompt, and what the reference says to its next token."""

    prompt: tuple[int, ...]
    logprobs: tuple[float, ...]
    """[vocabulary], at temperature 1"""


@dataclass(frozen=True)
class Served:
    """One completion as the client saw it."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None
    prompt_tokens: int
    completion_tokens: int


class ProbeSession:
    """Clients for one server. `model` is the first model that the server lists."""

    def __init__(
        self, base_url: str, *, bundle: BundleRef, seed: int, deadline_s: float, is_thorough: bool = False
    ) -> None:
        self.http = PlainHttp(base_url, deadline_s=deadline_s)
        self.tokenizer = load_tokenizer(Path(bundle.context.model_dir))
        self.tolerances = from_data(Tolerances, dict(bundle.context.tolerances))
        self.workload = from_data(Workload, dict(bundle.context.workload))
        self.seed = seed
        self.is_thorough = is_thorough
        self._deadline_s = deadline_s
        self._prompts = self.stream(PROMPT_TOKENS)
        # beside the first checks, which wait for the server most of the time
        self._pool = ThreadPoolExecutor(1)
        self._prepared: dict[str, Future[Any]] = {}
        self.loading = self._pool.submit(open_bundle(bundle).load_reference, device="cpu", dtype="float32")
        self.client = openai.OpenAI(
            base_url=f"{self.http.root}/v1",
            api_key="none",
            max_retries=0,
            timeout=REQUEST_TIMEOUT_S,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        )

    @cached_property
    def model(self) -> str:
        return str(self.client.models.list().data[0].id)

    @property
    def is_over(self) -> bool:
        """Whether the time for all checks is over."""
        return time.monotonic() >= self._deadline_s

    @property
    def reference(self) -> Any:
        """The loaded reference; None for a target's own one that has no `next_logprobs`."""
        reference = self.loading.result()
        return reference if callable(getattr(reference, "next_logprobs", None)) else None

    def prepare(self, name: str, make: Callable[[ProbeSession], Any]) -> None:
        """Have the reference work on what `prepared` hands out later, beside the checks before it."""
        self._prepared[name] = self._pool.submit(make, self)

    def prepared(self, name: str, make: Callable[[ProbeSession], T]) -> T:
        """What `make` makes of this session; once."""
        if name not in self._prepared:
            self.prepare(name, make)
        made: T = self._prepared[name].result()
        return made

    def end(self) -> None:
        """Nothing is prepared any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def has_chat_template(self) -> bool:
        """Whether the model has one; a target's own reference that cannot say it is taken to have one."""
        chat_prompt = getattr(self.loading.result(), "chat_prompt", None)
        return not callable(chat_prompt) or chat_prompt([{"role": "user", "content": "."}]) is not None

    @cached_property
    def sampled_place(self) -> Place | None:
        """Where sampling is tested; None without a reference that has distributions."""
        reference = self.reference
        if reference is None:
            return None
        requests = itertools.islice(self.stream(SAMPLED_PROMPT_TOKENS), NUM_SAMPLED_PROMPTS)
        prompts = [tuple(self.tokenizer.encode(request.prompt).ids) for request in requests]
        places = [Place(ids, tuple(reference.next_logprobs(ids))) for ids in prompts]
        return min(places, key=lambda place: abs(entropy(place.logprobs) - GOOD_ENTROPY_NATS))

    @cached_property
    def long_prompts(self) -> list[PromptRequest]:
        return list(itertools.islice(self.stream(LONG_PROMPT_TOKENS), 2))

    @cached_property
    def first(self) -> PromptRequest:
        """The prompt that most checks use: one without near ties, so that honest changes in rounding keep its text.

        Servers that reuse a prefix or batch differently round differently; that is no fault, and not probed here.
        """
        best, best_gap = self.new_prompt(), -math.inf
        for _ in range(MAX_PROMPTS):
            request = self.new_prompt()
            gap = self._smallest_gap(request.prompt)
            if gap > best_gap:
                best, best_gap = request, gap
            if gap >= STABLE_GAP_NATS:
                break
        return best

    @cached_property
    def greedy(self) -> Served:
        return self.complete(self.first.prompt)

    def _smallest_gap(self, prompt: str) -> float:
        """Smallest difference between the two best log-probabilities of a greedy text; -inf where there are none."""
        answer = self.client.completions.create(
            model=self.model,
            prompt=prompt,
            max_tokens=NUM_TOKENS,
            temperature=0.0,
            logprobs=2,
            extra_body={"ignore_eos": True},
        )
        logprobs = answer.choices[0].logprobs
        tops = [sorted(top.values(), reverse=True) for top in (logprobs.top_logprobs or ())] if logprobs else []
        return min((top[0] - top[1] if len(top) > 1 else -math.inf for top in tops), default=-math.inf)

    def new_prompt(self) -> PromptRequest:
        return next(self._prompts)

    def complete(self, prompt: str | list[int], *, max_tokens: int = NUM_TOKENS, **options: Any) -> Served:
        """One whole (not streamed) completion; greedy and of fixed length unless `options` say otherwise."""
        answer = self.client.completions.create(
            model=self.model,
            prompt=prompt,
            max_tokens=max_tokens,
            extra_body=_extensions(options),
            **_with_greedy(options),
        )
        choice = answer.choices[0]
        usage: Any = answer.usage
        expect(usage is not None, "the answer carries no usage")
        ids = (choice.model_extra or {}).get("token_ids")
        expect(ids is not None, "the answer carries no token_ids though return_token_ids was asked for")
        return Served(choice.text, tuple(ids or ()), choice.finish_reason, usage.prompt_tokens, usage.completion_tokens)

    def complete_streamed(self, prompt: str, *, max_tokens: int = NUM_TOKENS, **options: Any) -> Served:
        text, finish = "", None
        usage: Any = None
        ids: list[int] = []
        stream = self.client.completions.create(
            model=self.model,
            prompt=prompt,
            max_tokens=max_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=_extensions(options),
            **_with_greedy(options),
        )
        for event in stream:
            usage = event.usage or usage
            for choice in event.choices:
                text += choice.text or ""
                ids += (choice.model_extra or {}).get("token_ids") or []
                finish = choice.finish_reason or finish
        expect(usage is not None, "the stream carries no usage though include_usage was asked for")
        return Served(text, tuple(ids), finish, usage.prompt_tokens, usage.completion_tokens)

    def raw_completion(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a completion request with exactly these fields."""
        status, _, body = self.http.ask("POST", "/v1/completions", body=json.dumps(fields).encode())
        document = json.loads(body)
        return status, document if isinstance(document, dict) else {}

    def stream(self, num_tokens: int, *, seed: int | None = None) -> Iterator[PromptRequest]:
        """Endless prompts of exactly so many tokens, by the session's seed unless another is given."""
        workload = Workload(kind="chat", prompt_tokens_min=num_tokens, prompt_tokens_max=num_tokens)
        return request_stream(
            workload, tokenizer=self.tokenizer, pool=Pool.selection, seed=self.seed if seed is None else seed
        )


def _extensions(options: dict[str, Any]) -> dict[str, Any]:
    """vLLM's extensions of the completions API: ids in the answer, EOS ignored."""
    return {"return_token_ids": True, "ignore_eos": options.pop("ignore_eos", True)}


def _with_greedy(options: dict[str, Any]) -> dict[str, Any]:
    return {"temperature": 0.0, **options}
