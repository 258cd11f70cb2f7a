"""The probe of prompts that begin alike, against servers that take one prefix for another."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vibeserve.modalities.probe_http import ProbeFailure, ProbeNotRun
from vibeserve.modalities.text.probe_prefixes import NEAR_PLACES, check_shared_prefixes, prefix_tokens
from vibeserve.spec import Tolerances, Workload
from vibeserve.weights import load_tokenizer

Answer = Callable[[list[int]], list[int]]
PREFIX_TOKENS = 200
LOGPROB = -2.0


def model_text(ids: Sequence[int], *, num: int = 16) -> list[int]:
    """Greedy ids of a model in which every token of the prompt counts."""
    return random.Random(str(list(ids))).choices(range(100), k=num)


class Reference:
    """See `TextReference`: a served token is right, or five nats off."""

    max_tokens = 512
    text = staticmethod(model_text)

    def sure_tokens(self, *_: Any, **__: Any) -> list[int]:
        raise AssertionError

    def score_ids(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[dict[str, Any]]:
        return [
            {
                "margins": [0.0 if a == b else 5.0 for a, b in zip(self.text(prompt), served, strict=True)],
                "logprobs": [LOGPROB] * len(served),
                "problem": "",
            }
            for prompt, served in pairs
        ]


class Server:
    """Stands where the stock client does; remembers every prompt."""

    def __init__(self, tokenizer: Any, answer: Answer, *, num_usage: int = 0) -> None:
        self.noise_nats: Callable[[list[int]], float] = lambda ids: 0.0
        self.tokenizer = tokenizer
        self.answer = answer
        self.num_usage = num_usage
        self.prompts: list[list[int]] = []
        self.completions = self
        self.models = SimpleNamespace(
            list=lambda: SimpleNamespace(data=[SimpleNamespace(model_extra={"max_model_len": 480})])
        )

    def with_options(self, **_: Any) -> Server:
        return self

    def create(self, *, prompt: Any, max_tokens: int, **_: Any) -> Any:
        ids = self.tokenizer.encode(prompt).ids if isinstance(prompt, str) else list(prompt)
        self.prompts.append(ids)
        served = self.answer(ids)[:max_tokens]
        logprobs = SimpleNamespace(token_logprobs=[LOGPROB + self.noise_nats(ids)] * len(served))
        choice = SimpleNamespace(model_extra={"token_ids": served}, logprobs=logprobs)
        return SimpleNamespace(choices=[choice], usage=SimpleNamespace(prompt_tokens=len(ids) + self.num_usage))


@pytest.fixture
def session(tiny_model_dir: Path) -> Any:
    tokenizer = load_tokenizer(tiny_model_dir)
    workload = Workload(kind="shared_prefix", shared_prefix_tokens=PREFIX_TOKENS, reuse="prefix")
    return SimpleNamespace(
        tokenizer=tokenizer, workload=workload, seed=3, is_thorough=False, tolerances=Tolerances(), model="m",
        reference=Reference(), client=Server(tokenizer, model_text),
    )  # fmt: skip


def taking(session: Any, is_hit: Callable[[list[int], list[int]], bool]) -> Answer:
    """Answers as if a prompt began with the first one's prefix where `is_hit(prompt, prefix)`."""

    def answer(ids: list[int]) -> list[int]:
        num = prefix_tokens(session)
        prefix = session.client.prompts[0][:num]
        return model_text([*prefix, *ids[num:]] if is_hit(ids, prefix) else ids)

    return answer


def test_an_honest_server_passes_and_is_asked_all_kinds(session: Any) -> None:
    check_shared_prefixes(session)
    prompts, num = session.client.prompts, prefix_tokens(session)
    assert PREFIX_TOKENS - 1 - 61 <= num < PREFIX_TOKENS
    first = prompts[0][:num]
    assert sum(prompt[:num] == first for prompt in prompts) == 6
    near = [prompt for prompt in prompts if sum(a != b for a, b in zip(prompt[:num], first, strict=False)) == 1]
    assert sorted(num - next(n for n, (a, b) in enumerate(zip(p, first, strict=False)) if a != b) for p in near) == [
        *sorted(NEAR_PLACES)
    ]
    assert sum(len(prompt) < num + 16 for prompt in prompts) == 2


@pytest.mark.parametrize(
    ("is_hit", "kinds"),
    [
        (lambda ids, prefix: True, "another prefix, at once, left early, near-miss prefix"),
        (lambda ids, prefix: ids[:12] == prefix[:12], "left early, near-miss prefix"),
        (lambda ids, prefix: ids[:16:8] == prefix[:16:8] and len(ids) > len(prefix) + 15, "near-miss prefix"),
    ],
    ids=["any", "by head", "by blocks"],
)
def test_the_wrong_prefix_is_refused(session: Any, is_hit: Callable[..., bool], kinds: str) -> None:
    session.client.answer = taking(session, is_hit)
    with pytest.raises(ProbeFailure, match=rf"\d+ of \d+ replies to prompts that begin alike are not .*\({kinds}\)"):
        check_shared_prefixes(session)


def test_a_resumed_prefix_that_was_spoilt_is_refused(session: Any) -> None:
    num = prefix_tokens(session)

    def spoilt(ids: list[int]) -> list[int]:
        is_known = any(before[:num] == ids[:num] for before in session.client.prompts[:-1])
        return model_text([0, *ids] if is_known else ids)

    session.client.answer = spoilt
    with pytest.raises(ProbeFailure, match="at once, resumed"):
        check_shared_prefixes(session)


@pytest.mark.parametrize(
    ("fresh_nats", "resumed_nats", "is_right"),
    [(0.0, 0.0124, True), (0.0, 0.0127, False), (0.02, 0.079, True), (0.02, 0.081, False)],
    ids=["below the concern", "above it", "as the noise", "beyond the noise"],
)
def test_a_state_that_is_a_little_wrong_is_refused(
    session: Any, fresh_nats: float, resumed_nats: float, is_right: bool
) -> None:
    num = prefix_tokens(session)

    def noise_nats(ids: list[int]) -> float:
        # a near miss shares all but its last tokens
        is_known = any(before[: num - 9] == ids[: num - 9] for before in session.client.prompts[:-1])
        return resumed_nats if is_known else -fresh_nats

    session.client.noise_nats = noise_nats
    if is_right:
        check_shared_prefixes(session)
    else:
        expected = rf"are {resumed_nats:.4f} nats from .* not they are {fresh_nats:.4f}"
        with pytest.raises(ProbeFailure, match=expected):
            check_shared_prefixes(session)


def test_log_probabilities_that_were_asked_for_must_come(session: Any) -> None:
    session.client.create = without_logprobs(session.client.create)
    with pytest.raises(ProbeFailure, match="0 log-probabilities for 16 ids"):
        check_shared_prefixes(session)


def without_logprobs(create: Callable[..., Any]) -> Callable[..., Any]:
    def answer(**options: Any) -> Any:
        assert options["logprobs"] == 1
        made = create(**options)
        made.choices[0].logprobs = None
        return made

    return answer


def test_one_wrong_reply_is_not_enough_and_two_are(session: Any) -> None:
    def wrong_at(*numbers: int) -> Answer:
        return lambda ids: model_text([0, *ids] if len(session.client.prompts) - 1 in numbers else ids)

    session.client.answer = wrong_at(4)
    check_shared_prefixes(session)
    session.client = Server(session.tokenizer, lambda ids: [])
    session.client.answer = wrong_at(4, 5)
    with pytest.raises(ProbeFailure, match="2 of"):
        check_shared_prefixes(session)


def test_lying_usage_and_short_replies_are_refused(session: Any) -> None:
    session.client = Server(session.tokenizer, model_text, num_usage=-3)
    with pytest.raises(ProbeFailure, match=r"usage reports \d+ prompt tokens for \d+ behind a shared prefix"):
        check_shared_prefixes(session)
    session.client = Server(session.tokenizer, lambda ids: model_text(ids)[:9])
    with pytest.raises(ProbeFailure, match="9 ids for max_tokens 16"):
        check_shared_prefixes(session)


def test_prompts_that_say_nothing_are_listed_as_not_run(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(ids: Sequence[int]) -> list[int]:
        return model_text(ids[-8:])

    monkeypatch.setattr(Reference, "text", staticmethod(forgetful))
    session.client.answer = forgetful
    with pytest.raises(ProbeNotRun, match=r"resumed, another prefix, near-miss prefix .no prefix that was tried"):
        check_shared_prefixes(session)


def test_the_prefix_is_as_long_as_the_workloads_where_there_is_time(session: Any) -> None:
    session.workload = Workload(kind="shared_prefix", shared_prefix_tokens=4096, reuse="prefix")
    assert 480 - 32 - 62 <= prefix_tokens(session) < 480 - 32
    session.reference.max_tokens = 9000
    session.client.models = SimpleNamespace(
        list=lambda: SimpleNamespace(data=[SimpleNamespace(model_extra={"max_model_len": 8000})])
    )
    assert 512 - 62 <= prefix_tokens(session) < 512
    session.is_thorough = True
    assert 4096 - 62 <= prefix_tokens(session) < 4096
    session.workload = Workload(kind="chat")
    assert 16 <= prefix_tokens(session) < 64
