"""Which token ids an assistant's message came from, for chat clients that send their history back as text.

The text of an output rarely encodes to the tokens that the model wrote, and where they part the cached prefix ends.
Where a rendered conversation holds the very text of an earlier output, its own ids are put there: the model sees the
same bytes and the same special tokens (but for the spaces in a call's arguments, which are the output's). Bounded;
namespaces share nothing. Used by chat_prompt.py, from several threads.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from palmette.runtime.frontend.chat_turn import ToolCall
from palmette.runtime.messages.tokens import count
from palmette.runtime.parsers.json_text import decode
from palmette.runtime.parsers.protocol import ParsedCall

MOST_TOKENS = 1 << 20  # of all outputs together
MOST_ALIKE = 4  # outputs of the same words in other conversations


class OutputPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an output stands in a rendering: `lead` is the text just before it, `prefix` a digest of all of it."""

    lead: str
    prefix: bytes


class KnownOutput(msgspec.Struct, frozen=True, kw_only=True):
    """`text`: what `tokens` (packed) spell, special tokens written out. `arguments`: of its calls, as they were
    written."""

    place: OutputPlace
    text: str
    tokens: bytes
    arguments: tuple[str, ...] = ()


def message_key(namespace: str, content: str | None, calls: Iterable[ToolCall | ParsedCall]) -> bytes:
    """The same for a message and for what a client sends back of it: call ids and the spacing of arguments aside."""
    said = [[call.name, _plain(call.arguments)] for call in calls]
    return blake2b(json.dumps([namespace, content or "", said]).encode(), digest_size=16).digest()


def _plain(arguments: str) -> str:
    value = decode(arguments)
    try:
        return arguments if value is None else json.dumps(value, sort_keys=True)
    except RecursionError:
        return arguments


def prefix_digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class OutputIds:
    """A map of message keys to outputs; of those that weren't asked for the longest the first go."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most = most_tokens
        self._held = 0
        self._outputs: OrderedDict[bytes, tuple[KnownOutput, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, key: bytes, output: KnownOutput) -> None:
        with self._lock:
            before = self._outputs.pop(key, ())
            alike = [known for known in before if known.place != output.place]
            self._outputs[key] = kept = (output, *alike[: MOST_ALIKE - 1])
            self._held += _tokens(kept) - _tokens(before)
            while self._held > self._most and self._outputs:
                _, oldest = self._outputs.popitem(last=False)
                self._held -= _tokens(oldest)

    def find(self, key: bytes) -> tuple[KnownOutput, ...]:
        """Outputs that made such a message, the newest first."""
        with self._lock:
            found = self._outputs.get(key, ())
            if found:
                self._outputs.move_to_end(key)
            return found


def _tokens(outputs: Sequence[KnownOutput]) -> int:
    return sum(count(output.tokens) for output in outputs)
