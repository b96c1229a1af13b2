"""Our chunks in OpenAI's forms: usage, log-probabilities, finish reasons. Pure functions; used by api/openai.py."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from palmette.runtime.messages.replies import TokenLogprob, Usage
from palmette.runtime.vocabulary import Vocabulary


def now() -> int:
    return int(time.time())


def token_text(vocabulary: Vocabulary, token: int) -> str:
    """A token as text; special tokens as written; bytes that are no UTF-8 as U+FFFD."""
    special = vocabulary.special_pieces.get(token)
    return special if special is not None else vocabulary.pieces[token].decode("utf-8", "replace")


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
    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = token_text(vocabulary, token)
        data = vocabulary.pieces[token] or text.encode()
        return {"token": text, "logprob": logprob, "bytes": list(data)}

    content = [
        {
            **entry(each.token, each.logprob),
            "top_logprobs": [entry(token, logprob) for token, logprob in each.top],
        }
        for each in logprobs
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    vocabulary: Vocabulary, logprobs: Sequence[TokenLogprob | int], *, offset: int
) -> dict[str, Any]:
    """The legacy form. A bare id is a token without a log-probability (the first of a prompt)."""
    tokens: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for each in logprobs:
        text = token_text(vocabulary, each if isinstance(each, int) else each.token)
        tokens.append(text)
        offsets.append(offset)
        offset += len(text)
        if isinstance(each, int):
            values.append(None)
            tops.append(None)
        else:
            values.append(each.logprob)
            best = {token_text(vocabulary, token): logprob for token, logprob in reversed(each.top)}
            tops.append({**best, text: each.logprob})
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}
