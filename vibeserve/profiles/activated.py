"""Whether anything of what a proposal changed was seen to run: the one thing that a profile may hold against a round.

It answers yes only where nothing else is possible but code that takes too little time to be seen. Whoever withholds
something for it has to ask an A/B with the path off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.core.nouns import Activation, ActivationState
from vibeserve.profiles.activation import definitions_of, was_seen
from vibeserve.profiles.changes import ChangedFunction, Changes, changes_of
from vibeserve.profiles.documents import STACKS, Profile, Structure
from vibeserve.profiles.ranking import MAX_FUNCTIONS

MIN_LOOKS = 150
"""samples from which on silence says something: code that takes 2% of the time is then seen with 95% (rule of three,
Hanley and Lippman-Hand 1983)"""
RULE_OF_THREE = 3
MAX_TOLD = 4


def judged_activation(found: Activation, *, profile: Profile | None, workspace: Path, parent: Path) -> Activation:
    """`found`, or `not activated` where none of all the code that differs from the parent's was seen. A function that
    is as it was says nothing, also where its file differs; a library's symbol that is new does."""
    has_new_symbol = any(not name.startswith("runtime/") for name in found.seen)
    if profile is None or has_new_symbol or not is_telling(profile):
        return found
    changes = changes_of(workspace, parent=parent)
    if why_unknown(changes) or _has_run(changes, profile.structure, workspace=workspace):
        return found
    return replace(
        found,
        state=ActivationState.NOT_ACTIVATED,
        text=_text(changes.functions, profile),
        seen=(),
        unseen=found.seen + found.unseen,
    )


def is_telling(profile: Profile) -> bool:
    """Silence of this profile says something: it looked from outside, often enough, at a server that ran as always."""
    functions = profile.structure.functions
    return (
        profile.tool == STACKS
        and not profile.is_own_word
        and profile.is_timed
        and profile.num_samples >= MIN_LOOKS
        and 0 < len(functions) < MAX_FUNCTIONS  # at the bound some were left out
    )


def why_unknown(changes: Changes) -> str:
    """Why a profile cannot tell whether these changes acted; empty where it can."""
    if changes.elsewhere:
        return f"it changes more than functions: {changes.elsewhere[0]}"
    if not changes.functions:
        return "it changes no function"
    if all(each.is_hidden or each.is_at_start for each in changes.functions):
        return "what it changes is too short to be seen, or runs as the server starts"
    return ""


def _has_run(changes: Changes, structure: Structure, *, workspace: Path) -> bool:
    ran: dict[str, set[str]] = {}
    for text in structure.functions:
        file, _, name = text.partition(":")
        ran.setdefault(file, set()).update(re.findall(r"\w+", name))
    if any(each.name.rpartition(".")[2] in ran.get(each.file, ()) for each in changes.functions):
        return True
    native = [each for each in definitions_of(workspace) if each.is_native and each.file in changes.native]
    return any(was_seen(each, structure) for each in native)


def _text(functions: Sequence[ChangedFunction], profile: Profile) -> str:
    told = ", ".join(map(str, functions[:MAX_TOLD]))
    more = f" and {len(functions) - MAX_TOLD} more" if len(functions) > MAX_TOLD else ""
    share = RULE_OF_THREE / profile.num_samples
    return (
        f"nothing of what it changes was seen in {profile.num_samples} samples, which show whatever takes {share:.1%} "
        f"of the time: {told}{more}"
    )
