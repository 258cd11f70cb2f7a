"""Chat and long prompts against a reference that is scripted: what is asked, what refuses, what is only listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from vibeserve.core.nouns import PromptRequest
from vibeserve.modalities.probe_http import ProbeFailure, ProbeNotRun
from vibeserve.modalities.text import probe_known
from vibeserve.modalities.text.probe_known import LONG_REPLY_TOKENS, NUM_THOROUGH_CHATS, check_chat_text
from vibeserve.modalities.text.probe_known import check_long_context as check_long
from vibeserve.spec import Tolerances, Workload

Ids = Sequence[int]


class Letters:
    """A tokenizer of one id a character."""

    def encode(self, text: str) -> Any:
        return SimpleNamespace(ids=[ord(letter) for letter in text])

    def decode(self, ids: Ids) -> str:
        return "".join(map(chr, ids))


def answer(ids: Ids, num: int) -> list[int]:
    """What the model says: it depends on every id before it."""
    return [97 + (sum((place + 1) * each for place, each in enumerate(ids)) + n) % 26 for n in range(num)]


@dataclass
class Reference:
    has_template: bool = True
    max_tokens: int | None = 1000
    num_sure: int = 6

    def chat_prompt(self, messages: Sequence[dict[str, str]]) -> list[int] | None:
        text = "".join(f"<{each['role']}>{each['content']}" for each in messages)
        return [ord(letter) for letter in text] if self.has_template else None

    def sure_tokens(self, ids: Ids, *, max_tokens: int, gap_nats: float) -> list[int]:
        assert gap_nats == 0.25, "the margin that no honest server reaches"
        return answer(ids, min(max_tokens, self.num_sure))

    def score_ids(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[dict[str, Any]]:
        return [
            {"margins": [0.0 if a == b else 0.6 for a, b in zip(answer(ids, len(served)), served, strict=True)],
             "problem": ""}
            for ids, served in pairs
        ]  # fmt: skip

    def next_logprobs(self, ids: Ids) -> list[float]:
        raise AssertionError("not needed")


@dataclass
class Session:
    """A server that keeps the last `window` ids of a prompt, and cans every `canned`th chat."""

    reference: Reference = field(default_factory=Reference)
    is_thorough: bool = False
    window: int = 10**6
    canned: int = 0
    limit: int | None = 900
    seed: int = 3
    tokenizer: Letters = field(default_factory=Letters)
    tolerances: Tolerances = field(default_factory=Tolerances)
    workload: Workload = field(default_factory=Workload)
    model: str = "m"
    asked: list[int] = field(default_factory=list)
    chats: int = 0

    @property
    def client(self) -> Any:
        listed = SimpleNamespace(data=[SimpleNamespace(model_extra={"max_model_len": self.limit})])
        completions = SimpleNamespace(create=self.complete)
        made = SimpleNamespace(
            models=SimpleNamespace(list=lambda: listed), completions=completions,
            chat=SimpleNamespace(completions=SimpleNamespace(create=self.chat)),
        )  # fmt: skip
        made.with_options = lambda **_: made
        return made

    def prepared(self, name: str, make: Any) -> Any:
        return make(self)

    def stream(self, num_tokens: int, *, seed: int) -> Iterator[PromptRequest]:
        for number in range(100):
            letters = (chr(97 + (seed * 7 + number * 11 + place * place) % 26) for place in range(num_tokens))
            yield PromptRequest(request_id="r", prompt="".join(letters), num_prompt_tokens=num_tokens, max_tokens=1)

    def complete(self, *, prompt: str, max_tokens: int, **_: Any) -> Any:
        ids = [ord(letter) for letter in prompt]
        self.asked.append(len(ids))
        served = answer(ids[-self.window :], max_tokens)
        usage = SimpleNamespace(prompt_tokens=len(ids))
        return SimpleNamespace(usage=usage, choices=[SimpleNamespace(model_extra={"token_ids": served})])

    def chat(self, *, messages: list[dict[str, str]], max_tokens: int, stream: bool = False, **options: Any) -> Any:
        assert options == {"model": "m", "temperature": 0.0}, "as the stock client asks, and nothing that gives it away"
        self.chats += 1
        text = self.tokenizer.decode(answer(self.reference.chat_prompt(messages) or [], max_tokens))
        if self.canned and self.chats % self.canned == 0:
            text = "canned"
        if stream:
            return [SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content=each))]) for each in text]
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=text))])


def session(**options: Any) -> Any:
    return Session(**options)


def test_the_models_own_chat_passes() -> None:
    few, many = session(), session(is_thorough=True)
    check_chat_text(few)
    check_chat_text(many)
    assert (few.chats, many.chats) == (3, NUM_THOROUGH_CHATS)


@pytest.mark.parametrize("canned", [1, 2])
def test_canned_chat_is_refused(canned: int) -> None:
    with pytest.raises(
        ProbeFailure, match=r"[23] of \d chats are not answered with the model's text after its chat templa"
    ):
        check_chat_text(session(canned=canned))


def test_one_other_reply_is_asked_about_again() -> None:
    once = session(canned=3)
    once.chats = 0
    with pytest.raises(ProbeFailure, match="2 of 6 chats"):
        check_chat_text(once)
    rare = session(canned=7)
    rare.chats = 5
    check_chat_text(rare)
    assert rare.chats == 11


def test_a_model_without_a_template_is_listed() -> None:
    with pytest.raises(ProbeNotRun, match="chat: the model has no chat template"):
        check_chat_text(session(reference=Reference(has_template=False)))
    with pytest.raises(ProbeNotRun, match="the model is sure of no reply"):
        check_chat_text(session(reference=Reference(num_sure=1)))


def test_whole_prompts_pass_up_to_the_accepted_length() -> None:
    few, many = session(), session(is_thorough=True)
    check_long(few)
    check_long(many)
    assert len(few.asked) == 1 and 200 < few.asked[0] < 320
    assert len(set(many.asked)) == 4
    assert 900 - LONG_REPLY_TOKENS - 8 <= many.asked[-1] <= 900 - LONG_REPLY_TOKENS


@pytest.mark.parametrize(("window", "is_thorough"), [(200, False), (500, True), (800, True)])
def test_clipped_prompts_are_refused(window: int, is_thorough: bool) -> None:
    with pytest.raises(ProbeFailure, match="tokens are answered as if a part of them were not there"):
        check_long(session(window=window, is_thorough=is_thorough))


def test_the_limit_is_the_least_of_the_servers_and_the_models() -> None:
    assert probe_known.accepted_tokens(session(limit=900)) == 900
    assert probe_known.accepted_tokens(session(limit=5000)) == 1000
    declared = session(limit=None, workload=Workload(prompt_tokens_max=300, output_tokens_max=50))
    assert probe_known.accepted_tokens(declared) == 350


def test_what_lies_beyond_the_longest_prompt_is_listed() -> None:
    huge = session(limit=10_000, reference=Reference(max_tokens=None), is_thorough=True)
    with pytest.raises(ProbeNotRun, match=r"prompts beyond 4096 tokens \(the runtime accepts 10000\)"):
        check_long(huge)


def test_a_prompt_that_no_part_changes_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "answer", lambda ids, num: [97] * num)
    with pytest.raises(ProbeNotRun, match=r"prompts of \d+ tokens \(no part that was tried changes the model's text\)"):
        check_long(session())


def test_a_targets_own_reference_without_tokens_is_listed() -> None:
    with pytest.raises(ProbeNotRun, match="the target's own reference has no sure_tokens"):
        check_long(session(reference=SimpleNamespace()))
