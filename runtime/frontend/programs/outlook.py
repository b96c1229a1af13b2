"""What one track tells the cache of its branch's future, and what it has computed ahead while it waits.

None of it changes a token. Knows where verbs ended, not what they were. Owned by the track.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.programs.shared import Shared
from palmette.runtime.messages.branches import BeginRole, EndRole, Part
from palmette.runtime.messages.hints import LONGEST, BranchHint
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, count

AHEAD = 32  # tokens that are worth a request of their own before they are needed
AHEAD_SECONDS = 0.02  # of a wait that is sure to be longer than computing a few tokens takes


class Outlook:
    """`first`: whether the track is the program's own state, from whose beginning other programs may go on."""

    def __init__(self, shared: Shared, branch: Branch, *, first: bool) -> None:
        self._shared = shared
        self._branch = branch
        self._first = first
        self._ends: list[int] = []  # lengths at which verbs have ended, in tokens
        self._prompt: int | None = None  # tokens before the first verb's own
        self._computed = 0  # tokens of the branch that the engine has seen

    def inherit(self, parent: Outlook) -> None:
        self._computed = parent._computed

    @property
    def begun(self) -> bool:
        """Whether a verb has ended, or forks have started."""
        return self._prompt is not None

    def verb_ended(self, own: int, *, goes_on: bool) -> None:
        """The engine has computed the branch so far, and holds it as a path that ends here; `own`: tokens of it that
        the verb added. `goes_on`: another verb follows."""
        length = self._branch.state.length
        if self._ends and length < self._ends[-1]:
            self._ends.clear()  # a template has written earlier turns anew
        if self._prompt is None:
            self._prompt = length - own
        self._ends.append(length)
        self._computed = length
        if goes_on:
            self._tell(self._branch.state.tokens, length, BranchHint(next_use_seconds=self._shared.pace.soon))

    def divided(self) -> None:
        """Forks start from here, and compute the branch."""
        length = self._branch.state.length
        if self._prompt is None:
            self._prompt = length
        self._ends.append(length)
        self._computed = length

    async def waits(self, slot: int, now: int, pending: Sequence[Part]) -> None:
        """For a slot; `now`: in tokens since the program's beginning. Says when the path is needed again, and has
        computed what is certain of `pending`."""
        shared = self._shared
        left, called = shared.seconds_until(slot, now), shared.is_called(slot)
        seconds = shared.pace.soon + left
        self._hint(BranchHint(tool_wait_seconds=seconds) if called else BranchHint(next_use_seconds=seconds))
        ahead = await self._certain(pending)
        if count(ahead) - self._computed < AHEAD:
            if not (called and left >= AHEAD_SECONDS and shared.engine.idle):
                return
            ahead = await self._likely(pending)  # which costs nobody anything
        if count(ahead) > self._computed:
            self._computed = count(ahead)
            shared.beside(self._prefill(ahead))

    async def stops(self) -> None:
        """The branch waits for others to end: theirs is needed before its own."""
        if self._computed:
            self._hint(BranchHint(next_use_seconds=LONGEST))

    async def ends(self, children: Iterable[int]) -> None:
        """The branch isn't extended any more; where nobody goes on from it, the cache hears that."""
        if self._first and self._shared.request.returns:
            return
        for child in children:
            await self._shared.quiet[child].wait()
        tokens, prompt = self._branch.state.tokens, self._prompt or 0
        if self._first and not prompt:
            return
        lengths = {length for length in (*self._ends, count(tokens)) if length > prompt or not self._first}
        for length in sorted(lengths - {0}, reverse=True):
            # The deepest first: a hint about a path says of what is above its end that others may share it.
            self._tell(tokens, length, BranchHint(last_use=True))
        if self._first and lengths:  # what the program began with may be what others begin with
            self._tell(tokens, prompt, BranchHint(last_use=True))  # which makes it a node of its own
            self._tell(tokens, prompt, BranchHint(next_use_seconds=0.0))

    def _hint(self, hint: BranchHint) -> None:
        """About the whole branch."""
        state = self._branch.state
        if state.tokens:
            self._tell(state.tokens, state.length, hint)

    def _tell(self, tokens: bytes, length: int, hint: BranchHint) -> None:
        shared = self._shared
        shared.hint(hint.of(tokens[: length * TOKEN_BYTES], shared.request.namespace))

    async def _certain(self, pending: Sequence[Part]) -> bytes:
        """The tokens with what is pending, as far as nothing that comes can change them: to the last turn."""
        turns = [at for at, part in enumerate(pending) if isinstance(part, BeginRole | EndRole)]
        if not turns:
            return self._branch.state.tokens
        return (await self._branch.previewed(pending[: turns[-1] + 1])).tokens

    async def _likely(self, pending: Sequence[Part]) -> bytes:
        """The tokens with all that is pending, but for the last, which may become another with what comes."""
        state = await self._branch.previewed(pending, encode=True)
        return state.tokens[:-TOKEN_BYTES] if state.length > self._branch.state.length else state.tokens

    async def _prefill(self, tokens: bytes) -> None:
        shared = self._shared
        generation = shared.engine.submit_packed(
            tokens,
            SamplingParams(max_tokens=0),
            namespace=shared.request.namespace,
            scheduling=shared.scheduling,
        )
        async with aclosing(generation):
            async for _ in generation:
                pass
