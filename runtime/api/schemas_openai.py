"""OpenAI's request bodies for completions and chat completions, with the extensions of this server."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.sampling_fields import SamplingFields
from palmette.runtime.messages.sampling import MAX_TOP_LOGPROBS

LATER = "structured output is not built yet"
TOOLS = "tool calls are not built yet"


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False  # nothing is ever padded here


class OpenAIFields(SamplingFields):
    model: str = ""
    n: int = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    namespace: str = ""  # requests of different namespaces never share cached pages

    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "user",
            "metadata",
            "store",
            "service_tier",
            "prompt_cache_key",
            "safety_identifier",
            "prompt_cache_retention",
        }
    )


class CompletionBody(OpenAIFields):
    prompt: Any = None  # str, list of str, token ids, or list of token ids; checked by prompts_of
    max_tokens: int | None = None  # OpenAI's default is 16
    best_of: int | None = None
    echo: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)

    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model fills no gaps", "response_format": LATER}


class ChatBody(OpenAIFields):
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None

    unsupported: ClassVar[dict[str, str]] = {
        "tools": TOOLS,
        "tool_choice": TOOLS,
        "functions": TOOLS,
        "function_call": TOOLS,
        "response_format": LATER,
        "audio": "the model is text only",
        "prediction": "predicted outputs are not built yet",
        "web_search_options": "there is no web search here",
        "reasoning_effort": "the model has no reasoning levels",
        "verbosity": "the model has no verbosity levels",
    }
    without_effect: ClassVar[frozenset[str]] = OpenAIFields.without_effect | {"parallel_tool_calls", "modalities"}


class ChatMessage(Body):
    role: str
    content: Any = ""  # str, or a list of content parts of type text

    unsupported: ClassVar[dict[str, str]] = {
        "tool_calls": TOOLS,
        "tool_call_id": TOOLS,
        "function_call": TOOLS,
        "audio": "the model is text only",
        "annotations": "the model is text only",
        "refusal": "the model has no refusal field",
    }
    without_effect: ClassVar[frozenset[str]] = frozenset({"name"})


class TextPart(Body):
    type: str
    text: str = ""
