"""Every limit of the HTTP surface in one place: what a request may hold, and how much may be open at a time.

What the flags of `palmette serve` set is in `Limits`; the rest are constants, here or where they are enforced.
`table` is what docs/server.md shows. Used by the whole api; knows nothing of requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from palmette.runtime.frontend.branch import MOST_FORKS as MOST_FORKS
from palmette.runtime.frontend.frontend import MOST_OPEN, MOST_QUEUED_TOKENS
from palmette.runtime.frontend.scores import MOST_CHOICES as MOST_CHOICES
from palmette.runtime.grammar.protocol import Limits as GrammarLimits
from palmette.runtime.messages.sampling import MAX_LOGIT_BIAS, MAX_STOPS, MAX_TOP_LOGPROBS

MOST_OUTPUTS = 128  # of one request: prompts × n
MOST_BRANCHES = 10_000  # open at a time; the longest idle one makes room
MOST_DETOKENIZED = 1_000_000  # token ids of one call
MOST_INPUTS = 2048  # of one embedding request, as OpenAI has it
MOST_PAIRS = 1024  # documents of one request, or prompts behind which labels are scored
MOST_LABELS = 1024  # behind each
MOST_RESPONSES = 4096  # kept for retrieval; the least recently used make room
KEPT_RESPONSE_BYTES = 64 << 20  # of all of them
MOST_METADATA = 16  # entries of a response's metadata, with the characters of a key and of a value
LONGEST_METADATA_KEY, LONGEST_METADATA_VALUE = 64, 512
BRANCH_IDLE_SECONDS = 1800.0  # before a branch is closed
BODY_RATE = 4096  # bytes a second that a body must come at, on the average, beyond the seconds that it has anyway
BODIES_AT_ONCE = 32  # of the largest size: so many bytes may be read at a time, of all bodies together
GRAMMAR = GrammarLimits()  # of one compilation, in the engine


@dataclass(frozen=True)
class Limits:
    """What `palmette serve` lets people change."""

    body_bytes: int = 16 << 20
    open_requests: int = MOST_OPEN
    queued_tokens: int = MOST_QUEUED_TOKENS  # prompt tokens of requests that have had no answer yet
    connections: int = 8192  # and no more than this process has files for
    head_seconds: float = 20.0  # for a request's head, from its first byte (of a new connection: from its beginning)
    body_seconds: float = 60.0  # without a byte of a body; and for all of it, beside what BODY_RATE gives
    send_seconds: float = 60.0  # in which a reader takes nothing of what was sent
    keep_alive_seconds: float = 75.0  # of a connection without a request


class Limit(NamedTuple):
    """A row of the table: what is limited, how far, what an excess is answered (or what is done about it), and the flag
    that sets it."""

    what: str
    most: str
    status: int | str
    flag: str = ""


def table(limits: Limits = Limits()) -> list[Limit]:
    return [
        Limit(
            "open connections, and as many as there are files for", f"{limits.connections:,}", 503, "--max-connections"
        ),
        Limit("seconds for a request's head", f"{limits.head_seconds:g}", 408, "--head-seconds"),
        Limit(
            f"seconds without a byte of a body, and for all of it at {BODY_RATE:,} bytes a second",
            f"{limits.body_seconds:g}",
            408,
            "--body-seconds",
        ),
        Limit("seconds in which a reader takes nothing", f"{limits.send_seconds:g}", "dropped", "--send-seconds"),
        Limit("seconds without a request", f"{limits.keep_alive_seconds:g}", "closed", "--keep-alive-seconds"),
        Limit("bytes of a body", f"{limits.body_bytes:,}", 413, "--max-body-bytes"),
        Limit("bytes of all bodies that are being read", f"{BODIES_AT_ONCE} × those of one", 429),
        Limit("open requests", f"{limits.open_requests:,}", 429, "--max-open-requests"),
        Limit(
            "prompt tokens that wait for their first answer", f"{limits.queued_tokens:,}", 429, "--max-queued-tokens"
        ),
        Limit("outputs of a request (prompts × `n` or `best_of`)", f"{MOST_OUTPUTS}", 400),
        Limit("`stop`, `stop_regex`, `stop_token_ids`, each", f"{MAX_STOPS}", 400),
        Limit("entries of `logit_bias`", f"{MAX_LOGIT_BIAS:,}", 400),
        Limit("`top_logprobs`, and `logprobs` of completions", f"{MAX_TOP_LOGPROBS}", 400),
        Limit("bytes of a schema, `regex`, `ebnf` or of `choices`", f"{GRAMMAR.source_bytes:,}", 400),
        Limit("seconds to compile one", f"{GRAMMAR.seconds:g}", 400),
        Limit("states of a pattern's automaton", f"{GRAMMAR.states:,}", 400),
        Limit("choices that one call scores", f"{MOST_CHOICES:,}", 400),
        Limit("token ids of one `/detokenize`", f"{MOST_DETOKENIZED:,}", 400),
        Limit("texts of one `/v1/embeddings`", f"{MOST_INPUTS:,}", 400),
        Limit("documents or prompts of one `/v1/score` or `/v1/rerank`", f"{MOST_PAIRS:,}", 400),
        Limit("labels behind a prompt", f"{MOST_LABELS:,}", 400),
        Limit("kept responses", f"{MOST_RESPONSES:,}", 404),
        Limit("bytes of kept responses", f"{KEPT_RESPONSE_BYTES:,}", 404),
        Limit("entries of a response's `metadata`", f"{MOST_METADATA}", 400),
        Limit("open branches that are at work", f"{MOST_BRANCHES:,}", 429),
        Limit("forks of one call", f"{MOST_FORKS:,}", 400),
        Limit("seconds until an unused branch is closed", f"{BRANCH_IDLE_SECONDS:g}", 410),
    ]
