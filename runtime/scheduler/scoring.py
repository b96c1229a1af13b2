"""Which tokens' log-probabilities a sequence's logits are asked for: its own prompt's, or those of choices that may
follow it.

Positions are those of the tokens that are scored: how likely a token at position p is tell the logits of p − 1. The
choices of a score are a tree, of which nothing is computed twice: ChoiceTree cuts it into sequences. Knows no steps
and no cache. Made by intake; read where rows are made, filled where their results come in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from palmette.radix_cache.key import common_tokens
from palmette.runtime.messages.replies import TokenLogprob
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, unpack


class Scoring(ABC):
    """`next`: the first position that isn't scored yet; `end`: behind the last. `top_count`: of the most likely tokens
    that are reported beside them."""

    def __init__(self, first: int, end: int, *, top_count: int = 0) -> None:
        self.first = self.next = first
        self.end = end
        self.top_count = top_count

    @abstractmethod
    def tokens(self, position: int) -> Sequence[int]:
        """Those to be scored there, at least one."""

    @abstractmethod
    def take(self, position: int, scored: Sequence[TokenLogprob]) -> None:
        """What `tokens` of the next position came to."""

    @property
    def over(self) -> bool:
        return self.next >= self.end

    @property
    @abstractmethod
    def own(self) -> Sequence[float]:
        """Of the prompt's tokens from `first` on."""

    @property
    def beside(self) -> Mapping[int, Mapping[int, float]]:
        """By position and token, those of tokens that only might stand there."""
        return {}


class PromptScoring(Scoring):
    """A prompt's own tokens, from position `first` on."""

    def __init__(self, prompt: bytes, first: int, top_count: int) -> None:
        super().__init__(first, count(prompt), top_count=top_count)
        self._tokens = unpack(prompt)
        self.results: list[TokenLogprob] = []

    def tokens(self, position: int) -> Sequence[int]:
        return self._tokens[position : position + 1]

    def take(self, position: int, scored: Sequence[TokenLogprob]) -> None:
        self.results += scored
        self.next = position + 1

    @property
    def own(self) -> Sequence[float]:
        return [result.logprob for result in self.results if result.logprob is not None]


class ChoiceScoring(Scoring):
    """The sequence's own tokens from `first` on, and at some positions others, one behind its end among them: the last
    token of a choice has to be scored, not computed.

    `spared`: tokens of the choices that need no computing through this sequence.
    """

    def __init__(self, prefix: int, stem: Sequence[int], first: int) -> None:
        """`stem`: the sequence's tokens behind the `prefix` tokens that all choices share."""
        super().__init__(first, prefix + len(stem) + 1)
        self._prefix = prefix
        self._stem = stem
        self._own: list[float] = []
        self._beside: dict[int, dict[int, float]] = {}
        self._others: dict[int, dict[int, None]] = {}  # in order, each once
        self.spared = 0

    def add(self, position: int, token: int) -> None:
        """`token` is to be scored at `position`, too."""
        if not self._is_own(position, token):
            self._others.setdefault(position, {})[token] = None

    def _is_own(self, position: int, token: int) -> bool:
        at = position - self._prefix
        return at < len(self._stem) and self._stem[at] == token

    def tokens(self, position: int) -> Sequence[int]:
        at = position - self._prefix
        return [*self._stem[at : at + 1], *self._others.get(position, ())]

    def take(self, position: int, scored: Sequence[TokenLogprob]) -> None:
        values = {each.token: each.logprob for each in scored if each.logprob is not None}
        at = position - self._prefix
        if at < len(self._stem):
            self._own.append(values.pop(self._stem[at]))
        if values:
            self._beside[position] = values
        self.next = position + 1

    def of(self, position: int, token: int) -> float:
        """What `token` at `position` came to."""
        return self._own[position - self.first] if self._is_own(position, token) else self._beside[position][token]

    @property
    def own(self) -> Sequence[float]:
        return self._own

    @property
    def beside(self) -> Mapping[int, Mapping[int, float]]:
        return self._beside


class ChoiceTree:
    """Choices behind a prefix, cut into sequences that compute each token of them once: `stems`, the tokens of each
    behind the prefix, with its scoring.

    The last token of a choice is only scored, so what is computed are the choices without it. Such a stem goes along
    the sequences before it as far as it has tokens in common with them; where it leaves them they score its token, and
    if more than that remains it is a sequence of its own.
    """

    def __init__(self, prefix: int, choices: Sequence[bytes]) -> None:
        """`prefix`: tokens, one at least; so has each choice, packed."""
        self._prefix = prefix
        self._choices = choices
        self._ways: dict[bytes, list[tuple[int, ChoiceScoring]]] = {}  # of a stem: from which offset on whose scoring
        self.stems: list[tuple[bytes, ChoiceScoring]] = []
        lasts: dict[bytes, list[int]] = {}
        for choice in choices:
            lasts.setdefault(choice[:-TOKEN_BYTES], []).extend(unpack(choice[-TOKEN_BYTES:]))
        before, way = b"", list[tuple[int, ChoiceScoring]]()
        for packed in sorted(lasts, reverse=True):  # those that begin alike are neighbours, the longer before
            stem, shared = unpack(packed), common_tokens(before, packed)
            spared = (prefix + len(stem) + 1) * len(lasts[packed])
            way = [part for part in way if part[0] <= shared]
            if not way or shared < len(stem):
                scoring = ChoiceScoring(prefix, stem, prefix + shared + bool(way))
                self.stems.append((packed, scoring))
                spared -= prefix + len(stem)
                if way:
                    way[-1][1].add(prefix + shared, stem[shared])
                way = [*way, (shared + bool(way), scoring)]
            scoring = way[-1][1]
            scoring.spared += spared
            for token in lasts[packed]:
                scoring.add(prefix + len(stem), token)
            self._ways[packed] = way
            before = packed

    def logprobs(self) -> tuple[tuple[float, ...], ...]:
        """Of each choice's tokens, once all is scored."""
        return tuple(map(self._of, self._choices))

    def _of(self, choice: bytes) -> tuple[float, ...]:
        found, way = [], self._ways[choice[:-TOKEN_BYTES]]
        at = 0
        for offset, token in enumerate(unpack(choice)):
            while at + 1 < len(way) and way[at + 1][0] <= offset:
                at += 1
            found.append(way[at][1].of(self._prefix + offset, token))
        return tuple(found)
