"""A branch's state and how parts change it: the one place where text becomes token ids.

The seams: appended text is pending and is encoded once, as one run, at the next generate, score, fork or role
boundary; generated tokens stay as generated; special tokens come from the template only. States are immutable, so a
verb that fails leaves its branch as it was, and a fork is the same state twice. Chat messages go the same way, so a
chat and a program that say the same thing have the same ids. Used by branch and frontend; knows no requests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from palmette.runtime.errors import InvalidRequest, ModelError
from palmette.runtime.frontend.thinking import ThinkingSplitter
from palmette.runtime.messages.branches import BeginRole, EndRole, Part, Text, Tokens
from palmette.runtime.messages.tokens import TOKEN_BYTES, count, pack, unpack
from palmette.runtime.text.chat_template import ChatTemplate, Rendered, encode_rendered
from palmette.runtime.text.tokenizer import Tokenizer
from palmette.runtime.text.turns import Rewrite

PROMPT_END = 32  # tokens at the end of a prompt, among which a template may have put the tag that begins reasoning


class Message(NamedTuple):
    """One turn of a chat."""

    role: str
    content: str


class TurnTemplate(Protocol):
    """What a chat template puts around the content of a turn (text/turns.py)."""

    def begin(self, messages: Sequence[Mapping[str, Any]], role: str) -> str | Rewrite:
        """The text that opens a turn behind the closed `messages`, or the whole chat written anew."""
        ...

    def end(self, messages: Sequence[Mapping[str, Any]], role: str) -> str:
        """The text that closes the last of `messages`."""
        ...

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> Rendered:
        """A whole chat up to where the assistant's turn begins."""
        ...

    @property
    def chat_template(self) -> ChatTemplate:
        """The template itself."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """A role boundary: the state of the turns at a token position."""

    position: int
    turns: tuple[Message, ...]
    role: str | None


@dataclass(frozen=True, slots=True)
class BranchState:
    """`tokens` are encoded (int32 bytes); `pending` is text behind them; `role` is the open turn's, if one is."""

    tokens: bytes = b""
    pending: str = ""
    turns: tuple[Message, ...] = ()
    role: str | None = None
    content: str = ""  # text of the open turn so far
    output_index: int = 0  # the RNG counter: tokens generated so far
    marks: tuple[Mark, ...] = (Mark(0, (), None),)
    turns_at: int | None = None  # where the first turn begins

    @property
    def length(self) -> int:
        return count(self.tokens)


class StateEditor:
    """Changes states with one tokenizer and one template. Calls are pure and may run in a thread."""

    def __init__(self, tokenizer: Tokenizer, template: TurnTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        vocabulary = tokenizer.vocabulary
        self._vocabulary = vocabulary
        self._bos = vocabulary.bos_id if vocabulary.add_bos else None

    @property
    def start_token(self) -> int:
        """What an empty prompt consists of: BOS, or else the first token that ends a text. Raises ModelError."""
        vocabulary = self._vocabulary
        if vocabulary.bos_id is not None:
            return vocabulary.bos_id
        if vocabulary.eos_ids:
            return vocabulary.eos_ids[0]
        raise ModelError(
            "The prompt is empty, and the model has neither a BOS nor an EOS token to start from.",
            hint="Send at least one token.",
        )

    @property
    def start(self) -> tuple[int, ...]:
        """The ids that every prompt begins with: BOS, where the model wants it."""
        return () if self._bos is None else (self._bos,)

    def with_start(self, tokens: Sequence[int]) -> list[int]:
        """`tokens` behind BOS where the model wants one and they lack it; the start token where there are none."""
        if self._bos is not None and (not tokens or tokens[0] != self._bos):
            return [self._bos, *tokens]
        return list(tokens) if tokens else [self.start_token]

    def append(self, state: BranchState, parts: Sequence[Part]) -> tuple[BranchState, str]:
        """The state with `parts` behind it, and the text they added, template text included."""
        appended: list[str] = []
        for part in parts:
            match part:
                case Text(text=text):
                    state = replace(state, pending=state.pending + text, content=state.content + text)
                case Tokens(tokens=data):
                    state, text = self._append_tokens(state, data)
                case BeginRole(role=role):
                    state, text = self._begin(state, role)
                case EndRole(role=role):
                    state, text = self._end(state, role)
            appended.append(text)
        return state, "".join(appended)

    def encoded(self, state: BranchState) -> BranchState:
        """The state with its pending text encoded; at least one token."""
        if state.pending:
            run = self._tokenizer.encode(state.pending, special=False, start_of_text=not state.tokens)
            state = self._add(state, run)
            state = replace(state, pending="")
        if not state.tokens:
            state = replace(state, tokens=pack([self.start_token]))
        return state

    def splitter(self, state: BranchState, reasoning: str) -> ThinkingSplitter:
        """What tells reasoning and answer of an output behind `state` apart; `reasoning`: a format, or "auto".

        Raises InvalidRequest for a format that isn't known.
        """
        end = self.text(state.tokens[-PROMPT_END * TOKEN_BYTES :], special=True) + state.pending
        return ThinkingSplitter.of(reasoning, self._tokenizer.chat_template, prompt=end)

    def spelled(self, marks: Collection[str]) -> dict[int, bytes]:
        """The special tokens that are spelt like one of `marks`, and how."""
        special = self._vocabulary.special_pieces
        return {token: text.encode() for token, text in special.items() if text in marks}

    def truncated(self, state: BranchState, position: int) -> BranchState:
        """The first `position` tokens; pending text is dropped. Raises InvalidRequest outside 0 … length."""
        if not 0 <= position <= state.length:
            raise InvalidRequest(
                f"Can't truncate to position {position!r}: the branch has {state.length} tokens.",
                param="position",
            )
        mark = next(mark for mark in reversed(state.marks) if mark.position <= position)
        tokens = state.tokens[: position * TOKEN_BYTES]
        return replace(
            state,
            tokens=tokens,
            pending="",
            turns=mark.turns,
            role=mark.role,
            content=self.text(tokens[mark.position * TOKEN_BYTES :]),
            marks=tuple(each for each in state.marks if each.position <= position),
            turns_at=state.turns_at if mark.turns or mark.role is not None else None,
        )

    def generated(self, state: BranchState, tokens: Sequence[int], tail: bytes, drawn: int) -> BranchState:
        """The state with an output behind it: its kept tokens, the kept bytes (pending), `drawn` sampled tokens."""
        packed = pack(tokens)
        pending = tail.decode("utf-8", "replace")
        return replace(
            state,
            tokens=state.tokens + packed,
            pending=pending,
            content=state.content + self.text(packed) + pending,
            output_index=state.output_index + drawn,
        )

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """A chat up to where the assistant's next turn begins, encoded as the model was trained to see it."""
        rendered = self._need_template().chat([message._asdict() for message in messages])
        return self.with_start(encode_rendered(self._tokenizer, rendered.pieces))

    def text(self, tokens: bytes, *, special: bool = False) -> str:
        """Token ids as text; `special`: with special tokens as written."""
        vocabulary = self._vocabulary  # a model may have more embeddings than tokens; those spell nothing
        pieces = [
            vocabulary.piece(token, skip_special=not special) for token in unpack(tokens) if token < vocabulary.size
        ]
        return b"".join(pieces).decode("utf-8", "replace")

    def _add(self, state: BranchState, tokens: Sequence[int]) -> BranchState:
        if not state.tokens and tokens:
            tokens = self.with_start(tokens)
        return replace(state, tokens=state.tokens + pack(tokens))

    def _append_tokens(self, state: BranchState, data: bytes) -> tuple[BranchState, str]:
        if state.pending:
            state = self.encoded(state)
        state = self._add(state, unpack(data))
        text = self.text(data, special=True)
        return replace(state, content=state.content + text), text

    def _begin(self, state: BranchState, role: str) -> tuple[BranchState, str]:
        if state.role is not None:
            raise InvalidRequest(
                f"Can't begin role {role!r}: role {state.role!r} is open.",
                hint="End it first.",
                param="parts",
            )
        opening = self._need_template().begin([turn._asdict() for turn in state.turns], role)
        if state.turns_at is None:
            state = self.encoded(state) if state.pending else state
            state = replace(state, turns_at=state.length)
        if isinstance(opening, Rewrite):
            return self._rewritten(state, opening, role), ""
        return self._boundary(state, opening, state.turns, role), opening

    def _end(self, state: BranchState, role: str) -> tuple[BranchState, str]:
        if state.role != role:
            opened = "no role is open" if state.role is None else f"role {state.role!r} is open"
            raise InvalidRequest(f"Can't end role {role!r}: {opened}.", hint="Begin it first.", param="parts")
        turns = (*state.turns, Message(role, state.content))
        text = self._need_template().end([turn._asdict() for turn in turns], role)
        return self._boundary(state, text, turns, None), text

    def _rewritten(self, state: BranchState, rewrite: Rewrite, role: str) -> BranchState:
        """The template writes earlier turns anew: all of them are encoded again behind what was before the first.

        What stayed the same is a common token prefix, which the engine's tree still holds.
        """
        start = state.turns_at or 0
        kept = replace(
            state,
            tokens=state.tokens[: start * TOKEN_BYTES],
            pending="",
            marks=tuple(mark for mark in state.marks if mark.position <= start and not mark.turns),
        )
        kept = self._add(kept, encode_rendered(self._tokenizer, rewrite.pieces))
        mark = Mark(kept.length, state.turns, role)
        return replace(kept, role=role, content="", marks=(*kept.marks, mark))

    def _boundary(
        self, state: BranchState, template_text: str, turns: tuple[Message, ...], role: str | None
    ) -> BranchState:
        """Encode what is pending as one run, then the template's text as another, special tokens read."""
        if state.pending:
            state = self.encoded(state)
        state = self._add(state, self._tokenizer.encode(template_text, special=True))
        mark = Mark(state.length, turns, role)
        return replace(state, turns=turns, role=role, content="", marks=(*state.marks, mark))

    def _need_template(self) -> TurnTemplate:
        if self._template is None:
            raise ModelError(
                "The model has no chat template, so it has no roles.",
                hint="Pass one with --chat-template FILE, or append the text of the turns yourself.",
            )
        return self._template
