"""When an idea is one that was had before. Deterministic, so that a search that goes on decides as it did.

Two rules, by what a proposal is:

- It assembles something else than the incumbent: alike are the same components with the same parameters, every default
  filled in. Of several settings that are halved, all have to be known.
- It is code to be written: alike are the words. Title and mechanism become sets of lower-case words, endings and small
  words left out; the likeness is the mean of both Jaccard indices (1 where either text is the same), alike from
  `MIN_LIKENESS` on. So are those of a proposal without a card that assembles something else as well.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from vibeserve.core.documents import digest_of
from vibeserve.core.nouns import Proposal
from vibeserve.errors import SpecError
from vibeserve.planning.backlog import Backlog, Change, Item, ItemState
from vibeserve.skills import Scaffold, Skill, declared_parameters, resolve
from vibeserve.skills.card import Value
from vibeserve.skills.resolve import parameter_values

MIN_LIKENESS = 0.5
MIN_CHANGED_WORDS = 2
"""of what is named as changed: less says nothing"""
KEY_CHARS = 16
SMALL_WORDS = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "into", "is", "it", "its", "of", "on", "one",
    "only", "or", "so", "than", "that", "the", "their", "them", "then", "they", "this", "to", "use", "we", "when",
    "where", "which", "while", "will", "with",
))  # fmt: skip
ENDINGS = ("ing", "ed", "es", "s")
MIN_STEM_CHARS = 3


@lru_cache(maxsize=1 << 16)
def words_of(text: str) -> frozenset[str]:
    """The words that carry meaning, without endings."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return frozenset(_stem(word) for word in re.findall(r"[^\W_]+", plain) if word not in SMALL_WORDS)


def _stem(word: str) -> str:
    """`fuse`, `fused` and `fusing` are one word, and so are `query` and `queries`, `run` and `running`."""
    if word.endswith("ies") and len(word) > MIN_STEM_CHARS + 2:
        return word.removesuffix("ies") + "y"
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM_CHARS:
            word = word.removesuffix(ending)
            break
    if len(word) > MIN_STEM_CHARS and word[-1] == word[-2]:
        return word[:-1]
    return word.removesuffix("e") if len(word) > MIN_STEM_CHARS else word


def likeness(first: Proposal | Change, second: Proposal | Change) -> float:
    """0 to 1, from title and mechanism."""
    pairs = [(words_of(a), words_of(b)) for a, b in ((first.title, second.title), (first.mechanism, second.mechanism))]
    said = [(one, other) for one, other in pairs if one and other]
    if any(one == other for one, other in said):
        return 1.0
    return sum(len(one & other) / len(one | other) for one, other in said) / len(said) if said else 0.0


def assembly_key(components: Iterable[str], parameters: Mapping[str, Value]) -> str:
    """Digest of one assembly."""
    return digest_of({"components": sorted(components), "parameters": dict(parameters)})[:KEY_CHARS]


def keys_of(
    proposal: Proposal, *, incumbent: tuple[Sequence[str], Mapping[str, Value]], scaffold: Scaffold,
    skills: Sequence[Skill],
) -> tuple[str, ...]:  # fmt: skip
    """Keys of what the proposal assembles; empty where it leaves the incumbent's assembly as it is, or names none.

    `incumbent`: components and parameters.
    """
    if not proposal.components and not proposal.parameters and not proposal.card:
        return ()
    now = _key(*incumbent, scaffold=scaffold, skills=skills)
    offered = proposal.variants or (proposal.parameters,)
    keys = dict.fromkeys(_key(proposal.components, each, scaffold=scaffold, skills=skills) for each in offered)
    return tuple(key for key in keys if key != now)


def _key(
    components: Sequence[str], parameters: Mapping[str, Value], *, scaffold: Scaffold, skills: Sequence[Skill]
) -> str:
    """With what the components bring along and every default; as it is written where that cannot be resolved."""
    try:
        chosen = resolve(components, skills)
        values = parameter_values(declared_parameters(scaffold, chosen), parameters)
    except SpecError:
        return assembly_key(components, parameters)
    return assembly_key([skill.name for skill in chosen], values)


def alike(proposal: Proposal, *, keys: Sequence[str], items: Iterable[Item]) -> list[Item]:
    """Those of `items` that are the same idea, the newest last."""
    if keys:
        return [item for item in items if item.last.keys and set(keys) & set(item.last.keys)]
    return [item for item in items if not item.last.keys and likeness(proposal, item.last) >= MIN_LIKENESS]


def like_abandoned(proposal: Proposal, *, keys: Sequence[str], backlog: Backlog) -> Item | None:
    """The abandoned idea that the proposal repeats without saying what changed; None where it may be tried."""
    abandoned = backlog.of(ItemState.ABANDONED)
    same = alike(proposal, keys=keys, items=abandoned)
    known = {key for item in same for key in item.last.keys}
    if not set(keys) <= known:
        same = []
    if keys and not proposal.card:
        # code that was given up is no other idea for a setting that comes with it
        same = [*same, *alike(proposal, keys=(), items=abandoned)]
    if not same:
        return None
    said = words_of(proposal.what_changed)
    is_new = len(said) >= MIN_CHANGED_WORDS and all(said != words_of(item.last.what_changed) for item in same)
    return None if is_new else same[-1]
