"""One output's token ids turned into a stream of text that equals the non-streamed text, for every chunking.

Text is made of the vocabulary's bytes. What a later token could still change is held back: a suffix that is a proper
prefix of a stop string, and an incomplete UTF-8 character. Tokens are handed out once all their bytes are.
Special tokens spell nothing, but those that a parser of the text must see are written out (`spelled`). Stops know
nothing of that: for the engine the text goes on over them.
Knows nothing of requests or links; used by frontend/generation.py.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from palmette.runtime.messages.replies import Finish, TokenLogprob
from palmette.runtime.vocabulary import Vocabulary

LONGEST_CHARACTER = 4  # bytes of a UTF-8 character, at most


@dataclass(frozen=True, slots=True)
class Piece:
    """What may be handed out now. `logprobs` has one entry a token where the engine sent them."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class OutputText:
    """Text and tokens of one output so far."""

    def __init__(
        self, vocabulary: Vocabulary, *, stops: Sequence[str] = (), spelled: Mapping[int, bytes] | None = None
    ) -> None:
        """`spelled`: special tokens that are written out, and how."""
        self._vocabulary = vocabulary
        self._spelled = spelled or {}
        self._has_spelled = False  # one of them has come
        self._stops = [stop.encode() for stop in stops]
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._bytes = bytearray()
        self._tokens: list[int] = []
        self._ends: list[int] = []  # length of the bytes behind each token
        self._logprobs: list[TokenLogprob] = []
        self._fed = 0  # bytes given to the decoder
        self._shown = 0  # bytes handed out as text
        self._sent = 0  # tokens handed out
        self._begins: list[int] = []  # of the first tokens, as far as they were asked for
        self._counted = 0  # characters before the next
        self._counter = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = (), *, held: int = 0) -> Piece:
        """Take new tokens in, which didn't end the output; returns what became certain.

        `held`: bytes at the end that the engine says may still be cut off.
        """
        self._take(tokens, logprobs)
        end = len(self._bytes) - self._with_spelled(max(held, self._held()))
        return self._hand_out(end, len(self._tokens), final=False)

    def finish(
        self, finish: Finish, tokens: Sequence[int] = (), logprobs: Sequence[TokenLogprob] = ()
    ) -> tuple[Piece, Finish]:
        """The rest with the last tokens, cut where the engine stopped, and the finish as callers see it.

        Where the stop lies inside a token that completes a character begun in the tokens before, those tokens move
        from `kept_tokens` into `kept_bytes`, so that the kept bytes are whole characters.
        """
        self._take(tokens, logprobs)
        kept = min(finish.kept_tokens, len(self._tokens))
        kept_bytes = finish.kept_bytes
        end = self._end_of(kept) + len(kept_bytes)
        for back in range(kept, max(self._sent, kept - LONGEST_CHARACTER), -1):
            if not kept_bytes or not _continues(kept_bytes):
                break
            kept, kept_bytes = back - 1, self._piece(self._tokens[back - 1]) + kept_bytes
        if self._has_spelled:  # one may stand where the kept bytes do
            del self._bytes[max(self._end_of(kept), self._fed) :]
            self._bytes += kept_bytes[len(self._bytes) - self._end_of(kept) :]
            end = len(self._bytes)
        piece = self._hand_out(end, kept, final=True)
        return piece, msgspec.structs.replace(finish, kept_tokens=kept, kept_bytes=kept_bytes)

    @property
    def received(self) -> int:
        """Tokens that the engine has sampled for this output."""
        return len(self._tokens)

    def handed_out(self) -> tuple[tuple[int, ...], bytes]:
        """The tokens handed out so far, and the bytes handed out as text behind them."""
        return tuple(self._tokens[: self._sent]), bytes(self._bytes[self._end_of(self._sent) : self._shown])

    def begin_of(self, token: int) -> int:
        """The character of the text in which that token begins, of those handed out; they are asked for in order."""
        for index in range(len(self._begins), token + 1):
            self._begins.append(self._counted)
            self._counted += len(self._counter.decode(bytes(self._bytes[self._end_of(index) : self._ends[index]])))
        return self._begins[token]

    def tokens_before(self, characters: int) -> int:
        """How many of the tokens begin within the first `characters` of the text."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        data, begin, seen = bytes(self._bytes), 0, 0
        for index, end in enumerate(self._ends):
            if seen >= characters:
                return index
            seen += len(decoder.decode(data[begin:end]))
            begin = end
        return len(self._ends)

    def _take(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> None:
        for token in tokens:
            self._bytes += self._piece(token)
            self._ends.append(len(self._bytes))
        if self._spelled and not self._has_spelled:
            self._has_spelled = not self._spelled.keys().isdisjoint(tokens)
        self._tokens.extend(tokens)
        self._logprobs.extend(logprobs)

    def _piece(self, token: int) -> bytes:
        """A model may have more embeddings than its tokenizer has tokens; those spell nothing."""
        pieces = self._vocabulary.pieces
        plain = pieces[token] if token < len(pieces) else b""
        return plain or self._spelled.get(token, b"")

    def _end_of(self, tokens: int) -> int:
        return self._ends[tokens - 1] if tokens else 0

    def _held(self) -> int:
        """Bytes at the end that may turn out to begin a stop string."""
        unfed = self._unspelled() if self._has_spelled else self._bytes[self._fed :]
        for length in range(min(self._longest - 1, len(unfed)), 0, -1):
            suffix = bytes(unfed[-length:])
            if any(len(stop) > length and stop.startswith(suffix) for stop in self._stops):
                return length
        return 0

    def _unspelled(self) -> bytes:
        """What hasn't been fed, as the engine knows it: at most as much of its end as a stop has."""
        plain = b""
        end = len(self._bytes)
        for index in range(len(self._tokens) - 1, -1, -1):
            begin = max(self._end_of(index), self._fed)
            if begin >= end or len(plain) >= self._longest:
                break
            if self._tokens[index] not in self._spelled:
                plain = bytes(self._bytes[begin:end]) + plain
            end = begin
        return plain

    def _with_spelled(self, held: int) -> int:
        """The last `held` bytes of the engine's text, counted with the spelled tokens that stand between them."""
        if not self._has_spelled:
            return held
        counted = 0
        for index in range(len(self._tokens) - 1, -1, -1):
            if held <= 0:
                break
            length = self._ends[index] - self._end_of(index)
            if self._tokens[index] in self._spelled:
                counted += length
            else:
                counted += min(length, held)
                held -= length
        return counted

    def _hand_out(self, end: int, tokens: int, *, final: bool) -> Piece:
        """Text up to byte `end`, and of the first `tokens` tokens those that end in what has been handed out."""
        text = self._decoder.decode(bytes(self._bytes[self._fed : end]), final)
        self._fed = max(self._fed, end)
        self._shown = self._fed - len(self._decoder.getstate()[0])
        begin = self._sent
        while self._sent < tokens and self._ends[self._sent] <= self._shown:
            self._sent += 1
        logprobs = tuple(self._logprobs[begin : self._sent])
        return Piece(text, tuple(self._tokens[begin : self._sent]), logprobs)


def _continues(data: bytes) -> bool:
    """Whether `data` starts inside a UTF-8 character."""
    return data[0] & 0xC0 == 0x80
