"""What a turn's output must match: the calls that its tools ask for, its answer, and the reasoning before them.

Plain data: grammars are compiled in the engine, and refused there too. Knows formats, not templates. Used by chats.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import msgspec

from palmette.runtime.errors import GrammarError, Unsupported
from palmette.runtime.frontend.chat_turn import ChatTurn
from palmette.runtime.messages.grammar import Constraint, GrammarSource
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.constraints import constraint_for, headed_answer
from palmette.runtime.parsers.formats.harmony import HARMONY
from palmette.runtime.parsers.reasoning import reasoning_tags
from palmette.runtime.parsers.registry import NONE, Formats, tool_format


class TurnGrammars:
    """Grammars of a model's turns; `special`: its special tokens as they are written."""

    def __init__(self, formats: Formats, special: Collection[str]) -> None:
        if formats.tools != NONE and formats.reasoning == HARMONY.name:  # its calls and thoughts are read together
            formats = msgspec.structs.replace(formats, tools=HARMONY.name)
        self._formats = formats
        self._special = frozenset(special)

    def of_calls(self, turn: ChatTurn, params: SamplingParams) -> GrammarSource | None:
        """What the tools ask of the output, if anything. Raises InvalidRequest or Unsupported."""
        if self._formats.tools == NONE:
            return None
        grammar = constraint_for(
            self._formats.tools,
            turn.tools,
            turn.tool_choice,
            parallel=turn.parallel_tool_calls,
            allowed=turn.allowed_tools,
            answer=_answer(turn, params),
        )
        if grammar is None or not grammar.options.get("free_text"):
            return grammar
        free = self._free_special(grammar)
        return msgspec.structs.replace(grammar, options={**grammar.options, "free_special": free}) if free else grammar

    def _free_special(self, grammar: GrammarSource) -> list[str]:
        """Special tokens of the reasoning, which free text around calls may hold. Where calls begin with plain text it
        can't (runtime/grammar/tags.py)."""
        triggers = json.loads(grammar.text)["triggers"]
        if not all(any(trigger.startswith(text) for text in self._special if text) for trigger in triggers):
            return []
        return sorted(self._special & Formats(tools=NONE, reasoning=self._formats.reasoning).marks)

    def constraint(
        self, turn: ChatTurn, params: SamplingParams, calls: GrammarSource | None, tail: str
    ) -> Constraint | None:
        """What the output must match: the calls asked for, else the answer; after the reasoning that the model has
        begun, or may begin. `tail`: what it goes on with (Chats), by which that is known."""
        asked = params.constraint
        if calls is not None:
            asked = Constraint(grammar=calls, jump=turn.jump, complete=turn.complete, field="tools")
        if asked is None:
            return None
        reasoning = self._formats.reasoning
        if HARMONY.name in (self._formats.tools, reasoning):
            return asked if calls is not None else msgspec.structs.replace(asked, grammar=_headed(asked.grammar))
        if reasoning == NONE:
            return asked
        tags = reasoning_tags(reasoning)
        begun = tags.opening(tail)
        if not begun and (turn.continue_final_message or tail.rstrip().endswith(tags.end.strip())):
            return asked  # it has ended
        begin = None if begun else tags.begin
        return msgspec.structs.replace(asked, grammar=_after_reasoning(asked.grammar, tags.end, begin))

    def explained(self, error: GrammarError, turn: ChatTurn) -> GrammarError:
        """What the engine says of a grammar made of the turn's tools, in the words of who gave them."""
        for index, tool in enumerate(turn.tools):
            tag = f"the tag {tool_format(self._formats.tools).tag(tool.name).begin!r}"
            if tag in error.message:
                message = error.message.replace(tag, f"the tool {tool.name!r}")
                return GrammarError(message, hint=error.hint, param=f"tools.{index}")
        return GrammarError(error.message, hint=error.hint, param="tools")


def _answer(turn: ChatTurn, params: SamplingParams) -> GrammarSource | None:
    """What the model must say where it doesn't call."""
    if params.constraint is None or not turn.offers or turn.tool_choice != "auto":
        return None
    grammar = params.constraint.grammar
    if grammar.kind != "json_schema":
        raise Unsupported(
            f"An answer that follows a grammar of the kind {grammar.kind!r} beside tools that may be called is not"
            " supported.",
            hint="Give a JSON schema, or set tool_choice to 'none' or 'required'.",
            param="response_format",
        )
    return grammar


def _headed(grammar: GrammarSource) -> GrammarSource:
    if grammar.kind != "json_schema":
        raise Unsupported(
            f"The model writes answers behind headers, and none that follows a grammar of the kind {grammar.kind!r}.",
            hint="Give a JSON schema.",
            param="response_format",
        )
    return headed_answer(grammar)


def _after_reasoning(grammar: GrammarSource, end: str, begin: str | None) -> GrammarSource:
    source = {"grammar": grammar, "end": end, **({} if begin is None else {"begin": begin})}
    text = msgspec.json.encode(source).decode()
    return GrammarSource(kind="after_reasoning", text=text)
