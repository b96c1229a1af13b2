"""The request body of /v1/chat/completions, and its messages."""

from __future__ import annotations

from typing import Any, ClassVar

from palmette.runtime.api.bodies import Body
from palmette.runtime.api.openai_fields import OpenAIFields

TOOLS = "tool calls are not built yet"


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
