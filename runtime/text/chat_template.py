"""Renders messages through a model's chat template, in jinja2's immutable sandbox. Called by the frontend.

Special tokens come from the template only. Where a message spells one, its spelling is replaced by a private-use
character before rendering and put back behind it, so that the rendering falls into pieces that are the template's
and pieces that are plain text; encode_rendered turns them into tokens accordingly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2
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
        *,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **extra: Any,
    ) -> Rendered:
        """The conversation as the model was trained to see it.

        `extra` are further variables of the template (enable_thinking, documents …). Raises InvalidRequest where
        the template refuses the messages or fails on them, with its line.
        """
        given = {"messages": [dict(message) for message in messages], "tools": tools, **extra}
        disguise = Disguise(given, self.spellings)
        return Rendered(disguise.pieces(self.text(disguise.values, add_generation_prompt=add_generation_prompt)))

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
