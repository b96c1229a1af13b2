"""Chat turns: the one way from messages and tools to a generation whose chunks are text, reasoning and calls.

    prepared = await frontend.chats.prepare(turn, params, namespace=namespace)
    generation = frontend.chats.submit(prepared, request_id=…, scheduling=…)      # one an output
    async for chunk in generation: …                                             # or await collect_chats([generation])

Every chat surface uses it, streams and whole answers alike. Knows formats and grammars, not HTTP. One for each
Frontend, which it submits to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

import msgspec

from palmette.runtime.errors import InvalidRequest, ModelError, Unsupported
from palmette.runtime.frontend.chat_generation import ChatGeneration, FinishedTurn, TurnRules
from palmette.runtime.frontend.chat_grammar import TurnGrammars
from palmette.runtime.frontend.chat_prompt import ChatPrompt, ChatPrompts, ReasoningControl
from palmette.runtime.frontend.chat_turn import ChatTurn
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.messages.requests import UNWATCHED_SECONDS, Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import unpack
from palmette.runtime.parsers.constraints import check_tools
from palmette.runtime.parsers.formats.harmony import HARMONY
from palmette.runtime.parsers.parser import output_parser
from palmette.runtime.parsers.reasoning import reasoning_tags
from palmette.runtime.parsers.registry import NONE, Formats
from palmette.runtime.vocabulary import Vocabulary

MESSAGE_TEXT = 100  # rendering a message takes as long as encoding so many characters
ENOUGH_COST = 100_000  # to be worth a thread, whatever is added

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
        reply_seconds: float = 0.0,
        field: str = "prompt",
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
        self._grammars = TurnGrammars(formats, engine.vocabulary.special_pieces.values())

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
        check_tools(turn.tools, turn.tool_choice)  # before any work on them

        def work() -> PreparedTurn:
            calls = self._grammars.of_calls(turn, params)
            prompt = prompts.prompt(turn, namespace=namespace)
            constraint = self._grammars.constraint(turn, params, calls, self._gone_on_with(turn, prompt))
            if constraint is not None and params.logprobs:
                constraint = constraint.asked()
            return PreparedTurn(
                turn=turn,
                prompt=prompt,
                params=msgspec.structs.replace(params, constraint=constraint),
                namespace=namespace,
                calls_grammar=calls is not None,
            )

        return await self._engine.prepared(_characters(turn), work, "messages", cost=_cost(turn))

    def submit(
        self,
        prepared: PreparedTurn,
        *,
        seed: int | None = None,
        request_id: str | None = None,
        scheduling: Scheduling = Scheduling(),
        watched: bool = True,
    ) -> ChatGeneration:
        """Send at once; the caller must read the generation to its end or close it. `seed`: instead of the params'.
        `watched`: somebody sees the output grow."""
        turn, params = prepared.turn, prepared.params
        if seed is not None:
            params = msgspec.structs.replace(params, seed=seed)
        formats = self._formats_of(turn)
        spelled = self._spelled(turn)
        at_once = watched or (turn.offers and not turn.parallel_tool_calls)  # those are ended here, by their first call
        generation = self._engine.submit_packed(
            prepared.prompt.tokens,
            params,
            namespace=prepared.namespace,
            request_id=request_id,
            scheduling=scheduling,
            spelled=spelled,
            reply_seconds=0.0 if at_once else UNWATCHED_SECONDS,
            field="messages",
        )
        prompt = self._gone_on_with(turn, prepared.prompt)
        rules = TurnRules(
            parallel=turn.parallel_tool_calls,
            must_call=turn.must_call,
            spelled=spelled if turn.separate_reasoning else {},
        )
        return ChatGeneration(
            generation,
            output_parser(formats, turn.tools, offered=turn.offers, prompt=prompt),
            rules,
            explain=lambda error: self._grammars.explained(error, turn) if prepared.calls_grammar else error,
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
        if turn.continue_final_message and turn.must_call:
            raise InvalidRequest(
                "continue_final_message goes on with a text, and tool_choice asks for a call.",
                hint="Leave out one of them.",
                param="continue_final_message",
            )
        if turn.offers and self.formats.tools == NONE:
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

    def _gone_on_with(self, turn: ChatTurn, prompt: ChatPrompt) -> str:
        """The end of what the output goes on with: by it a parser knows whether reasoning has begun. A message that is
        continued has begun it where its text opens it."""
        if not turn.continue_final_message:
            return prompt.tail
        if self.formats.reasoning in (NONE, HARMONY.name):
            return ""
        tags, text = reasoning_tags(self.formats.reasoning), turn.messages[-1].content or ""
        open_think = text.rfind(tags.begin.strip()) > text.rfind(tags.end.strip())
        return tags.begin if open_think else ""

    def _formats_of(self, turn: ChatTurn) -> Formats:
        return self.formats if turn.separate_reasoning else msgspec.structs.replace(self.formats, reasoning=NONE)

    def _spelled(self, turn: ChatTurn) -> dict[int, bytes]:
        """Special tokens that the parser of this turn's outputs must see, or the caller wants to."""
        tools = self.formats.tools if turn.offers else NONE
        marks = Formats(tools=tools, reasoning=self.formats.reasoning).marks
        special = self._engine.vocabulary.special_pieces
        return {token: text.encode() for token, text in special.items() if text in marks}

    def _remember(self, prepared: PreparedTurn, finished: FinishedTurn) -> None:
        self._need_prompts().remember(
            prepared.prompt, finished.text, finished.calls, finished.tokens, namespace=prepared.namespace
        )


def _characters(turn: ChatTurn) -> int:
    """Of a turn's messages."""
    texts = [text for message in turn.messages for text in (message.content, message.reasoning) if text]
    calls = [call for message in turn.messages for call in message.tool_calls]
    return sum(map(len, texts)) + sum(len(call.arguments) + len(call.name) for call in calls)


def _cost(turn: ChatTurn) -> int:
    """What rendering takes, and a grammar of calls, as characters that take as long to encode."""
    cost = MESSAGE_TEXT * (len(turn.messages) + len(turn.tools))
    for tool in turn.tools:
        if cost > ENOUGH_COST:
            break
        cost += len(msgspec.json.encode(tool.schema))
    return cost
