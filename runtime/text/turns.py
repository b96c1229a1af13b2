"""What opening and closing a turn appends to a branch: the difference of two renderings of the chat template.

Called by the frontend for BeginRole and EndRole. Knows turns only; text that a program put outside of any turn is
the caller's to keep in front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.text.chat_template import ChatTemplate, Message, Rendered
from palmette.runtime.text.disguise import Disguise, Piece
from palmette.runtime.text.tokenizer import Tokenizer

ASSISTANT = "assistant"


class Rewrite(msgspec.Struct, frozen=True):
    """The template writes earlier turns anew once this one opens.

    `pieces` are the whole conversation with the new turn open; encode them (encode_rendered), keep the branch up to
    the common token prefix, and append the rest.
    """

    pieces: tuple[Piece, ...]


class _Opening(msgspec.Struct, frozen=True):
    """A rendering around a turn's content: what is before it, what is behind it."""

    before: str
    after: str


class TurnRenderer:
    """Opens and closes turns. `extra` are further variables of the template, the same for every rendering."""

    def __init__(
        self, template: ChatTemplate, *, tools: Sequence[Mapping[str, Any]] | None = None, **extra: Any
    ) -> None:
        self._template = template
        self._extra = {"tools": tools, **extra}

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TurnRenderer:
        """Of the tokenizer's own template. Raises ModelError where it has none."""
        return cls(ChatTemplate.of(tokenizer))

    @property
    def chat_template(self) -> ChatTemplate:
        return self._template

    def chat(self, messages: Sequence[Message]) -> Rendered:
        """A whole chat up to where the assistant's turn begins."""
        return self._template.render(messages, add_generation_prompt=True, **self._extra)

    def begin(self, messages: Sequence[Message], role: str) -> str | Rewrite:
        """The text that opens a turn of `role` behind the complete turns `messages`, to be parsed for special tokens.

        For "assistant" it is the template's generation prompt. Raises InvalidRequest for a role that the template
        refuses or drops.
        """
        self._check(role)
        disguise = self._disguise(messages)
        known = disguise.values["messages"]
        opened = self._opened(known, role, disguise)
        for closed in self._closed(known, disguise):
            added = opened[len(closed) :]
            if opened.startswith(closed) and not disguise.hides_something_in(added):
                return added
        return Rewrite(disguise.pieces(opened))

    def end(self, messages: Sequence[Message], role: str) -> str:
        """The text that closes the turn of `role`, the last of `messages`."""
        self._check(role)
        disguise = self._disguise(messages[:-1])
        return disguise.reveal(self._opening(disguise.values["messages"], role, disguise).after)

    def _check(self, role: str) -> None:
        if not role or self._template.spellings.within(role):
            raise InvalidRequest(
                f"{role!r} is no role.",
                hint="Use system, user or assistant, or another the template knows.",
                param="role",
            )

    def _disguise(self, messages: Sequence[Message]) -> Disguise:
        given = {"messages": [dict(message) for message in messages], **self._extra}
        return Disguise(given, self._template.spellings)

    def _render(self, messages: Sequence[Message], *, prompt: bool = False) -> str | None:
        """None where the template refuses: some want a user's message first, or roles in turns."""
        try:
            return self._template.text({"messages": messages, **self._extra}, add_generation_prompt=prompt)
        except InvalidRequest:
            return None

    def _opened(self, messages: Sequence[Message], role: str, disguise: Disguise) -> str:
        """The text up to where the content of a new turn begins."""
        prompt = self._generation_prompt(messages) if role == ASSISTANT else None
        return prompt if prompt is not None else self._opening(messages, role, disguise).before

    def _generation_prompt(self, messages: Sequence[Message]) -> str | None:
        plain, prompt = self._render(messages), self._render(messages, prompt=True)
        return prompt if prompt != plain else None

    def _opening(self, messages: Sequence[Message], role: str, disguise: Disguise) -> _Opening:
        """Renders a turn whose content is a mark, and looks where the mark is.

        A system message that only shows with the user's message behind it has its closing in that turn's opening.
        """
        slot = disguise.mark("")
        turn = {"role": role, "content": slot}
        alone = self._render([*messages, turn])
        if alone is not None and alone.count(slot) == 1:
            before, _, after = alone.partition(slot)
            return _Opening(before, after)
        followed = self._render([*messages, turn, {"role": "user", "content": "…"}]) if role != "user" else None
        if followed is not None and followed.count(slot) == 1:
            return _Opening(followed.partition(slot)[0], "")
        self._template.text({"messages": [*messages, turn], **self._extra}, add_generation_prompt=False)
        raise InvalidRequest(
            f"The chat template shows no turn of role {role!r} behind {len(messages)} messages.",
            hint="Use roles that the model's template knows, in an order that it allows.",
            param="role",
        )

    def _closed(self, messages: Sequence[Message], disguise: Disguise) -> tuple[str, ...]:
        """The text of a branch with these complete turns: what opening the last one gave, content, closing.

        Many templates trim content. A branch keeps it as it was written, which is no reason to rewrite it, so the
        text with trimmed content counts as the same.
        """
        if not messages:
            return ("",)
        *earlier, last = messages
        role, content = str(last.get("role")), last.get("content")
        text = content if isinstance(content, str) else ""
        before = self._opened(earlier, role, disguise)
        after = self._opening(earlier, role, disguise).after
        return tuple(before + same + after for same in (text, text.strip(), text.lstrip(), text.rstrip()))
