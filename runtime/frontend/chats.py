"""Chat turns: the one way from messages and tools to a generation whose chunks are text, reasoning and calls.

    prepared = await frontend.chats.prepare(turn, params, namespace=namespace)
    generation = frontend.chats.submit(prepared, request_id=…, scheduling=…)      # one an output
    async for chunk in generation: …                                             # or await collect_chats([generation])

Every chat surface uses it, streams and whole answers alike. Knows formats and grammars, not HTTP. One for each
Frontend, which it submits to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from palmette.runtime.errors import InvalidRequest, ModelError, Unsupported
from palmette.runtime.frontend.chat_generation import ChatGeneration, FinishedTurn
from palmette.runtime.frontend.chat_prompt import ChatPrompt, ChatPrompts, ReasoningControl
from palmette.runtime.frontend.chat_turn import ChatTurn
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.messages.grammar import Constraint, GrammarSource
from palmette.runtime.messages.requests import Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.parsers.constraints import constraint_for
from palmette.runtime.parsers.formats.harmony import HARMONY
from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.reasoning import reasoning_tags
from palmette.runtime.parsers.registry import NONE, Formats
from palmette.runtime.vocabulary import Vocabulary

MESSAGE_TEXT = 100  # rendering a message takes as long as encoding so many characters

T = TypeVar("T")


class ChatEngine(Protocol):
    """What chats need of the frontend."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    async def prepared(self, characters: int, work: Callable[[], T], param: str, *, cost: int = 0) -> T:
        """`work` on a prompt of so many characters, in a thread where that and its cost would hold up the loop."""
        ...

    def submit_packed(
        self,
        prompt: bytes,
        params: SamplingParams,
        *,
        namespace: str = "",
        request_id: str | None = None,
        scheduling: Scheduling = Scheduling(),
        spelled: Mapping[int, bytes] | None = None,
    ) -> Generation: ...

    def abort(self, request_id: str | None) -> int: ...


class PreparedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn ready to be submitted, once or several times. `params` hold the grammar that it asks for; `calls_grammar`:
    it is made of the tools."""

    turn: ChatTurn
    prompt: ChatPrompt
    params: SamplingParams
    namespace: str
    calls_grammar: bool = False

    @property
    def tokens(self) -> list[int]:
        return unpack(self.prompt.tokens)


class Chats:
    """See the module."""

    def __init__(self, engine: ChatEngine, prompts: ChatPrompts | None, formats: Formats) -> None:
        """`prompts`: None for a model without a chat template."""
        self.formats = formats
        self._engine = engine
        self._prompts = prompts

    @property
    def available(self) -> bool:
        """Whether the model has a chat template."""
        return self._prompts is not None

    @property
    def reasoning(self) -> ReasoningControl:
        """What the template lets callers say of reasoning; whether the model reasons at all is in `formats`."""
        return ReasoningControl() if self._prompts is None else self._prompts.reasoning

    async def prepare(self, turn: ChatTurn, params: SamplingParams, *, namespace: str = "") -> PreparedTurn:
        """Render and encode. `params.constraint` is what the answer must match; tools add theirs.

        Raises InvalidRequest and Unsupported naming a field as OpenAI's chat completions call it.
        """
        try:
            return await self._prepare(turn, params, namespace)
        except RecursionError:  # of what writes JSON: templates and grammars
            raise InvalidRequest(
                "A tool's schema, or the arguments of a call, are nested too deeply.", hint="Make them flatter."
            ) from None

    async def _prepare(self, turn: ChatTurn, params: SamplingParams, namespace: str) -> PreparedTurn:
        prompts = self._need_prompts()
        self._check(turn)
        grammar = self._calls_grammar(turn, params)  # refuses tools before any work on them
        prompt = await self._engine.prepared(
            _characters(turn), lambda: prompts.prompt(turn, namespace=namespace), "messages", cost=_cost(turn)
        )
        constraint = self._constraint(turn, params, grammar, prompt.tail)
        return PreparedTurn(
            turn=turn,
            prompt=prompt,
            params=msgspec.structs.replace(params, constraint=constraint),
            namespace=namespace,
            calls_grammar=grammar is not None,
        )

    def submit(
        self,
        prepared: PreparedTurn,
        *,
        seed: int | None = None,
        request_id: str | None = None,
        scheduling: Scheduling = Scheduling(),
    ) -> ChatGeneration:
        """Send at once; the caller must read the generation to its end or close it. `seed`: instead of the params'."""
        turn, params = prepared.turn, prepared.params
        if seed is not None:
            params = msgspec.structs.replace(params, seed=seed)
        formats = self._formats_of(turn)
        spelled = self._spelled(turn)
        generation = self._engine.submit_packed(
            prepared.prompt.tokens,
            params,
            namespace=prepared.namespace,
            request_id=request_id,
            scheduling=scheduling,
            spelled=spelled,
        )
        parser = output_parser(
            formats, turn.tools, offered=_offers(turn), prompt="" if _continues(turn) else prepared.prompt.tail
        )
        return ChatGeneration(
            generation,
            parser,
            parallel=turn.parallel_tool_calls,
            must_call=_offers(turn) and turn.tool_choice != "auto",
            constrained=prepared.calls_grammar,
            spelled=spelled if turn.separate_reasoning else {},
            abort=self._engine.abort,
            on_finish=lambda finished: self._remember(prepared, finished),
        )

    def _need_prompts(self) -> ChatPrompts:
        if self._prompts is None:
            raise ModelError(
                "The model has no chat template, so it can't chat.",
                hint="Give one with --chat-template FILE, or complete plain text.",
            )
        return self._prompts

    def _check(self, turn: ChatTurn) -> None:
        if turn.continue_final_message and _offers(turn) and turn.tool_choice != "auto":
            raise InvalidRequest(
                "continue_final_message goes on with a text, and tool_choice asks for a call.",
                hint="Leave out one of them.",
                param="continue_final_message",
            )
        if _offers(turn) and self.formats.tools == NONE:
            raise Unsupported(
                "'tools' is not supported: the server was started with --tool-call-parser none.",
                hint="Leave them out, or start it with another.",
                param="tools",
            )
        if not turn.separate_reasoning and HARMONY.name in (self.formats.tools, self.formats.reasoning):
            raise Unsupported(
                "The model's reasoning stands in messages of their own, so it can't be left in the text.",
                hint="Leave out separate_reasoning.",
                param="separate_reasoning",
            )

    def _formats_of(self, turn: ChatTurn) -> Formats:
        return self.formats if turn.separate_reasoning else msgspec.structs.replace(self.formats, reasoning=NONE)

    def _spelled(self, turn: ChatTurn) -> dict[int, bytes]:
        """Special tokens that the parser of this turn's outputs must see, or the caller wants to."""
        tools = self.formats.tools if _offers(turn) else NONE
        marks = Formats(tools=tools, reasoning=self.formats.reasoning).marks
        special = self._engine.vocabulary.special_pieces
        return {token: text.encode() for token, text in special.items() if text in marks}

    # --- grammars ---

    def _calls_grammar(self, turn: ChatTurn, params: SamplingParams) -> GrammarSource | None:
        if self.formats.tools == NONE:
            return None
        grammar = constraint_for(
            self.formats.tools,
            turn.tools,
            turn.tool_choice,
            parallel=turn.parallel_tool_calls,
            allowed=turn.allowed_tools,
            answer=self._answer(turn, params),
        )
        if grammar is None or not grammar.options.get("free_text"):
            return grammar
        free = self._free_special(grammar)
        return msgspec.structs.replace(grammar, options={**grammar.options, "free_special": free}) if free else grammar

    def _answer(self, turn: ChatTurn, params: SamplingParams) -> GrammarSource | None:
        """What the model must say where it doesn't call."""
        if params.constraint is None or not _offers(turn) or turn.tool_choice != "auto":
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

    def _free_special(self, grammar: GrammarSource) -> list[str]:
        """Special tokens of the reasoning, which free text around calls may hold. Where calls begin with plain text it
        can't (runtime/grammar/tags.py)."""
        special = set(self._engine.vocabulary.special_pieces.values())
        triggers = json.loads(grammar.text)["triggers"]
        if not all(any(trigger.startswith(text) for text in special if text) for trigger in triggers):
            return []
        return sorted(special & Formats(tools=NONE, reasoning=self.formats.reasoning).marks)

    def _constraint(
        self, turn: ChatTurn, params: SamplingParams, calls: GrammarSource | None, tail: str
    ) -> Constraint | None:
        """What the output must match: the calls asked for, else the answer; after the reasoning that the prompt has
        begun, or that the model may begin."""
        asked = params.constraint
        if calls is not None:
            asked = Constraint(grammar=calls, jump=turn.jump, complete=turn.complete)
        if asked is None:
            return None
        reasoning = self.formats.reasoning
        if HARMONY.name in (self.formats.tools, reasoning):
            if calls is None:
                raise Unsupported(
                    "The model writes answers behind headers of their own, which no grammar asks for yet.",
                    hint="Leave out response_format.",
                    param="response_format",
                )
            return asked
        if reasoning == NONE or _continues(turn):
            return asked
        tags = reasoning_tags(reasoning)
        begun = tags.opening(tail)
        if not begun and tail.rstrip().endswith(tags.end.strip()):
            return asked  # the prompt has ended it
        begin = None if begun else tags.begin
        return msgspec.structs.replace(asked, grammar=_after_reasoning(asked.grammar, tags.end, begin))

    def _remember(self, prepared: PreparedTurn, finished: FinishedTurn) -> None:
        self._need_prompts().remember(
            prepared.prompt, finished.text, finished.calls, finished.tokens, namespace=prepared.namespace
        )


def _offers(turn: ChatTurn) -> bool:
    return bool(turn.tools) and turn.tool_choice != "none"


def _continues(turn: ChatTurn) -> bool:
    return turn.continue_final_message


def _after_reasoning(grammar: GrammarSource, end: str, begin: str | None) -> GrammarSource:
    source = {"grammar": grammar, "end": end, **({} if begin is None else {"begin": begin})}
    text = msgspec.json.encode(source).decode()
    return GrammarSource(kind="after_reasoning", text=text)


def _characters(turn: ChatTurn) -> int:
    """Of a turn's messages."""
    texts = [text for message in turn.messages for text in (message.content, message.reasoning) if text]
    calls = [call for message in turn.messages for call in message.tool_calls]
    return sum(map(len, texts)) + sum(len(call.arguments) + len(call.name) for call in calls)


def _cost(turn: ChatTurn) -> int:
    """What rendering takes, as characters that take as long to encode."""
    tools = sum(len(msgspec.json.encode(tool.schema)) for tool in turn.tools)
    return tools + MESSAGE_TEXT * (len(turn.messages) + len(turn.tools))
