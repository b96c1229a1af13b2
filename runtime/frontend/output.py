"""One output's token ids turned into a stream of text that equals the non-streamed text, for every chunking.

Text is made of the vocabulary's bytes. What a later token could still change is held back: a suffix that is a proper
prefix of a stop string, and an incomplete UTF-8 character. Tokens are handed out once all their bytes are.
Knows nothing of requests or links; used by frontend/generation.py.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
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

    def __init__(self, vocabulary: Vocabulary, *, stops: Sequence[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stops = [stop.encode() for stop in stops]
        self._longest = max((len(stop) for stop in self._stops), default=0)
        self._bytes = bytearray()
        self._tokens: list[int] = []
        self._ends: list[int] = []  # length of the bytes behind each token
        self._logprobs: list[TokenLogprob] = []
        self._fed = 0  # bytes given to the decoder
        self._shown = 0  # bytes handed out as text
        self._sent = 0  # tokens handed out
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob] = (), *, held: int = 0) -> Piece:
        """Take new tokens in, which didn't end the output; returns what became certain.

        `held`: bytes at the end that the engine says may still be cut off.
        """
        self._take(tokens, logprobs)
        return self._hand_out(len(self._bytes) - max(held, self._held()), len(self._tokens), final=False)

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
        piece = self._hand_out(end, kept, final=True)
        return piece, msgspec.structs.replace(finish, kept_tokens=kept, kept_bytes=kept_bytes)

    @property
    def received(self) -> int:
        """Tokens that the engine has sampled for this output."""
        return len(self._tokens)

    def handed_out(self) -> tuple[tuple[int, ...], bytes]:
        """The tokens handed out so far, and the bytes handed out as text behind them."""
        return tuple(self._tokens[: self._sent]), bytes(self._bytes[self._end_of(self._sent) : self._shown])

    def _take(self, tokens: Sequence[int], logprobs: Sequence[TokenLogprob]) -> None:
        for token in tokens:
            self._bytes += self._piece(token)
            self._ends.append(len(self._bytes))
        self._tokens.extend(tokens)
        self._logprobs.extend(logprobs)

    def _piece(self, token: int) -> bytes:
        """A model may have more embeddings than its tokenizer has tokens; those spell nothing."""
        pieces = self._vocabulary.pieces
        return pieces[token] if token < len(pieces) else b""

    def _end_of(self, tokens: int) -> int:
        return self._ends[tokens - 1] if tokens else 0

    def _held(self) -> int:
        """Bytes at the end that may turn out to begin a stop string."""
        unfed = self._bytes[self._fed :]
        for length in range(min(self._longest - 1, len(unfed)), 0, -1):
            suffix = bytes(unfed[-length:])
            if any(len(stop) > length and stop.startswith(suffix) for stop in self._stops):
                return length
        return 0

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
