"""The lines of a recording: what `serve --record` writes, and a simulation reads. No text, no token ids."""

from __future__ import annotations

import msgspec

RECORDING = "palmette recording 1"  # in the first line, so that a reader knows the file


class RecordingHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line."""

    recording: str = RECORDING
    block_tokens: int


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has ended, in the order of ending. Seconds; `arrival` counts from the recording's start.

    `blocks`: hashes of prompt and output in blocks of `block_tokens`, the last one maybe in part, each of everything up
    to its end; equal hashes mean equal tokens, within one recording only. Empty or null: not known.
    """

    arrival: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    first_token: float | None = None  # from arrival, as the engine counts it
    total: float | None = None  # likewise
    finish: str = ""  # "stop", "length", "abort", "score", "embed", or the kind of the error that failed it
    priority: int = 0
    tenant: str = ""  # a hash
    blocks: list[int] = []
