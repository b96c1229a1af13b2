"""A conversation with tools in the model's own format of calls: what the language asks of a frontend, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from palmette.runtime.messages.replies import FinishReason, Usage
from palmette.runtime.messages.sampling import SamplingParams


class SaidCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model wrote. `arguments`: JSON text, as it was written."""

    id: str
    name: str
    arguments: str


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message. `calls`: of an assistant's; `answers`: the id of the call that a tool's message answers."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    calls: tuple[SaidCall, ...] = ()
    answers: str | None = None


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that may be called. `parameters`: the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class AskTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The assistant's next turn behind `messages`. `choice`: whether it may, must, or must not call a tool;
    `parallel`: several calls in one turn; `timeout` in seconds."""

    messages: tuple[Said, ...]
    tools: tuple[OfferedTool, ...]
    choice: Literal["auto", "required", "none"] = "auto"
    parallel: bool = False
    params: SamplingParams
    priority: int | None = None
    timeout: float | None = None


class ToldTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the assistant said: text, or calls with perhaps some text before them; and what it thought before."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[SaidCall, ...] = ()
    reason: FinishReason = "stop"
    usage: Usage
