"""Guesses at a sequence's next tokens from the client's prediction. No tensors: ids in, ids out.

A drafter follows the output through the prediction. Where the two part it looks for the place in the prediction that
the output has reached. How much it offers follows from how often it was right so far, by how many tokens had agreed in
a row: much while the two agree, little right after a difference, nothing of a prediction that is of no use. Where the
prompt and the output so far promise more, as in text that the prediction lacks, it guesses from these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence as Items

MAX_SUFFIX_TOKENS = 8
"""of the output that are compared with the tokens before a place; more say nothing more"""
SURE_TOKENS = 3
"""that have agreed in a row: no other place is looked for"""
WINDOW_TOKENS = 32
"""of the prediction, before and behind the place in hand, where a shorter suffix than an anchor is looked for"""
ANCHOR_TOKENS = 2
"""found anywhere in the prediction: text that was moved, or a long part that is new or gone"""
MAX_ANCHORS = 32
"""nearest ones before, and as many behind, the place in hand: the same two tokens may be everywhere"""
DISTANCE_PENALTY = 0.02
"""in tokens of suffix, per token between the place in hand and another: white space and punctuation are everywhere"""
MAX_PENALTY = 2.0
PRIOR_CHANCES = (0.3, 0.55, 0.75, 0.85, 0.9, 0.9, 0.9, 0.9, 0.97)
"""that the next token is right, by the number that have agreed in a row (the last: that many or more)"""
PRIOR_WEIGHT = 8.0
"""guesses that the prior counts as"""
FORGETTING = 0.95
"""of earlier guesses, at each further one with as many in agreement"""
HISTORY_TOKENS = 3
"""that have to come again before something is guessed from the prompt or the output"""
MAX_MISSES = 4
"""drafts in a row of which nothing was right; then only what is convincing is tried"""
CONVINCING_TOKENS = 3
"""that have agreed in a row"""
RETRY_TOKENS = 32
"""without a guess, after which one is made where anything agrees: a useless prediction may become useful"""


class Drafter:
    """The state of one sequence. `observe` what was generated, then `propose` what may follow."""

    def __init__(self, prediction: Items[int], *, prompt: Items[int] = (), min_chance: float) -> None:
        self._prediction = tuple(prediction)
        self._history = History(prompt)
        self._min_chance = min_chance
        self._place = 0
        """index in the prediction of what should come next"""
        self._num_agreed = 0
        """last output tokens in a row that are the ones before the place"""
        self._num_seen = 0
        self._num_drafted = 0
        self._num_misses = 0
        self._drafted_at = 0
        self._taken: set[int] = set()
        self._chances = Chances()
        self._is_from_history = False
        self._anchors: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for end in range(ANCHOR_TOKENS, len(self._prediction) + 1):
            self._anchors[self._prediction[end - ANCHOR_TOKENS : end]].append(end)

    @property
    def num_accepted(self) -> int:
        """Predicted tokens that came where they were expected, each counted once."""
        return len(self._taken)

    def observe(self, output: Items[int]) -> None:
        """`output`: all ids generated so far, those of earlier calls first."""
        new = output[self._num_seen :]
        if self._num_drafted and new and not self._is_from_history:
            self._num_misses = self._num_misses + 1 if len(new) == 1 else 0
        for number, token in enumerate(new):
            is_right = self._place < len(self._prediction) and self._prediction[self._place] == token
            is_drafted = number < self._num_drafted
            self._history.add(token, is_guessed=is_drafted and self._is_from_history)
            if is_drafted and not self._is_from_history:
                self._chances.count(self._num_agreed, is_right=is_right)
            if is_right:
                self._taken.add(self._place)
            self._num_agreed = self._num_agreed + 1 if is_right else 0
            self._place += 1
        if new and self._num_agreed < SURE_TOKENS:
            self._locate(output)
        self._num_seen, self._num_drafted = len(output), 0

    def propose(self, limit: int) -> list[int]:
        """At most `limit` ids that may come next; none where the prediction has been no help."""
        num, promised = 0, 0.0
        if self._num_misses < MAX_MISSES or self._num_agreed >= CONVINCING_TOKENS:
            most = min(limit, len(self._prediction) - self._place)
            num, promised = self._chances.worth(self._num_agreed, most=most, min_chance=self._min_chance)
        draft, other = self._history.propose(limit, min_chance=self._min_chance)
        self._is_from_history = other > promised
        if self._is_from_history:
            self._num_drafted = len(draft)
            return draft
        if not num and self._num_agreed and self._num_seen - self._drafted_at >= RETRY_TOKENS:
            num = min(1, limit)
        draft = list(self._prediction[self._place : self._place + num])
        self._num_drafted = len(draft)
        if draft:
            self._drafted_at = self._num_seen
        return draft

    def _locate(self, output: Items[int]) -> None:
        """Move to the place whose tokens before it agree best with the end of the output, the nearest of equals."""
        best, best_score = self._place, float(self._num_agreed_before(self._place, output))
        last, end = output[-1], len(self._prediction)
        near = range(max(1, self._place - WINDOW_TOKENS), min(end, self._place + WINDOW_TOKENS) + 1)
        places = [place for place in near if self._prediction[place - 1] == last]
        places += self._anchored(tuple(output[-ANCHOR_TOKENS:]))
        for place in places:
            penalty = min(MAX_PENALTY, DISTANCE_PENALTY * abs(place - self._place))
            score = self._num_agreed_before(place, output) - penalty
            if score > best_score:
                best, best_score = place, score
        self._place, self._num_agreed = best, self._num_agreed_before(best, output)

    def _anchored(self, anchor: tuple[int, ...]) -> list[int]:
        """Places behind the anchor, the nearest."""
        found = self._anchors.get(anchor, [])
        middle = bisect_left(found, self._place)
        return found[max(0, middle - MAX_ANCHORS) : middle + MAX_ANCHORS]

    def _num_agreed_before(self, place: int, output: Items[int]) -> int:
        if place > len(self._prediction):
            return 0
        most = min(place, len(output), MAX_SUFFIX_TOKENS)
        num = 0
        while num < most and self._prediction[place - 1 - num] == output[-1 - num]:
            num += 1
        return num


class Chances:
    """How likely the next guess is right, by how many tokens have agreed before it."""

    def __init__(self) -> None:
        self._right = [PRIOR_WEIGHT * chance for chance in PRIOR_CHANCES]
        self._tried = [PRIOR_WEIGHT for _ in PRIOR_CHANCES]

    def of(self, num_agreed: int) -> float:
        index = min(num_agreed, len(PRIOR_CHANCES) - 1)
        return self._right[index] / self._tried[index]

    def worth(self, num_agreed: int, *, most: int, min_chance: float) -> tuple[int, float]:
        """How many guesses are likely enough, and how many of them will be right in the mean."""
        chance, num, promised = 1.0, 0, 0.0
        while num < most:
            chance *= self.of(num_agreed + num)
            if chance < min_chance:
                break
            num += 1
            promised += chance
        return num, promised

    def count(self, num_agreed: int, *, is_right: bool) -> None:
        index = min(num_agreed, len(PRIOR_CHANCES) - 1)
        self._right[index] = FORGETTING * self._right[index] + is_right
        self._tried[index] = FORGETTING * self._tried[index] + 1.0


class History:
    """Guesses from what stood behind the same tokens before, in the prompt or in the output (Saxena 2023)."""

    def __init__(self, prompt: Items[int]) -> None:
        self._tokens = list(prompt)
        self._chances = Chances()
        self._latest: dict[tuple[int, ...], int] = {}
        """the last place behind each run of tokens that something stood behind"""
        self._place = 0
        self._num_agreed = 0
        for end in range(HISTORY_TOKENS, len(self._tokens)):
            self._latest[tuple(self._tokens[end - HISTORY_TOKENS : end])] = end
        self._locate()

    def add(self, token: int, *, is_guessed: bool) -> None:
        """A further output token; `is_guessed`: its row held the guess from here."""
        is_right = self._place < len(self._tokens) and self._tokens[self._place] == token
        if is_guessed:
            self._chances.count(self._num_agreed, is_right=is_right)
        self._latest[tuple(self._tokens[-HISTORY_TOKENS:])] = len(self._tokens)
        self._tokens.append(token)
        if is_right:
            self._place, self._num_agreed = self._place + 1, self._num_agreed + 1
        else:
            self._locate()

    def propose(self, limit: int, *, min_chance: float) -> tuple[list[int], float]:
        """At most `limit` ids, and how many of them will be right in the mean."""
        if self._num_agreed < HISTORY_TOKENS:
            return [], 0.0
        most = min(limit, len(self._tokens) - self._place)
        num, promised = self._chances.worth(self._num_agreed, most=most, min_chance=min_chance)
        return self._tokens[self._place : self._place + num], promised

    def _locate(self) -> None:
        self._place = self._latest.get(tuple(self._tokens[-HISTORY_TOKENS:]), len(self._tokens))
        self._num_agreed = HISTORY_TOKENS if self._place < len(self._tokens) else 0
