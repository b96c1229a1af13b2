"""What a program appends, settled where it is written: parameters from the gen, the run and the defaults; variables
declared; turns checked; seeds drawn for forks. What is settled can be executed (interpreter/instructions.py).

One Settling a state, in the program's thread; knows no backend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from palmette.lang.errors import Location, ProgramError
from palmette.lang.interpreter.instructions import Asking, Generation, Selection
from palmette.lang.interpreter.variables import Scope
from palmette.lang.nodes import AnyOrder, GenNode, RoleBegin, RoleEnd, SelectNode, TextNode
from palmette.lang.ordering import Arranges
from palmette.lang.sampling import SamplingOptions, Settled, derive_seed, settle
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.requests import UNWATCHED_SECONDS
from palmette.runtime.messages.tool_chats import AskTurn, Said

REASONING_SUFFIX = "_reasoning_content"


class Settling:
    """`role`: of the open turn; `behind_space`: whether what comes stands behind a space or a beginning (None: that is
    not known yet); `ordering`: of texts in any order; `reply_seconds`: between the pieces of an output, at least."""

    def __init__(self, sampling: SamplingOptions, scope: Scope, *, streams: bool = False) -> None:
        self.sampling = sampling
        self.scope = scope
        self.reply_seconds = 0.0 if streams else UNWATCHED_SECONDS
        self.role: str | None = None
        self.behind_space: bool | None = True
        self.ordering: Arranges | None = None
        self._forks = 0
        self._fork_path: tuple[int, ...] = ()  # of the when, match or repeat whose branch is being written

    def inherit(self, parent: Settling) -> None:
        """A fork stands where `parent` does."""
        self.role, self.behind_space, self.ordering = parent.role, parent.behind_space, parent.ordering
        self.reply_seconds = parent.reply_seconds

    # What is appended

    def text(self, item: TextNode | AnyOrder) -> TextNode | None:
        """None where it is empty."""
        if isinstance(item, AnyOrder):
            item = TextNode("".join(self.arranged(item.texts)))
        if not item.text:
            return None
        self.behind_space = item.text[-1].isspace()
        return item

    def arranged(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Texts in any order, in the one that they get."""
        return texts if self.ordering is None else self.ordering.arranged(texts)

    def generation(self, item: GenNode, where: Location) -> Generation:
        settled = self.parameters(item, where, spaced=bool(self.behind_space))
        self.behind_space = False
        variable = thoughts = None
        if item.name is not None:
            variable = self.scope.declare(item.name, item.count)
            if item.reasoning is not None:
                thoughts = self.scope.declare(item.name + REASONING_SUFFIX, item.count)
        return Generation(
            item, settled.params, variable, thoughts, settled.priority, settled.timeout, self.reply_seconds
        )

    def parameters(self, item: GenNode, where: Location, *, spaced: bool) -> Settled:
        """The gen's parameters; `spaced`: a space stands before it."""
        own = item.sampling
        if spaced and item.type is not None and item.type.behind_space is not None:
            own = {
                **own,
                "constraint": msgspec.structs.replace(own["constraint"], grammar=item.type.behind_space.grammar),
            }
        try:
            return settle(self.sampling, own)
        except InvalidRequest as cause:
            raise ProgramError(cause, where, str(item)) from cause

    def selection(self, item: SelectNode) -> Selection:
        self.behind_space = False
        run, own = self.sampling, item.sampling
        return Selection(
            item,
            self.scope.declare(item.name) if item.name is not None else None,
            own.get("priority", run.get("priority")),
            own.get("timeout", run.get("timeout")),
        )

    def turn(self, item: RoleBegin | RoleEnd, where: Location) -> RoleBegin | RoleEnd:
        """Raises ProgramError where turns would nest, or one ends that isn't open."""
        opens = isinstance(item, RoleBegin)
        if opens and self.role is not None:
            problem = f"this {item.role} turn begins inside the {self.role} turn before it."
        elif not opens and self.role != item.role:
            inside = f"inside the {self.role} turn before it" if self.role else "outside any turn"
            problem = f"this {item.role} turn ends {inside}."
        else:
            self.role = item.role if opens else None
            self.behind_space = opens
            return item
        raise ProgramError(
            InvalidRequest(problem, hint="Turns don't nest; close each before the next."), where, str(item)
        )

    def asking(self, name: str, messages: Sequence[Said], *, new: int, max_tokens: int, **turn: Any) -> Asking:
        """The next turn of a conversation with tools, as `s[name]`."""
        settled = settle(self.sampling, {"max_tokens": max_tokens})
        asked = AskTurn(
            messages=tuple(messages),
            params=settled.params,
            priority=settled.priority,
            timeout=settled.timeout,
            **turn,
        )
        return Asking(self.scope.declare(name), asked, new)

    # Forks

    def fork(self, size: int) -> list[SamplingOptions]:
        """The options of each of the next fork's states: seeds of their own."""
        self._forks += 1
        seed = self.sampling.get("seed")
        if seed is None:
            return [self.sampling] * size
        path = (*self._fork_path, self._forks)
        return [{**self.sampling, "seed": derive_seed(seed, *path, index)} for index in range(size)]

    def decision(self) -> None:
        """A when, match or repeat comes; it counts as a fork."""
        self._forks += 1

    @contextlib.contextmanager
    def written_in(self, part: int) -> Iterator[None]:
        """A branch of a when, a match or a repeat is written. Forks count anew in each `part`, so that those behind it
        draw the same whichever was taken."""
        path, forks = self._fork_path, self._forks
        self._fork_path, self._forks = (*path, forks, part), 0
        try:
            yield
        finally:
            self._fork_path, self._forks = path, forks
