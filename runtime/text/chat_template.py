"""Renders messages through a model's chat template, in jinja2's immutable sandbox. Called by the frontend.

Special tokens come from the template only. Where a message spells one, its spelling is replaced by a private-use
character before rendering and put back behind it, so that the rendering falls into pieces that are the template's
and pieces that are plain text; encode_rendered turns them into tokens accordingly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
import jinja2.meta
import msgspec

from palmette.runtime.errors import InvalidRequest, ModelError
from palmette.runtime.text.disguise import Disguise, Piece, Spellings
from palmette.runtime.text.template_environment import TemplateRefusal, line_of, template_environment
from palmette.runtime.text.tokenizer import Tokenizer

MAX_TEMPLATE = 1 << 20  # characters
MAX_RENDERED = 64 << 20
MAX_SECONDS = 5.0

Message = Mapping[str, Any]


class Rendered(msgspec.Struct, frozen=True):
    """A rendering: adjacent pieces of text, `special` ones parsed for special tokens, the others plain."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


class Disguised(msgspec.Struct, frozen=True):
    """A rendering in which what messages spell of special tokens is still hidden: the special tokens that stand in
    `text` are the template's."""

    text: str
    disguise: Disguise

    def pieces(self, begin: int = 0, end: int | None = None) -> tuple[Piece, ...]:
        """Part of it, to be encoded (encode_rendered)."""
        return self.disguise.pieces(self.text[begin:end])

    def reveal(self, begin: int = 0, end: int | None = None) -> str:
        """Part of it, as it reads."""
        return self.disguise.reveal(self.text[begin:end])


class ChatTemplate:
    """A compiled template. `special`: the written forms of all special tokens.

    Raises ModelError, with the template's line, where it isn't valid jinja.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "", special: Iterable[str] = ()) -> None:
        if len(source) > MAX_TEMPLATE:
            raise ModelError(
                f"The chat template has {len(source)} characters; at most {MAX_TEMPLATE}.",
                hint="Give another with --chat-template.",
            )
        self.source = source
        self.spellings = Spellings(special)
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = template_environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"The chat template is not valid jinja at line {error.lineno}: {error.message}.",
                hint="Give another with --chat-template.",
            ) from error

    @cached_property
    def variables(self) -> frozenset[str]:
        """What it looks up: `messages`, and whatever else a caller may give it."""
        return frozenset(jinja2.meta.find_undeclared_variables(template_environment().parse(self.source)))

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The tokenizer's own. Raises ModelError where it has none."""
        if tokenizer.chat_template is None:
            raise ModelError(
                "The model has no chat template.",
                hint="Give one with --chat-template FILE, or complete plain text instead of chatting.",
            )
        return cls(
            tokenizer.chat_template,
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            special=tokenizer.vocabulary.special_pieces.values(),
        )

    def render(
        self,
        messages: Sequence[Message],
        /,  # so that `extra` may hold any name
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> Rendered:
        """The conversation as the model was trained to see it.

        `extra` are further variables of the template (enable_thinking, documents …). Raises InvalidRequest where
        the template refuses the messages or fails on them, with its line.
        """
        disguised = self.render_disguised(messages, add_generation_prompt=add_generation_prompt, tools=tools, **extra)
        return Rendered(disguised.pieces())

    def render_disguised(
        self,
        messages: Sequence[Message],
        /,  # so that `extra` may hold any name
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> Disguised:
        """`render`, for callers that cut the rendering further. `continue_final_message`: it ends where the content of
        the last message ends."""
        given = {**extra, "messages": [dict(message) for message in messages], "tools": tools}
        disguise = Disguise(given, self.spellings)
        if not continue_final_message:
            return Disguised(self.text(disguise.values, add_generation_prompt=add_generation_prompt), disguise)
        *earlier, last = disguise.values["messages"]
        end = disguise.mark("")
        marked = {**last, "content": f"{last.get('content') or ''}{end}"}
        text = self.text({**disguise.values, "messages": [*earlier, marked]}, add_generation_prompt=False)
        if text.count(end) != 1:
            raise InvalidRequest(
                f"The chat template shows the last message {text.count(end)} times, so it can't be continued.",
                hint="Leave out continue_final_message.",
                param="continue_final_message",
            )
        return Disguised(text.partition(end)[0], disguise)

    def text(self, variables: Mapping[str, Any], *, add_generation_prompt: bool) -> str:
        """The raw rendering of these variables. Called by render and by turns.py."""
        deadline = time.monotonic() + MAX_SECONDS
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(
                {**self._tokens, **variables, "add_generation_prompt": add_generation_prompt}
            ):
                parts.append(part)
                size += len(part)
                if size > MAX_RENDERED or time.monotonic() > deadline:
                    raise TemplateRefusal(
                        f"it ran over its limits ({MAX_RENDERED} characters, {MAX_SECONDS:g} seconds)"
                    )
        except TemplateRefusal as error:
            raise InvalidRequest(
                f"The chat template refuses these messages at line {line_of(error)}: {error}.",
                hint="Change the messages, or give another template with --chat-template.",
                param="messages",
            ) from error
        except Exception as error:  # whatever the template's code ran into
            raise InvalidRequest(
                f"The chat template fails on these messages at line {line_of(error)}: {type(error).__name__}: {error}.",
                hint="Check that each message has a role and content; else give another --chat-template.",
                param="messages",
            ) from error
        return "".join(parts)


def encode_rendered(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> list[int]:
    """Token ids of a rendering: special tokens only from the pieces that are the template's."""
    ids: list[int] = []
    for piece in pieces:
        ids.extend(tokenizer.encode(piece.text, special=piece.special))
    return ids
