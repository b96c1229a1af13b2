"""An agent's turns in the model's own format of function calls: a conversation with tools, which the backend renders
with the model's template and whose calls it reads (an engine in this process, a Palmette server, any OpenAI-compatible
API).

Used by lang/agents/agent.py for mode="native". The messages are kept here, beside the state.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from palmette.lang.agents.turns import Turn, TurnRules
from palmette.lang.interpreter.conversation import chatting
from palmette.lang.tools.tool import ToolCall, ToolSet
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.tool_chats import OfferedTool, Said, ToldTurn


class NativeTurns:
    """Calls and answers as the model was trained to write them. Arguments that its format doesn't hold to the schema
    are checked when they are run, and what is wrong with them is told to the model."""

    def __init__(self, tools: ToolSet, rules: TurnRules) -> None:
        if rules.answer is not str:
            raise InvalidRequest(
                f"answer={rules.answer!r}: in mode 'native' answers are text.", hint="Use mode='calls'.", param="answer"
            )
        self._tools = tuple(
            OfferedTool(name=each.name, description=each.description, parameters=each.parameters) for each in tools
        )
        self._rules = rules
        self._messages: WeakKeyDictionary[Any, list[Said]] = WeakKeyDictionary()
        self._new: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # messages since the last turn was asked for
        self.most_tokens = rules.step_tokens + rules.answer_tokens

    def begin(self, s: Any, task: str) -> None:
        chatting(s._backend)
        if s not in self._messages:
            self._messages[s], self._new[s] = [], 0
            if self._rules.instructions:
                self._say(s, Said(role="system", content=self._rules.instructions))
        self._say(s, Said(role="user", content=task))

    def write(self, s: Any, name: str, *, last: bool, must_call: bool) -> Generator[str, Any, Turn]:
        s._ask(
            name,
            self._messages[s],
            new=self._new[s],
            tools=self._tools,
            choice="none" if last else "required" if must_call else "auto",
            parallel=self._rules.parallel > 1,
            max_tokens=self._rules.answer_tokens if last else self._rules.step_tokens,
        )
        told: ToldTurn = yield name
        calls = () if last else told.calls[: self._rules.parallel]
        self._messages[s].append(Said(role="assistant", content=told.text, calls=calls))
        self._new[s] = 0
        if calls:
            thought = told.reasoning or told.text.strip()
            return Turn(thought, [ToolCall(call.name, call.arguments) for call in calls])
        return Turn(told.reasoning, answered=True, answer=told.text.strip())

    def tell(self, s: Any, turn: Turn, results: Sequence[str]) -> None:
        for call, text in zip(self._messages[s][-1].calls, results, strict=True):
            self._say(s, Said(role="tool", content=text, answers=call.id))

    def _say(self, s: Any, said: Said) -> None:
        self._messages[s].append(said)
        self._new[s] += 1
