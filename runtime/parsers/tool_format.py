"""What a tool-call format is: where calls may begin, how one is read, and how one is written so that a grammar can ask
for it. Implemented by runtime/parsers/formats; used by parser.py and constraints.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from palmette.runtime.parsers.cursor import Cursor, Steps
from palmette.runtime.parsers.emitter import Writer


class CallTag(msgspec.Struct, frozen=True):
    """A call to one tool as text: `begin`, an object of its arguments as JSON, `end`. `trigger` begins `begin`.

    Every format reads this form, also those whose models usually write arguments otherwise.
    """

    begin: str
    end: str
    trigger: str


class ToolFormat(Protocol):
    """`opens`: texts at which a call may begin; `marks`: these and all other markers, so that a detokenizer can keep
    those that are special tokens. `new_id` makes an id as the model's template wants it.
    """

    @property
    def name(self) -> str: ...

    @property
    def opens(self) -> tuple[str, ...]: ...

    @property
    def marks(self) -> tuple[str, ...]: ...

    @property
    def interrupts(self) -> tuple[str, ...]:
        """Those of `opens` that end reasoning which wasn't closed: special tokens, which no thought spells."""
        ...

    @property
    def new_id(self) -> Callable[[], str]: ...

    def read(self, opened: str, cursor: Cursor, out: Writer) -> Steps[None]:
        """Reads calls behind `opened`, which was consumed, up to where no further one follows.

        Raises NotACall where what stands there is none, Ended (by the cursor) where the text ends in it.
        """
        ...

    def tag(self, tool: str) -> CallTag: ...
