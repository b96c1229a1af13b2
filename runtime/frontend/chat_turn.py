"""The seam of every chat surface: what is asked of the assistant's next turn, and what comes of it.

A surface (OpenAI's chat completions and responses, Anthropic's messages, a terminal) turns its bodies into a ChatTurn
and SamplingParams, hands them to Frontend.chats (chats.py), and turns ChatChunks into its own events. Data only: knows
neither templates nor HTTP. The deltas in a chunk are the parsers' events (runtime/parsers/protocol.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from palmette.runtime.messages.grammar import Jump
from palmette.runtime.messages.replies import TokenLogprob, Usage
from palmette.runtime.parsers.protocol import Event, ParsedCall, Tool, ToolChoice


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call in an assistant's message of the history. `arguments`: JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str = ""


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of any role that the model's template knows; system, developer, user, assistant and tool always are.

    `content`: None where an assistant only called tools. A tool's message says by `tool_call_id` which call it answers.
    """

    role: str
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class ChatTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: the assistant's next turn behind `messages`.

    `allowed_tools`: the names that may be called, where not all of `tools` may. `reasoning_effort`: as OpenAI's; "none"
    turns reasoning off. `separate_reasoning` False leaves reasoning in the text, with its tags. `variables` are further
    variables of the template (chat_template_kwargs). `continue_final_message`: the last message is the assistant's, and
    the output goes on with it. `jump` and `complete`: of the grammar that tools ask for (messages/grammar.py); what
    the answer itself must match is the constraint of the SamplingParams.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    allowed_tools: frozenset[str] | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: str | None = None
    separate_reasoning: bool = True
    variables: Mapping[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    jump: Jump = "bytes"
    complete: bool = False

    @property
    def offers(self) -> bool:
        """Whether there are tools that may be called."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def must_call(self) -> bool:
        return self.offers and self.tool_choice != "auto"


ChatFinishReason = Literal["stop", "length", "tool_calls", "abort"]


class ChatFinish(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn ended.

    "tool_calls": with calls, all of them complete; "length": at max_tokens, or in the middle of a call. `matched`: the
    stop string, stop regex or stop token id that ended it. `usage.completion_tokens` counts `reasoning_tokens` too.
    """

    reason: ChatFinishReason
    usage: Usage
    reasoning_tokens: int = 0
    matched: str | int | None = None


class TextLogprob(msgspec.Struct, frozen=True):
    """The log-probability of a token that begins in the answer's text, or in white space around it.

    `run`: how many calls, and how many pieces of reasoning between other things, were told of before that text.
    """

    run: int
    logprob: TokenLogprob


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a turn. `logprobs` are of the tokens that came with it, markers of calls and reasoning included;
    `text_logprobs` of those that are now known to belong to the text, which may have come before.

    For every way of cutting an output into chunks the concatenated events, tokens and log-probabilities are the same.
    The last chunk, and no other, has `finish`.
    """

    events: tuple[Event, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    text_logprobs: tuple[TextLogprob, ...] = ()
    finish: ChatFinish | None = None


class ChatOutput(msgspec.Struct, frozen=True, kw_only=True):
    """A whole turn: the chunks of one generation, collected."""

    text: str
    reasoning: str
    calls: tuple[ParsedCall, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish: ChatFinish

    @property
    def content(self) -> str | None:
        """The text; None where calls stand in its place."""
        return None if self.calls and not self.text else self.text
