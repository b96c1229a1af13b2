"""The request body of /v1/completions."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from palmette.runtime.api.json_types import AnyPrompt, schema
from palmette.runtime.api.limits import MOST_OUTPUTS
from palmette.runtime.api.openai.fields import OpenAIFields
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS


class CompletionBody(OpenAIFields):
    """OpenAI's completions. What spells a special token in a prompt is that token: the prompt is all that the model
    reads, and who writes it writes the turns too."""

    prompt: AnyPrompt = ""
    """What is continued: a text, token ids, or a list of either. Nothing, or an empty text, begins a new text."""
    max_tokens: Annotated[int | None, schema(minimum=0)] = None
    """Output tokens at most; the rest of the context where it is left out. With 0 and `echo` the prompt is scored."""
    best_of: Annotated[int | None, schema(minimum=1, maximum=MOST_OUTPUTS)] = None
    """So many outputs are made, and the `n` with the best mean log-probability are answered. Not with `stream`."""
    echo: bool = False
    """The answer's text begins with the prompt; its log-probabilities with those of the prompt's tokens."""
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    """Log-probabilities of the tokens, and of so many of the likeliest at each place."""

    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model fills no gaps"}
