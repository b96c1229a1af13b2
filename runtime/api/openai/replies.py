"""Our chunks in OpenAI's forms: usage, log-probabilities, finish reasons. Pure; used by the other surfaces, too."""

from __future__ import annotations

import codecs
import time
from collections.abc import Sequence
from typing import Any

from palmette.runtime.messages.replies import TokenLogprob, Usage
from palmette.runtime.vocabulary import Vocabulary

UNLIKELY = -9999.0  # what OpenAI's API says where it has no log-probability; a client's type has no null


def now() -> int:
    return int(time.time())


def token_text(vocabulary: Vocabulary, token: int) -> str:
    """A token as text; special tokens as written; bytes that are no UTF-8 as U+FFFD."""
    special = vocabulary.special_pieces.get(token)
    return special if special is not None else token_bytes(vocabulary, token).decode("utf-8", "replace")


def token_bytes(vocabulary: Vocabulary, token: int) -> bytes:
    """What a token adds to a text. A model may have more embeddings than tokens; those add nothing."""
    return vocabulary.pieces[token] if token < len(vocabulary.pieces) else b""


def usage_json(usages: Sequence[Usage], *, prompts: Sequence[Usage] | None = None) -> dict[str, Any]:
    """Sums. `prompts`: the usages whose prompts count, where several outputs share one."""
    counted = usages if prompts is None else prompts
    prompt = sum(usage.prompt_tokens for usage in counted)
    completion = sum(usage.completion_tokens for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in counted)},
    }


def chat_logprobs(vocabulary: Vocabulary, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {"content": [chat_logprob(vocabulary, each) for each in logprobs], "refusal": None}


def chat_logprob(vocabulary: Vocabulary, told: TokenLogprob) -> dict[str, Any]:
    """One token's, as chat completions and responses have them."""

    def entry(token: int, logprob: float | None) -> dict[str, Any]:
        text = token_text(vocabulary, token)
        data = token_bytes(vocabulary, token) or text.encode()
        return {"token": text, "logprob": UNLIKELY if logprob is None else logprob, "bytes": list(data)}

    return {**entry(told.token, told.logprob), "top_logprobs": [entry(*each) for each in told.top]}


class CompletionLogprobs:
    """The legacy form of one choice's log-probabilities, piece by piece.

    `text_offset` counts the characters of the choice's text before the one in which a token begins, so it is the same
    for every way of cutting the text into chunks.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._characters = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def prompt(self, tokens: Sequence[TokenLogprob | int], *, silent: int = 0) -> dict[str, Any]:
        """A whole prompt, whose text ends where the output's begins. Its special tokens are text as written, but for
        the first `silent`."""
        form = self.next(tokens, spelled_from=silent)
        self._characters += len(self._decoder.decode(b"", final=True))
        return form

    def next(self, logprobs: Sequence[TokenLogprob | int], *, spelled_from: int | None = None) -> dict[str, Any]:
        """The tokens that follow. A bare id is a token without a log-probability (the first of a prompt).
        `spelled_from`: the first whose text counts although it is special; none where it is left out."""
        tokens: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for index, each in enumerate(logprobs):
            token = each if isinstance(each, int) else each.token
            text = token_text(self._vocabulary, token)
            tokens.append(text)
            data = token_bytes(self._vocabulary, token)
            if not data and spelled_from is not None and index >= spelled_from:
                data = text.encode()
            offsets.append(self._place(data))
            if isinstance(each, int):
                values.append(None)
                tops.append(None)
            else:
                values.append(each.logprob)
                best = {token_text(self._vocabulary, other): logprob for other, logprob in reversed(each.top)}
                tops.append(best if each.logprob is None else {**best, text: each.logprob})
        return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

    def _place(self, data: bytes) -> int:
        """Count `data` in; returns the index of the character that its first byte belongs to."""
        if not data:
            return self._characters
        self._characters += len(self._decoder.decode(data[:1]))
        pending, _ = self._decoder.getstate()
        at = self._characters if pending else self._characters - 1
        self._characters += len(self._decoder.decode(data[1:]))
        return at
