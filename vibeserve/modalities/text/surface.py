"""What a reply shows on its face: lengths, usage, ids against text, first tokens, echoed prompts.

Everything here is counted by the client; the server's own figures are only compared. Missing data refuses. Equal
replies to different prompts, and replies that are a piece of their prompt, are not refused here: small models behind a
long shared prefix, and edits of code, honestly give both; nor is one first token for all prompts, which JSON has.
Where they are wrong, they are far off when re-scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.contract import CUT, Finding
from vibeserve.core.nouns import Reply

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_TOKEN_ID = 2**32 - 1
"""what a tokenizer can be asked for; larger ids decode to nothing"""
REPLACEMENT = "\ufffd"
"""what decoders emit for bytes that are not (yet) UTF-8"""
MIN_COPY_TOKENS = 8
"""of the prompt's beginning; fewer may come back by chance"""
MIN_BURST_TOKENS = 16
BURST_GAP_SHARE = 0.8
"""of the time between first and last byte, spent in silence right after the first chunk"""
MAX_SUSPECT_SHARE = 0.2
"""of replies that may look echoed by chance"""


@dataclass(frozen=True)
class _Checked:
    """A complete reply with its prompt's ids and the decodings of its ids that count as exact."""

    reply: Reply
    prompt_ids: tuple[int, ...]
    decodings: tuple[str, ...]


@dataclass(frozen=True)
class _Rule:
    gate: str
    reason_class: str
    find: Callable[[Sequence[_Checked], Collection[int]], Iterator[str]]


def surface_findings(replies: Sequence[Reply], *, tokenizer: Tokenizer, eos_ids: Collection[int] = ()) -> list[Finding]:
    """Findings over the replies of one server. Replies that the load's end cut off are judged as far as they came:
    their tokens were counted, so they must be accounted for by ids.

    `eos_ids`: the model's end tokens, needed where requests do not ignore EOS. One finding per rule, with a count and
    one example by request id, so that no prompt leaks into feedback.
    """
    complete = [_prepare(reply, tokenizer=tokenizer) for reply in replies if reply.error is None]
    cut = [_prepare(reply, tokenizer=tokenizer) for reply in replies if reply.error == CUT]
    return _apply(_RULES, complete, eos_ids=eos_ids) + _apply(_CUT_RULES, cut, eos_ids=eos_ids)


def _apply(rules: Sequence[_Rule], items: Sequence[_Checked], *, eos_ids: Collection[int]) -> list[Finding]:
    findings = []
    for rule in rules:
        found = list(rule.find(items, eos_ids))
        if found:
            text = f"{found[0]} ({len(found)} of {len(items)} replies)"
            findings.append(Finding(gate=rule.gate, reason_class=rule.reason_class, text=text))
    return findings


def _prepare(reply: Reply, *, tokenizer: Tokenizer) -> _Checked:
    ids = list(reply.token_ids)
    prompt_ids = tuple(tokenizer.encode(reply.request.prompt).ids)
    if any(token > MAX_TOKEN_ID for token in ids):
        return _Checked(reply, prompt_ids, ())
    decodings = (tokenizer.decode(ids, skip_special_tokens=True), tokenizer.decode(ids, skip_special_tokens=False))
    return _Checked(reply, prompt_ids, decodings)


def _same_text(text: str, decodings: Sequence[str]) -> bool:
    """Byte for byte; a server may hold back the bytes of a character that its last token left incomplete."""
    return any(text == decoded or text == decoded.rstrip(REPLACEMENT) for decoded in decodings)


def _name(item: _Checked) -> str:
    return item.reply.request.request_id


def _find_missing_ids(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in complete:
        if not item.reply.token_ids:
            yield f"{_name(item)} carries no token ids"


def _find_truncated(complete: Sequence[_Checked], eos_ids: Collection[int]) -> Iterator[str]:
    for item in complete:
        request, num_ids, reason = item.reply.request, len(item.reply.token_ids), item.reply.finish_reason
        if num_ids >= request.max_tokens:
            continue
        if request.ignore_eos and not request.stop:
            yield f"{_name(item)} has {num_ids} of {request.max_tokens} tokens"
        elif reason != "stop":
            yield f"{_name(item)} ended after {num_ids} of {request.max_tokens} tokens with finish_reason {reason!r}"


def _find_padded(complete: Sequence[_Checked], eos_ids: Collection[int]) -> Iterator[str]:
    for item in complete:
        request, ids = item.reply.request, item.reply.token_ids
        if len(ids) > request.max_tokens:
            yield f"{_name(item)} has {len(ids)} tokens, asked were {request.max_tokens}"
        elif not request.ignore_eos and any(token in eos_ids for token in ids[:-1]):
            yield f"{_name(item)} goes on after the end token"


def _find_finish(complete: Sequence[_Checked], eos_ids: Collection[int]) -> Iterator[str]:
    for item in complete:
        request, ids, reason = item.reply.request, item.reply.token_ids, item.reply.finish_reason
        if reason not in ("length", "stop"):
            yield f"{_name(item)} has finish_reason {reason!r}, not 'length' or 'stop'"
        elif request.ignore_eos and not request.stop and reason != "length":
            yield f"{_name(item)} ignores EOS and has finish_reason {reason!r}"
        elif reason == "length" and len(ids) < request.max_tokens:
            yield f"{_name(item)} says 'length' after {len(ids)} of {request.max_tokens} tokens"


def _find_usage(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in complete:
        usage, num_ids, num_prompt = item.reply.usage, len(item.reply.token_ids), item.reply.request.num_prompt_tokens
        if usage is None:
            yield f"{_name(item)} carries no usage"
        elif usage.completion_tokens != num_ids:
            yield f"{_name(item)} reports {usage.completion_tokens} completion tokens and returned {num_ids} ids"
        elif usage.prompt_tokens != num_prompt:
            yield f"{_name(item)} reports {usage.prompt_tokens} prompt tokens, the prompt has {num_prompt}"


def _find_text(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in complete:
        text, has_stop = item.reply.text, bool(item.reply.request.stop)
        # a stop string is cut off the text and not off the ids
        is_same = (
            any(decoded.startswith(text) for decoded in item.decodings)
            if has_stop
            else _same_text(text, item.decodings)
        )
        if item.reply.token_ids and not is_same:
            yield f"{_name(item)} streams {len(item.reply.text)} characters that are not the decoding of its ids"


def _find_unaccounted_first(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    """First content that is no part of the final text: a chunk sent before anything was computed."""
    for item in complete:
        first = next((chunk.text for chunk in item.reply.chunks if chunk.text), "")
        if not first:
            yield f"{_name(item)} has no content"
        elif not any(decoded.startswith(first) for decoded in item.decodings):
            yield f"{_name(item)}: its first content is no prefix of the text of its ids"


def _find_burst(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    """One early chunk, silence, then everything at once, in most replies: the first chunk was not generated."""
    long = [item for item in complete if len(item.reply.token_ids) >= MIN_BURST_TOKENS]
    suspects = [item for item in long if _is_burst(item.reply)]
    if len(suspects) > len(long) / 2:
        yield from (
            f"{_name(item)} is silent after its first chunk and arrives at once at the end" for item in suspects
        )


def _is_burst(reply: Reply) -> bool:
    timed = [chunk for chunk in reply.chunks if chunk.text or chunk.token_ids]
    if len(timed) < 2 or len(timed[0].token_ids) > len(reply.token_ids) / 4:
        return False
    span_s = timed[-1].at_s - timed[0].at_s
    return math.isfinite(span_s) and span_s > 0 and (timed[1].at_s - timed[0].at_s) / span_s > BURST_GAP_SHARE


def _find_echo(complete: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    suspects = [item for item in complete if _is_echo(item)]
    if len(suspects) > MAX_SUSPECT_SHARE * len(complete):
        yield from (f"{_name(item)} repeats its prompt" for item in suspects)


def _is_echo(item: _Checked) -> bool:
    """The prompt's beginning, which holds its nonce, comes back."""
    ids = item.reply.token_ids
    return len(ids) >= MIN_COPY_TOKENS and ids[:MIN_COPY_TOKENS] == item.prompt_ids[:MIN_COPY_TOKENS]


def _find_unaccounted_cut(cut: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in cut:
        if item.reply.text and not item.reply.token_ids:
            yield f"{_name(item)}, cut off, has text and no token ids"


def _find_cut_text(cut: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in cut:
        if item.reply.token_ids and not any(decoded.startswith(item.reply.text) for decoded in item.decodings):
            yield f"{_name(item)}, cut off, streams text that its ids do not begin with"


def _find_endless(cut: Sequence[_Checked], _: Collection[int]) -> Iterator[str]:
    for item in cut:
        if len(item.reply.token_ids) > item.reply.request.max_tokens:
            yield f"{_name(item)}, cut off, has {len(item.reply.token_ids)} tokens of {item.reply.request.max_tokens}"


_CUT_RULES = (
    _Rule("stream", "missing_ids", _find_unaccounted_cut),
    _Rule("stream", "text_ids_mismatch", _find_cut_text),
    _Rule("lengths", "padded", _find_endless),
)

_RULES = (
    _Rule("stream", "missing_ids", _find_missing_ids),
    _Rule("lengths", "truncated", _find_truncated),
    _Rule("lengths", "padded", _find_padded),
    _Rule("lengths", "wrong_finish_reason", _find_finish),
    _Rule("usage", "usage_mismatch", _find_usage),
    _Rule("stream", "fake_first_token", _find_unaccounted_first),
    _Rule("stream", "fake_first_token", _find_burst),
    _Rule("stream", "text_ids_mismatch", _find_text),
    _Rule("accuracy", "echo", _find_echo),
)
