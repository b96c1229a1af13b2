"""An agent's turns in the model's own format of function calls: through a backend that offers a whole chat with tools
(a Palmette server, any OpenAI-compatible API), which renders the tools with the model's template and reads its calls.

Used by lang/agents.py for mode="native". The conversation is kept here, as messages, beside the state.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from palmette.lang.agent_turns import Turn
from palmette.lang.errors import caller
from palmette.lang.sampling import settle
from palmette.lang.tools import ToolCall, ToolSet
from palmette.runtime.errors import InternalError, InvalidRequest, Unsupported
from palmette.runtime.messages.branches import Chunk
from palmette.runtime.messages.replies import Finish, Usage
from palmette.runtime.messages.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Chat:
    """One request of a chat with tools, as chat completions have it; answered by their JSON."""

    body: dict[str, Any]
    params: SamplingParams
    namespace: str = ""


def chat_of(backend: Any) -> Any:
    """The backend's `chat(body, params, namespace)`. Raises Unsupported where it has none."""
    chat = getattr(backend, "chat", None)
    if chat is None:
        raise Unsupported(
            f"mode='native': the backend {backend.name!r} has no chat with tools.",
            hint="Run on a server (RuntimeEndpoint, OpenAI), or use mode='calls'.",
            param="mode",
        )
    return chat


class NativeTurns:
    """Calls and answers as the model was trained to write them. Arguments that its format doesn't hold to the schema
    are checked when they are run, and what is wrong with them is told to the model."""

    def __init__(
        self,
        tools: ToolSet,
        *,
        name: str,
        instructions: str,
        answer: Any,
        step_tokens: int,
        answer_tokens: int,
        thought_tokens: int,
        parallel: int,
    ) -> None:
        if answer is not str:
            raise InvalidRequest(
                f"answer={answer!r}: in mode 'native' answers are text.", hint="Use mode='calls'.", param="answer"
            )
        self._schemas = tools.schemas
        self._instructions = instructions
        self._step_tokens, self._answer_tokens, self._parallel = step_tokens, answer_tokens, parallel
        self._messages: WeakKeyDictionary[Any, list[dict[str, Any]]] = WeakKeyDictionary()
        self.most_tokens = step_tokens + answer_tokens

    def begin(self, s: Any, task: str) -> None:
        chat_of(s._backend)
        if s not in self._messages:
            first = {"role": "system", "content": self._instructions}
            self._messages[s] = [first] if self._instructions else []
        self._messages[s].append({"role": "user", "content": task})

    def write(self, s: Any, name: str, *, last: bool, must_call: bool) -> Generator[Chat, Any, Turn]:
        most = self._answer_tokens if last else self._step_tokens
        chat = Chat(
            {
                "messages": list(self._messages[s]),
                "tools": self._schemas,
                "tool_choice": "none" if last else "required" if must_call else "auto",
                "parallel_tool_calls": self._parallel > 1,
            },
            settle(s._sampling, {"max_tokens": most}).params,
            s._namespace,
        )
        start = time.monotonic()
        reply = yield chat
        message, usage, reason = _read(reply)
        recording = s._interpreter.recording.begin("gen", name, caller(), start)
        recording.add(
            Chunk(text=_shown(message), finish=Finish(reason=reason, usage=usage, kept_tokens=0), usage=usage)
        )
        recording.close()
        s._interpreter.usages.append(usage)
        calls = [
            ToolCall(call["function"]["name"], call["function"]["arguments"])
            for call in (message.get("tool_calls") or ())[: self._parallel]
        ]
        kept = {"role": "assistant", "content": message.get("content") or ""}
        if calls:
            kept["tool_calls"] = message["tool_calls"][: self._parallel]
        self._messages[s].append(kept)
        thought = message.get("reasoning_content") or ""
        if calls and not last:
            return Turn(thought or kept["content"].strip(), calls)
        return Turn(thought, answered=True, answer=kept["content"].strip())

    def tell(self, s: Any, turn: Turn, results: Sequence[str]) -> None:
        calls = self._messages[s][-1]["tool_calls"]
        for call, text in zip(calls, results, strict=True):
            self._messages[s].append({"role": "tool", "tool_call_id": call["id"], "content": text})


def _read(reply: dict[str, Any]) -> tuple[dict[str, Any], Usage, Any]:
    try:
        choice = reply["choices"][0]
        used = reply.get("usage") or {}
        prompt, cached = used.get("prompt_tokens", 0), (used.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        usage = Usage(
            prompt_tokens=prompt,
            completion_tokens=used.get("completion_tokens", 0),
            cached_tokens=cached or 0,
            reusable_tokens=cached or 0,
            computed_tokens=prompt - (cached or 0),
        )
        return choice["message"], usage, "length" if choice.get("finish_reason") == "length" else "stop"
    except (KeyError, IndexError, TypeError) as error:
        raise InternalError(f"The chat was answered with {reply!r:.200}.") from error


def _shown(message: dict[str, Any]) -> str:
    calls = [
        ToolCall(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
    ]
    return "\n".join([*([message["content"]] if message.get("content") else []), *map(str, calls)])
