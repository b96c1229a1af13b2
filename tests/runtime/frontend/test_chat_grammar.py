"""What a turn's grammar lets a model write is read as what was asked for: random outputs of every format, judged."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from palmette.runtime.frontend.chat_grammar import TurnGrammars
from palmette.runtime.frontend.chat_turn import ChatMessage, ChatTurn
from palmette.runtime.grammar.compile import ByteSpace, build
from palmette.runtime.grammar.protocol import GrammarSource, Limits, mask_words
from palmette.runtime.messages.grammar import Constraint
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.protocol import NamedTool, ParsedOutput, Tool, ToolChoice, collect
from palmette.runtime.parsers.reasoning import reasoning_tags
from palmette.runtime.parsers.registry import NONE, Formats, names
from palmette.runtime.scheduler.constrained import Constrained
from palmette.runtime.vocabulary import Vocabulary

PAINT = Tool(
    name="paint",
    strict=True,
    parameters={
        "type": "object",
        "properties": {"colour": {"enum": ["red", "</tool_call>", 'a"b']}, "note": {"type": "string", "maxLength": 8}},
        "required": ["colour", "note"],
        "additionalProperties": False,
    },
)
NOW = Tool(name="now", parameters={"type": "object", "properties": {}, "additionalProperties": False})
ANSWER = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "say": {"type": "string", "maxLength": 10}},
    "required": ["ok"],
    "additionalProperties": False,
}
ENDING = ("<|return|>", "<|call|>")
CLOSERS = frozenset(b'"}])>|\n,')


class Marked(ByteSpace):
    """Bytes, an end, and special tokens."""

    def __init__(self, specials: list[str]) -> None:
        pieces = (*(bytes([byte]) for byte in range(256)), b"", *(b"" for _ in specials))
        numbered = dict(enumerate(specials, self.END + 1))
        ending = tuple(token for token, text in numbered.items() if text in ENDING)
        self.vocabulary = Vocabulary(pieces, {self.END: "<end>", **numbered}, (self.END, *ending))

    def text(self, tokens: list[int]) -> str:
        pieces = self.vocabulary.pieces
        special = {**self.vocabulary.special_pieces, self.END: ""}
        return b"".join(special[t].encode() if t in special else pieces[t] for t in tokens).decode(errors="replace")


def written(source: GrammarSource, space: Marked, chance: random.Random) -> str | None:
    """A random output with a liking for ends; None where it was cut."""
    vocabulary, most = space.vocabulary, 400
    output = Constrained(build(source, space, Limits()), Constraint(grammar=source), vocabulary)
    tokens = output.forced(most)
    while not output.ends(full=len(tokens) >= most):
        if len(tokens) >= most:
            return None
        mask = np.zeros(mask_words(vocabulary.size), np.uint32)
        output.fill_mask(mask)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        assert allowed, f"a dead end after {space.text(tokens)!r}"
        closing = [token for token in allowed if token in CLOSERS or token > space.END]
        plain = [token for token in allowed if 0x20 <= token < 0x7F or token >= space.END] or allowed
        token = chance.choice(closing if closing and chance.random() < 0.45 else plain)
        if token in vocabulary.eos_ids:
            return space.text([*tokens, token])
        taken = output.take(token, most - len(tokens))
        assert taken is not None
        tokens += taken
    return space.text(tokens)


def judge(turn: ChatTurn, got: ParsedOutput, *, answered: bool, text: str) -> None:
    must = turn.tool_choice != "auto"
    if must:
        assert got.calls, text
    if isinstance(turn.tool_choice, NamedTool):
        assert {call.name for call in got.calls} == {turn.tool_choice.name}, text
    if isinstance(turn.tool_choice, NamedTool) or not turn.parallel_tool_calls:
        assert len(got.calls) <= 1, text
    for call in got.calls:
        tool = next(tool for tool in turn.tools if tool.name == call.name)
        if must or answered or tool.strict:
            jsonschema.validate(json.loads(call.arguments), tool.parameters)
    if must or (answered and got.calls):
        assert not got.text.strip(), text
    elif answered:
        jsonschema.validate(json.loads(got.text), ANSWER)


@pytest.mark.parametrize("tools", names().tools)
def test_outputs_are_read_as_what_was_asked_for(tools: str) -> None:
    chance, judged = random.Random(tools), 0
    for _ in range(6):
        reasoning = chance.choice([NONE, *names().reasoning])
        formats = Formats(tools=tools, reasoning=reasoning)
        harmony = "harmony" in (tools, reasoning)
        specials = sorted({mark for mark in formats.marks if mark.startswith("<")} | set(ENDING if harmony else ()))
        specials = specials if harmony or chance.random() < 0.5 else []
        offered = tuple(chance.sample([PAINT, NOW], chance.randint(1, 2)))
        choices: list[ToolChoice] = ["auto", "required", NamedTool(offered[0].name)]
        turn = ChatTurn(
            messages=(ChatMessage(role="user", content="x"),),
            tools=offered,
            tool_choice=chance.choice(choices),
            parallel_tool_calls=chance.random() < 0.6,
        )
        asked = Constraint(grammar=GrammarSource(kind="json_schema", text=json.dumps(ANSWER)))
        answered = turn.tool_choice == "auto" and chance.random() < 0.5
        params = SamplingParams(max_tokens=400, constraint=asked if answered else None)
        tail: Any = "assistant\n"
        if reasoning not in (NONE, "harmony") and not harmony and chance.random() < 0.4:
            tail += reasoning_tags(reasoning).begin
        grammars = TurnGrammars(formats, specials)
        wanted = grammars.constraint(turn, params, grammars.of_calls(turn, params), tail)
        if wanted is None:  # no tool is strict
            continue
        for _ in range(2):
            text = written(wanted.grammar, Marked(specials), chance)
            if text is not None:
                judged += 1
                parser = output_parser(formats, offered, prompt=tail)
                got = collect([*parser.push(text), *parser.finish()])
                judge(turn, got, answered=answered, text=text)
    assert judged > 2
