"""A chat turn made into a prompt: messages as the model's template wants them, rendered and encoded.

Where a message is the text of an output that this front has seen, the ids that the model wrote stand in its place
(output_ids.py). Calls are pure but for that map, and may run in a thread. Knows no requests; used by chats.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from palmette.runtime.errors import InvalidRequest, Unsupported
from palmette.runtime.frontend.chat_turn import ChatMessage, ChatTurn, ToolCall
from palmette.runtime.frontend.output_ids import (
    KnownOutput,
    OutputIds,
    OutputPlace,
    message_key,
    prefix_digest,
)
from palmette.runtime.messages.tokens import pack, unpack
from palmette.runtime.parsers.emitter import short_call_id
from palmette.runtime.parsers.json_text import decode
from palmette.runtime.parsers.prompting import plain_messages
from palmette.runtime.parsers.protocol import ParsedCall, Tool
from palmette.runtime.parsers.registry import NONE, Formats, knows_tools, tool_format
from palmette.runtime.text.chat_template import ChatTemplate, Disguised, encode_rendered
from palmette.runtime.text.json_object import JsonObject
from palmette.runtime.text.tokenizer import Tokenizer

TAIL = 64  # characters of a prompt's end that are looked at
LEAD = 32  # of them, where no special token stands in them
RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token", "chat_template"}
)
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_EFFORT = "reasoning_effort"
_SWITCHES = ("enable_thinking", "thinking")
_LITTLE = ("none", "minimal")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}\Z")


class ReasoningControl(msgspec.Struct, frozen=True, kw_only=True):
    """What a template lets callers say of reasoning. `levels`: it takes a `reasoning_effort`; `switch`: the variable
    that turns reasoning on and off."""

    levels: bool = False
    switch: str | None = None

    def takes(self, effort: str) -> bool:
        """Whether there is something that the effort makes a difference to; "none" makes none where nothing thinks."""
        return self.levels or self.switch is not None or effort == "none"

    @classmethod
    def of(cls, template: ChatTemplate) -> ReasoningControl:
        known = template.variables
        return cls(levels=_EFFORT in known, switch=next((name for name in _SWITCHES if name in known), None))


class ChatPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """`tokens` are packed; `tail` is the end of the prompt as text; `place` is where the output begins, if another
    request can be expected to hold it there."""

    tokens: bytes
    tail: str
    place: OutputPlace | None = None


class _Form(msgspec.Struct, frozen=True, kw_only=True):
    """How a message that called tools is shown to the template; templates differ in what they can take."""

    objects: bool  # arguments as objects, else as JSON text
    no_content: str | None  # what stands for content that isn't there


_FORMS = (
    _Form(objects=True, no_content=None),
    _Form(objects=True, no_content=""),
    _Form(objects=False, no_content=None),
    _Form(objects=False, no_content=""),
)


class ChatPrompts:
    """Prompts for one model: its template, tokenizer and formats."""

    def __init__(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        formats: Formats,
        *,
        start: Sequence[int] = (),
        outputs: OutputIds | None = None,
    ) -> None:
        """`start`: the ids that every prompt begins with; `outputs`: None to encode every message anew."""
        self.knows_tools = knows_tools(template.source)
        self.reasoning = ReasoningControl.of(template)
        self._template = template
        self._tokenizer = tokenizer
        self._short_ids = formats.tools != NONE and tool_format(formats.tools).new_id is short_call_id
        self._start = list(start)
        self._outputs = outputs

    def prompt(self, turn: ChatTurn, *, namespace: str = "") -> ChatPrompt:
        """Raises InvalidRequest for what the template refuses, Unsupported for reasoning levels that it hasn't."""
        if not turn.messages:
            raise InvalidRequest("'messages' is empty.", hint="Send at least one.", param="messages")
        if turn.continue_final_message:
            self._check_continued(turn)
        known = self._outputs_of(turn.messages, namespace)
        rendered = self._rendered(turn, known)
        tokens = self._encoded(rendered, known)
        if self._start and tokens[: len(self._start)] != self._start:
            tokens = [*self._start, *tokens]
        place = None
        if self._outputs is not None and turn.add_generation_prompt and not turn.continue_final_message:
            place = OutputPlace(lead=self._lead(rendered.text), prefix=prefix_digest(rendered.text))
        tail = rendered.reveal(max(len(rendered.text) - TAIL, 0))
        return ChatPrompt(tokens=pack(tokens), tail=tail, place=place)

    def remember(
        self, prompt: ChatPrompt, content: str, calls: Sequence[ToolCall | ParsedCall], tokens: bytes, *, namespace: str
    ) -> None:
        """An output behind `prompt`: a message with this content and these calls, and its kept tokens (packed)."""
        if self._outputs is None or prompt.place is None or not tokens:
            return
        ids = unpack(tokens)
        vocabulary = self._tokenizer.vocabulary
        specials = [vocabulary.special_pieces[token] for token in ids if token in vocabulary.special_pieces]
        try:
            text = b"".join([vocabulary.piece(token, skip_special=False) for token in ids]).decode()
        except (UnicodeDecodeError, InvalidRequest):
            return  # no text that could come back
        if self._template.spellings.split(text)[1::2] != specials:
            return  # it spells a special token in others: encoded again it would be another output
        arguments = tuple(call.arguments for call in calls)
        output = KnownOutput(place=prompt.place, text=text, tokens=tokens, arguments=arguments)
        self._outputs.remember(message_key(namespace, content, calls), output)

    def _outputs_of(self, messages: Sequence[ChatMessage], namespace: str) -> _Known:
        """For each message the outputs that it may be."""
        if self._outputs is None:
            return [()] * len(messages)
        return [
            self._outputs.find(message_key(namespace, message.content, message.tool_calls))
            if message.role == "assistant"
            else ()
            for message in messages
        ]

    # --- rendering ---

    def _rendered(self, turn: ChatTurn, known: _Known) -> Disguised:
        tools = turn.tools if turn.tool_choice != "none" else ()
        variables = self._variables(turn)
        called = self.knows_tools and any(message.tool_calls for message in turn.messages)
        first: InvalidRequest | None = None
        for form in _FORMS if called else _FORMS[:1]:
            messages = self._messages(turn.messages, known, form)
            if not self.knows_tools:
                # The same words whatever the choice is, which a grammar sees to: a prompt that changes isn't reused.
                messages = plain_messages(messages, tools, parallel=turn.parallel_tool_calls)
            try:
                return self._template.render_disguised(
                    messages,
                    add_generation_prompt=turn.add_generation_prompt and not turn.continue_final_message,
                    continue_final_message=turn.continue_final_message,
                    tools=[described(tool) for tool in tools] or None,
                    **variables,
                )
            except InvalidRequest as error:
                first = first or error
        assert first is not None
        raise first

    def _check_continued(self, turn: ChatTurn) -> None:
        last = turn.messages[-1]
        if last.role != "assistant" or last.tool_calls:
            raise InvalidRequest(
                "continue_final_message is for a last message of the assistant that has text and no tool calls.",
                hint="Leave it out, or end with the beginning of the assistant's answer.",
                param="continue_final_message",
            )

    def _variables(self, turn: ChatTurn) -> dict[str, Any]:
        """What the template gets beside messages and tools."""
        reserved = sorted(RESERVED & turn.variables.keys())
        if reserved:
            raise InvalidRequest(
                f"chat_template_kwargs.{reserved[0]} can't be given: the server sets it.",
                hint="Leave it out.",
                param=f"chat_template_kwargs.{reserved[0]}",
            )
        variables = dict(turn.variables)
        effort = turn.reasoning_effort
        if effort is None:
            return variables
        if self.reasoning.levels:
            return {_EFFORT: effort, **variables}
        if self.reasoning.switch is not None:
            return {self.reasoning.switch: effort not in _LITTLE, **variables}
        if not self.reasoning.takes(effort):
            raise Unsupported(
                f"reasoning_effort={effort!r}: the model's template has no levels of reasoning.",
                hint="Leave it out.",
                param=_EFFORT,
            )
        return variables

    def _messages(self, messages: Sequence[ChatMessage], known: _Known, form: _Form) -> list[dict[str, Any]]:
        names: dict[str, str] = {}  # of the calls so far, by id: some models number theirs anew in each turn
        shown: list[dict[str, Any]] = []
        for message, outputs in zip(messages, known, strict=True):
            names.update((call.id, call.name) for call in message.tool_calls)
            shown.append(self._message(message, names, form, _as_written(message, outputs)))
        return shown

    def _message(
        self, message: ChatMessage, names: Mapping[str, str], form: _Form, written: Sequence[str | None]
    ) -> dict[str, Any]:
        """`written`: of its calls, the arguments as an output of ours had them."""
        source = self._template.source
        role = "system" if message.role == "developer" and "developer" not in source else message.role
        shown: dict[str, Any] = {"role": role, "content": message.content or ""}
        if message.reasoning is not None:
            shown.update({key: message.reasoning for key in _REASONING_KEYS if key in source})
        if message.tool_calls:
            shown["content"] = message.content or form.no_content
            shown["tool_calls"] = [
                self._call(call, form, known) for call, known in zip(message.tool_calls, written, strict=True)
            ]
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id or "")
            shown.update({"name": name} if name else {})
            if message.tool_call_id is not None:
                shown["tool_call_id"] = self._id(message.tool_call_id)
        return shown

    def _call(self, call: ToolCall, form: _Form, written: str | None) -> dict[str, Any]:
        text = written or call.arguments or "{}"
        values = decode(text) if self.knows_tools and form.objects else None
        arguments = JsonObject(values, text, verbatim=written is not None) if isinstance(values, dict) else text
        function = {"name": call.name, "arguments": arguments}
        return {"id": self._id(call.id), "type": "function", "function": function}

    def _id(self, given: str) -> str:
        """A call's id as the template can take it: some accept nine letters and digits only, and a history may have
        been begun elsewhere."""
        if self._short_ids and not _SHORT_ID.match(given):
            return blake2b(given.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]
        return given

    # --- encoding ---

    def _encoded(self, rendered: Disguised, outputs: _Known) -> list[int]:
        """Token ids of the rendering, with the ids of known outputs where their text stands."""
        ids: list[int] = []
        done = 0
        for ways in outputs:
            known = _standing(rendered.text, done, ways)
            if known is None:
                continue
            begin = rendered.text.index(known.place.lead + known.text, done) + len(known.place.lead)
            ids += encode_rendered(self._tokenizer, rendered.pieces(done, begin))
            ids += unpack(known.tokens)
            done = begin + len(known.text)
        return ids + encode_rendered(self._tokenizer, rendered.pieces(done))

    def _lead(self, text: str) -> str:
        """The end of a rendering, from the last special token on where there is one."""
        parts = self._template.spellings.split(text[-TAIL:])
        return "".join(parts[-2:]) if len(parts) > 1 else text[-LEAD:]


_Known = Sequence[tuple[KnownOutput, ...]]


def _as_written(message: ChatMessage, outputs: Sequence[KnownOutput]) -> Sequence[str | None]:
    """The arguments of a message's calls as the output had them: as they come back, where one wrote them so."""
    sent = tuple(call.arguments for call in message.tool_calls)
    if not sent or not outputs:
        return [None] * len(sent)
    return sent if any(known.arguments == sent for known in outputs) else outputs[0].arguments


def _standing(text: str, done: int, outputs: Sequence[KnownOutput]) -> KnownOutput | None:
    """The output that stands next in `text`: of this conversation if it is known, else of one like it."""
    other: KnownOutput | None = None
    for known in outputs:
        at = text.find(known.place.lead + known.text, done)
        if at < 0:
            continue
        if prefix_digest(text[: at + len(known.place.lead)]) == known.place.prefix:
            return known
        other = other or known
    return other


def described(tool: Tool) -> dict[str, Any]:
    """A tool as templates want it."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": msgspec.to_builtins(tool.schema),
        },
    }
