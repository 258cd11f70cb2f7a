"""Probes of what no timed request asks: chat, and prompts up to the longest that the server accepts.

**Chat**: the reference says how a conversation goes on, as far as every token is so sure that honest rounding cannot
change it (`TextReference.sure_tokens`). The server is asked for exactly so many, as the stock client asks: without
log-probabilities, text only. Honest bf16 misses a sure token once in 10,000. One other reply is asked about again, with
other words; two refuse.

**Long prompts** end with a copy of a place far in front, so that what comes next stands there. The served ids are
re-scored under the whole prompt, and under pieces of it: a prompt says something only where the pieces would have been
answered otherwise. One wrong reply is asked about again, with another prompt; two in a row refuse.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from vibeserve.modalities.probe_http import ProbeNotRun, expect
from vibeserve.modalities.text.probe_session import REPLACEMENT, STABLE_GAP_NATS, ProbeSession
from vibeserve.workloads import longest_sequence_tokens

NUM_CHATS, NUM_THOROUGH_CHATS = 3, 12
CHAT_TOKENS = 6
MESSAGE_TOKENS = 24
MIN_SURE_TOKENS = 2
MAX_DRAWS = 8
"""prompts that are tried for one case"""
MAX_MISSES = 1
SCREEN_TOKENS = 320
"""longest prompt before a candidate is measured: the reference reads it twice, on the generator's cores"""
THOROUGH_TOKENS = 4096
"""longest prompt of a certification; what a server accepts beyond is listed as not run"""
NUM_THOROUGH_PROMPTS = 3
LONG_TIMEOUT_S = 240.0
COPIED_TOKENS = 12
SLACK_TOKENS = 4
"""a copied piece of text may become more tokens than it was"""
LONG_REPLY_TOKENS = 24
WRONG_NATS = 1.0
"""margins of one reply, summed, or twice the margin that one token may have: bf16 has 0.01 in the mean of 24 tokens,
half of a prompt left out 20 (docs/accuracy.md)"""
MAX_PROMPT_DRAWS = 4
HEAD_PLACE = (0.05, 0.2)
MIDDLE_PLACE = (0.3, 0.55)
"""where the copied place lies, as a share of the prompt"""


@dataclass(frozen=True)
class KnownChat:
    messages: tuple[dict[str, str], ...]
    token_ids: tuple[int, ...]


def check_chat_text(session: ProbeSession) -> None:
    """Chat is the model's own template over the messages, and the model's own text after it."""
    cases = session.prepared("chats", known_chats)
    misses = 0
    num_asked = 0
    for number, case in enumerate(cases):
        num_asked += 1
        misses += not _is_same(session, _chat_text(session, case, is_streamed=number % 2 == 1), case.token_ids)
        if misses > MAX_MISSES:
            break
    # one miss among few is asked about again
    if misses == 1 and num_asked < NUM_THOROUGH_CHATS:
        for case in islice(draw_chats(session, seed=session.seed + 1), num_asked):
            num_asked += 1
            misses += not _is_same(session, _chat_text(session, case, is_streamed=False), case.token_ids)
    expect(
        misses <= MAX_MISSES,
        f"{misses} of {num_asked} chats are not answered with the model's text after its chat template, though every "
        "token of it is sure",
    )


def check_long_context(session: ProbeSession) -> None:
    """Prompts beyond the workload's, up to what the server says that it accepts, are read whole."""
    unsaid = []
    for number, num_tokens in enumerate(long_lengths(session)):
        prompts = long_prompts(session, num_tokens=num_tokens, seed=session.seed + 10 * number)
        wrong: list[int] = []
        for ids, prompt, cuts in islice(prompts, MAX_PROMPT_DRAWS):
            is_right, tells = _read_whole(session, ids, prompt=prompt, cuts=cuts)
            wrong += [] if is_right else [len(ids)]
            expect(
                len(wrong) < 2,
                f"prompts of {' and '.join(map(str, wrong))} tokens are answered as if a part of them were not there",
            )
            if is_right and tells:
                break
        else:
            unsaid.append(f"prompts of {num_tokens} tokens (no part that was tried changes the model's text)")
    limit = accepted_tokens(session)
    if session.is_thorough and limit > THOROUGH_TOKENS:
        unsaid.append(f"prompts beyond {THOROUGH_TOKENS} tokens (the runtime accepts {limit})")
    if unsaid:
        raise ProbeNotRun("; ".join(unsaid))


def prepare_known(session: ProbeSession) -> None:
    """Begin with what the chats ask: the reference takes its time, and the server is waited for most of it."""
    session.prepare("chats", known_chats)


def _read_whole(session: ProbeSession, ids: list[int], *, prompt: str, cuts: Sequence[list[int]]) -> tuple[bool, bool]:
    """Whether the reply is the model's after the whole prompt, and whether after every cut it would be another."""
    answer: Any = session.client.with_options(timeout=LONG_TIMEOUT_S).completions.create(
        model=session.model, prompt=prompt, max_tokens=LONG_REPLY_TOKENS, temperature=0.0,
        extra_body={"return_token_ids": True, "ignore_eos": True},
    )  # fmt: skip
    counted, served = answer.usage.prompt_tokens, (answer.choices[0].model_extra or {}).get("token_ids") or []
    expect(counted == len(ids), f"usage reports {counted} prompt tokens for {len(ids)}")
    expect(len(served) == LONG_REPLY_TOKENS, f"{len(served)} ids for max_tokens {LONG_REPLY_TOKENS}")
    whole, *others = known_reference(session).score_ids([(each, served) for each in (ids, *cuts)])
    expect(not whole["problem"], whole["problem"])
    return not is_off(session, whole["margins"]), all(is_off(session, each["margins"]) for each in others)


def is_off(session: ProbeSession, margins: Sequence[float]) -> bool:
    worst = 2 * session.tolerances.disagreement_margin_max_nats
    return not (sum(margins) < WRONG_NATS and max(margins) < worst)


def _chat_text(session: ProbeSession, case: KnownChat, *, is_streamed: bool) -> str:
    options: dict[str, Any] = {
        "model": session.model, "messages": list(case.messages), "max_tokens": len(case.token_ids), "temperature": 0.0,
    }  # fmt: skip
    if not is_streamed:
        return session.client.chat.completions.create(**options).choices[0].message.content or ""
    stream: Any = session.client.chat.completions.create(**options, stream=True)
    return "".join(choice.delta.content or "" for event in stream for choice in event.choices)


def _is_same(session: ProbeSession, text: str, token_ids: Sequence[int]) -> bool:
    """Byte for byte; a server may hold back the bytes of a character that the last token left incomplete."""
    decoded = session.tokenizer.decode(list(token_ids))
    return text in (decoded, decoded.rstrip(REPLACEMENT))


def known_chats(session: ProbeSession) -> list[KnownChat]:
    """The chats that are asked, of fresh words; ProbeNotRun for a model without a chat template."""
    num = NUM_THOROUGH_CHATS if session.is_thorough else NUM_CHATS
    return list(islice(draw_chats(session, seed=session.seed), num))


def draw_chats(session: ProbeSession, *, seed: int) -> Iterator[KnownChat]:
    reference = known_reference(session)
    texts = (request.prompt for request in session.stream(MESSAGE_TOKENS, seed=seed))
    number = failed = 0
    while failed < MAX_DRAWS:
        messages = _messages(texts, shape=number)
        ids = reference.chat_prompt(messages)
        if ids is None:
            raise ProbeNotRun("chat: the model has no chat template")
        sure = reference.sure_tokens(ids, max_tokens=CHAT_TOKENS, gap_nats=_gap_nats(session))
        # special tokens alone decode to nothing
        if len(sure) >= MIN_SURE_TOKENS and session.tokenizer.decode(sure).strip(REPLACEMENT):
            yield KnownChat(tuple(messages), tuple(sure))
            number, failed = number + 1, 0
        else:
            failed += 1
    raise ProbeNotRun(f"chat: the model is sure of no reply ({MAX_DRAWS} conversations were tried)")


def _messages(texts: Iterator[str], *, shape: int) -> list[dict[str, str]]:
    """A question, one under a system message, and one with a turn before it, in turns."""
    roles = (("user",), ("system", "user"), ("user", "assistant", "user"))[shape % 3]
    return [{"role": role, "content": next(texts)} for role in roles]


def long_lengths(session: ProbeSession) -> list[int]:
    """One below `SCREEN_TOKENS`; in a thorough session also the longest that is accepted, and some between."""
    generator = random.Random(f"long-{session.seed}")
    limit = accepted_tokens(session)
    short = min(limit, SCREEN_TOKENS)
    lengths = [generator.randint(short * 3 // 4, short)]
    longest = min(limit, THOROUGH_TOKENS)
    if session.is_thorough and longest > short:
        num_between = NUM_THOROUGH_PROMPTS - 1
        lengths += [round(short * (longest / short) ** generator.random()) for _ in range(num_between)] + [longest]
    return lengths


def accepted_tokens(session: ProbeSession) -> int:
    """Longest sequence that the server says it accepts (`max_model_len` of /v1/models, as vLLM has it), else that of
    the workload; never more than the model's positions."""
    served = (session.client.models.list().data[0].model_extra or {}).get("max_model_len")
    limits = [served if isinstance(served, int) and served > 0 else longest_sequence_tokens(session.workload)]
    limits += [limit] if (limit := known_reference(session).max_tokens) else []
    return min(limits)


def long_prompts(
    session: ProbeSession, *, num_tokens: int, seed: int
) -> Iterator[tuple[list[int], str, tuple[list[int], ...]]]:
    """(ids, text, pieces of the ids) of prompts that leave room for the reply in `num_tokens`, or lack a few tokens."""
    generator = random.Random(f"place-{seed}")
    size = max(2 * COPIED_TOKENS, num_tokens - COPIED_TOKENS - LONG_REPLY_TOKENS - SLACK_TOKENS)
    for number, request in enumerate(session.stream(size, seed=seed)):
        is_head = (seed + number) % 2 == 0
        start = round(size * generator.uniform(*(HEAD_PLACE if is_head else MIDDLE_PLACE)))
        copied = session.tokenizer.encode(request.prompt).ids[start : start + COPIED_TOKENS]
        prompt = f"{request.prompt}{session.tokenizer.decode(copied)}"
        ids = session.tokenizer.encode(prompt).ids
        if len(ids) + LONG_REPLY_TOKENS <= num_tokens:
            yield ids, prompt, _without_head(ids) if is_head else _without_middle(ids)


def _without_head(ids: list[int]) -> tuple[list[int], ...]:
    """What a clipped prompt, and a much clipped one, would leave."""
    return ids[-(len(ids) // 4) :], ids[-(len(ids) * 5 // 8) :], ids[len(ids) // 4 :]


def _without_middle(ids: list[int]) -> tuple[list[int], ...]:
    """What a cache with its first tokens and a window would leave."""
    return ids[:4] + ids[-(len(ids) // 4) :], ids[: len(ids) // 4] + ids[len(ids) * 7 // 10 :]


def _gap_nats(session: ProbeSession) -> float:
    return max(STABLE_GAP_NATS, session.tolerances.disagreement_margin_max_nats)


def known_reference(session: ProbeSession) -> Any:
    reference = session.reference
    if reference is None or not callable(getattr(reference, "sure_tokens", None)):
        raise ProbeNotRun("chat and longest prompts: the target's own reference has no sure_tokens")
    return reference


KNOWN_CHECKS: dict[str, Callable[[ProbeSession], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}
