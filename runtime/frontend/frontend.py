"""The frontend: checks calls, encodes prompts, sends them to the engine, and turns replies into chunks.

One for each front process; everything in it runs in one event loop (long texts are encoded in threads). It talks to
the engine through a link and knows neither HTTP nor the scheduler. Used by api, programs and Engine.
"""

from __future__ import annotations

import codecs
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Literal, TypeVar, cast

import msgspec

from palmette.runtime.errors import (
    ContextLengthExceeded,
    EngineDied,
    InvalidRequest,
)
from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.calls import OpenCalls
from palmette.runtime.frontend.chat_prompt import ChatPrompts
from palmette.runtime.frontend.chats import Chats
from palmette.runtime.frontend.engine_health import EngineHealth, Health
from palmette.runtime.frontend.generation import Generation
from palmette.runtime.frontend.offload import Offload
from palmette.runtime.frontend.output import OutputText
from palmette.runtime.frontend.output_ids import OutputIds
from palmette.runtime.frontend.programs.gate import Gate
from palmette.runtime.frontend.programs.run import GraphRun
from palmette.runtime.frontend.scores import Scores
from palmette.runtime.frontend.state import BranchState, Message, StateEditor, TurnTemplate
from palmette.runtime.frontend.tool_chat import ToolChat
from palmette.runtime.link import EngineLink
from palmette.runtime.messages.branches import BeginRole, Chunk, EndRole, Part, Text
from palmette.runtime.messages.hints import Hint
from palmette.runtime.messages.programs import RunProgram, check
from palmette.runtime.messages.replies import (
    Answer,
    Counters,
    EngineReady,
    Flushed,
    Heartbeat,
    Reply,
    TreeDump,
)
from palmette.runtime.messages.requests import DumpTree, FlushCache, Generate, Scheduling
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import count, pack
from palmette.runtime.metrics import FrontMetrics
from palmette.runtime.parsers.registry import Formats, detect
from palmette.runtime.text.tokenizer import Tokenizer
from palmette.runtime.vocabulary import Vocabulary

MOST_OPEN = 4096  # requests
MOST_QUEUED_TOKENS = 4_000_000
LONG_TEXT = 2_000  # characters; longer ones take a millisecond or more, so they are encoded in a thread
TURN_TEXT = 16  # rendering a turn takes as long as encoding so many characters
NORMALISED = 4  # characters that a tokenizer may make one of before it begins (composed accents, say)

T = TypeVar("T")
Prompt = str | Sequence[int] | Sequence[Message]


class Frontend:
    """What a front offers, over any engine link."""

    def __init__(
        self,
        link: EngineLink,
        tokenizer: Tokenizer,
        template: TurnTemplate | None,
        *,
        model: str,
        context_length: int,
        max_open: int = MOST_OPEN,
        max_queued_tokens: int = MOST_QUEUED_TOKENS,
        formats: Formats | None = None,
        output_ids: bool = True,
    ) -> None:
        """`context_length` holds until the engine says its own; `max_open`: requests open at a time;
        `max_queued_tokens`: prompt tokens of those that have had no reply yet. `formats`: of tool calls and reasoning,
        by default those of the template. `output_ids`: chat messages that are earlier outputs keep their ids."""
        self.model = model
        self.context_length = context_length
        self.metrics = FrontMetrics()
        self.editor = StateEditor(tokenizer, template)
        self.vocabulary: Vocabulary = tokenizer.vocabulary
        self._engine = EngineHealth()
        self._tokenizer = tokenizer
        vocabulary = self.vocabulary
        longest = max(map(len, (*vocabulary.pieces, *vocabulary.special_pieces.values())), default=1)
        self._most_characters = NORMALISED * max(1, longest)  # of one token
        self._link = link
        self._calls = OpenCalls(link, self.metrics, limit=max_open, queued_tokens=max_queued_tokens)
        self.offload = Offload()
        self.gate = Gate()  # of compiled programs
        source = template.chat_template.source if template is not None else tokenizer.chat_template
        formats = formats or detect(source)
        prompts = None
        if template is not None:
            prompts = ChatPrompts(
                template.chat_template,
                tokenizer,
                formats,
                start=self.editor.start,
                outputs=OutputIds() if output_ids else None,
            )
        self.chats = Chats(self, prompts, formats)
        self.scores = Scores(self, self._calls)
        self._seeds = random.SystemRandom()

    # --- the engine ---

    def start(self) -> None:
        """Begin to talk to the engine, in a running event loop."""
        self._link.start(self._deliver)

    async def close(self) -> None:
        self.offload.close()
        await self._link.close()

    @property
    def ready(self) -> EngineReady | None:
        return self._engine.ready

    @property
    def counters(self) -> Counters:
        return self._engine.counters

    async def wait_ready(self) -> EngineReady:
        """Waits until the engine has said what it is. Raises its error where it can't start."""
        return await self._engine.wait_ready()

    def expect_engine(self, on_progress: Callable[[str], None]) -> None:
        """A new engine is being started; `on_progress` gets what it says about that."""
        self._engine.expect(on_progress)

    def engine_lost(self, status: Literal["restarting", "failed"], detail: str) -> None:
        """Whoever watches the engine says that it is gone; the next EngineReady ends that."""
        self._engine.lost(status, detail)
        hint = "Try again in a moment." if status == "restarting" else "Start the server again; its log says why."
        self._calls.absence = EngineDied(detail, hint=hint)
        self.metrics.record_restart()

    def health(self) -> Health:
        return self._engine.health()

    def _deliver(self, replies: Sequence[Reply]) -> None:
        answers: list[Answer] = []
        for reply in replies:
            if isinstance(reply, Answer):
                answers.append(reply)
                continue
            self._engine.note(reply)
            if isinstance(reply, Heartbeat):
                self.metrics.record_counters(reply.counters)
            elif isinstance(reply, EngineReady):
                self._calls.absence = None
                self._calls.restart_seconds = self._engine.start_seconds
                self.context_length = reply.context_length
                self.gate.open(reply.kv_tokens, reply.page_size)
        self._calls.deliver(answers)

    # --- text ---

    async def tokens_of(self, prompt: Prompt, *, special: bool = False) -> list[int]:
        """Token ids of a text, of a chat (up to the assistant's turn), or the checked ids themselves.

        BOS goes in front where the model wants one. An empty text becomes BOS alone, or where the model has none
        the token that ends a text, so that there is always something to continue. `special`: what spells a special
        token in a text is that token.
        """
        if isinstance(prompt, str):
            self.check_size(len(prompt), "prompt")
            return self.editor.with_start(await self.encode(prompt, special=special, start_of_text=True))
        if prompt and isinstance(prompt[0], Message):
            chat: list[Message] = [message for message in prompt if isinstance(message, Message)]
            size = sum(len(message.content) for message in chat)
            self.check_size(size, "messages")
            size += sum(len(message.role) for message in chat)
            return await self._maybe_in_thread(size, lambda: self.editor.chat_tokens(chat))
        ids = cast("list[int]", list(prompt))
        await self._maybe_in_thread(len(ids) // 5, lambda: self.check_tokens(ids))
        return ids or [self.editor.start_token]

    async def packed_of(self, text: str, *, special: bool = False) -> bytes:
        """`tokens_of` a text, packed; all of it in a thread where the text is long."""
        self.check_size(len(text), "prompt")

        def packed() -> bytes:
            tokens = self._tokenizer.encode(text, special=special, start_of_text=True)
            return pack(self.editor.with_start(tokens))

        return await self._maybe_in_thread(len(text), packed)

    async def prepared(self, characters: int, work: Callable[[], T], param: str, *, cost: int = 0) -> T:
        """`work` on a prompt of so many characters, in a thread where that would hold up the loop; `cost`: what else
        it does, as characters that take as long. Raises ContextLengthExceeded for what can't fit."""
        self.check_size(characters, param)
        return await self._maybe_in_thread(characters + cost, work)

    async def encode(self, text: str, *, special: bool = False, start_of_text: bool = False) -> list[int]:
        """Token ids of `text` as a run of its own, no BOS."""
        return await self._maybe_in_thread(
            len(text), lambda: self._tokenizer.encode(text, special=special, start_of_text=start_of_text)
        )

    def check_size(self, characters: int, param: str) -> None:
        """Refuses what can't fit the context, however it is encoded: encoding it could take minutes."""
        least = characters // self._most_characters
        if least > self.context_length:
            raise ContextLengthExceeded(
                f"{self._most_tokens} The text has {characters} characters, which are more than {least}.",
                hint="Shorten it.",
                param=param,
            )

    @property
    def _most_tokens(self) -> str:
        """The words that clients of OpenAI's API look for before they shorten a conversation."""
        return f"This model's maximum context length is {self.context_length} tokens."

    def text_of(self, tokens: Sequence[int], *, special: bool = False) -> str:
        return self.editor.text(pack(tokens), special=special)

    def texts_of(self, tokens: Sequence[int]) -> tuple[str, ...]:
        """The text that each token adds; together they spell the whole. A character of several tokens belongs to its
        last."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        last = len(tokens) - 1
        pieces = self.vocabulary.pieces
        return tuple(decoder.decode(pieces[token], index == last) for index, token in enumerate(tokens))

    def text_of_packed(self, tokens: bytes) -> str:
        """Text of packed ids, special tokens written out."""
        return self.editor.text(tokens, special=True)

    def check_tokens(self, tokens: Sequence[int], param: str = "prompt") -> None:
        """Raises InvalidRequest for what is no token id of this model."""
        size = self.vocabulary.size
        if not tokens or (set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) < size):
            return  # without a step of the interpreter for each: prompts are long
        for token in tokens:
            if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
                raise InvalidRequest(
                    f"{token!r} is not a token id; the vocabulary has ids 0 to {size - 1}.", param=param
                )

    # --- generation ---

    async def generate(
        self, prompt: Prompt, params: SamplingParams, *, namespace: str = "", scheduling: Scheduling = Scheduling()
    ) -> AsyncIterator[Chunk]:
        """Encode `prompt` and yield the chunks of its continuation. Closing the iterator aborts."""
        generation = self.submit(await self.tokens_of(prompt), params, namespace=namespace, scheduling=scheduling)
        try:
            async for chunk in generation:
                yield chunk
        finally:
            generation.close()

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        *,
        namespace: str = "",
        request_id: str | None = None,
        prompt_logprobs_from: int | None = None,
        scheduling: Scheduling = Scheduling(),
    ) -> Generation:
        """Check and send at once; the caller must read the generation to its end or close it.

        `params.max_tokens` None means the rest of the context; a seed is drawn where there is none.
        Raises InvalidRequest, ContextLengthExceeded, Overloaded.
        """
        return self.submit_packed(
            pack(prompt),
            params,
            namespace=namespace,
            request_id=request_id,
            prompt_logprobs_from=prompt_logprobs_from,
            scheduling=scheduling,
        )

    def submit_packed(
        self,
        prompt: bytes,
        params: SamplingParams,
        *,
        namespace: str = "",
        first_output_index: int = 0,
        request_id: str | None = None,
        prompt_logprobs_from: int | None = None,
        scheduling: Scheduling = Scheduling(),
        spelled: Mapping[int, bytes] | None = None,
        reply_seconds: float = 0.0,
        field: str = "prompt",
    ) -> Generation:
        """`submit` of packed ids. `first_output_index`: the RNG counter of the first output token. `spelled`: special
        tokens that are written out in the text (OutputText). `reply_seconds`: between chunks, at least. `field`: what
        the caller calls the prompt, for errors."""
        params.check(self.vocabulary.size)
        params = self._completed(params, count(prompt), field)
        request = Generate(
            id=request_id or uuid.uuid4().hex,
            prompt=prompt,
            params=params,
            namespace=namespace,
            first_output_index=first_output_index,
            prompt_logprobs_from=prompt_logprobs_from,
            reply_seconds=reply_seconds,
            **msgspec.structs.asdict(scheduling),
        )
        output = OutputText(self.vocabulary, stops=params.stop, spelled=spelled)
        compiles = params.constraint is not None or bool(params.stop_regex)
        return Generation(self._calls.open(request), output, logprobs=params.logprobs, compiles=compiles)

    def _completed(self, params: SamplingParams, prompt_tokens: int, field: str) -> SamplingParams:
        """`params` with a number of tokens that fits behind the prompt, and a seed."""
        context = self.context_length
        limit = params.max_tokens
        if limit is None:
            limit = context - prompt_tokens
            if limit < 1:
                raise ContextLengthExceeded(
                    f"{self._most_tokens} The prompt has {prompt_tokens} tokens, which leave no room for an output.",
                    hint="Shorten the prompt.",
                    param=field,
                )
        elif prompt_tokens + limit > context:
            raise ContextLengthExceeded(
                f"{self._most_tokens} The prompt has {prompt_tokens} tokens and max_tokens is {limit}:"
                f" {prompt_tokens + limit} together, {prompt_tokens + limit - context} too many.",
                hint=f"Shorten the prompt, or set max_tokens to {context - prompt_tokens} or less."
                if prompt_tokens < context
                else "Shorten the prompt.",
                param="max_tokens" if prompt_tokens < context else field,
            )
        seed = self._seeds.getrandbits(63) if params.seed is None else params.seed
        return msgspec.structs.replace(params, max_tokens=limit, seed=seed)

    # --- branches ---

    async def open_branch(self, namespace: str = "", scheduling: Scheduling = Scheduling()) -> Branch:
        """A new branch; see lang/backends/base.py for its verbs. `scheduling`: of each of them."""
        return Branch(self, namespace=namespace, scheduling=scheduling)

    def open_chat(self, namespace: str = "", scheduling: Scheduling = Scheduling()) -> ToolChat:
        """A conversation with tools in the model's own format; see lang/backends/base.py for its verbs."""
        return ToolChat(self.chats, self.hint, namespace=namespace, scheduling=scheduling)

    @property
    def idle(self) -> bool:
        """Whether nothing is asked of the engine that it hasn't answered."""
        return not len(self._calls)

    def run_program(self, request: RunProgram, scheduling: Scheduling = Scheduling()) -> GraphRun:
        """A compiled program, as one run. Raises InvalidRequest for a plan that can't be run."""
        check(request.plan, self.vocabulary.size)
        return GraphRun(self, request, scheduling)

    async def append(self, state: BranchState, parts: Sequence[Part], *, encode: bool) -> tuple[BranchState, str]:
        """A branch's state with `parts` behind it (see StateEditor); `encode`: with nothing left pending."""

        def edit() -> tuple[BranchState, str]:
            edited, appended = self.editor.append(state, parts)
            return (self.editor.encoded(edited) if encode else edited), appended

        size = len(state.pending) + sum(len(part.text) for part in parts if isinstance(part, Text))
        self.check_size(size, "parts")
        boundaries = sum(isinstance(part, BeginRole | EndRole) for part in parts)
        size += TURN_TEXT * boundaries * (len(state.turns) + boundaries)  # each renders the turns before it
        return await self._maybe_in_thread(size, edit)

    # --- the engine's cache and requests ---

    def hint(self, hint: Hint) -> None:
        """What is known of a cached path's future; not answered, and lost where there is no engine."""
        if self._calls.absence is None:
            self._link.send(hint)

    def abort(self, request_id: str | None) -> int:
        """End the request with this id and its siblings (id-0, id-1 …), or every one; returns how many."""
        ids = self._calls.ids()
        if request_id is not None:
            ids = [each for each in ids if each == request_id or _is_sibling(each, request_id)]
        return sum(self._calls.abort(each) for each in ids)

    async def flush_cache(self) -> int:
        """Drop cached pages that no request uses; returns how many."""
        return (await self._calls.ask(FlushCache(uuid.uuid4().hex), Flushed)).pages

    async def dump_tree(self) -> TreeDump:
        return await self._calls.ask(DumpTree(uuid.uuid4().hex), TreeDump)

    async def _maybe_in_thread(self, characters: int, work: Callable[[], T]) -> T:
        """`work` on so much text: at once where it is short, else in a thread, so that the loop goes on."""
        return work() if characters < LONG_TEXT else await self.offload.run(work)


def _is_sibling(each: str, request_id: str) -> bool:
    """Whether `each` is one of the numbered parts ("id-0", "id-1" …) that a call with `request_id` was split into."""
    stem, _, number = each.rpartition("-")
    return stem == request_id and number.isdecimal()
