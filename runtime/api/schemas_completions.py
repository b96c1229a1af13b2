"""The request body of /v1/completions."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from palmette.runtime.api.openai_fields import OpenAIFields
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS


class CompletionBody(OpenAIFields):
    prompt: Any = None  # str, list of str, token ids, or list of token ids; checked by prompts_of
    max_tokens: int | None = None  # OpenAI's default is 16
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model fills no gaps"}
