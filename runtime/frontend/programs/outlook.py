"""What one track tells the cache of its branch's future, and what it has computed ahead while it waits.

None of it changes a token. Knows where verbs ended, not what they were. Owned by the track.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing

from palmette.runtime.frontend.branch import Branch
from palmette.runtime.frontend.programs.shared import Shared
from palmette.runtime.frontend.state import BranchState
from palmette.runtime.messages.branches import BeginRole, EndRole, Part
from palmette.runtime.messages.hints import LONGEST, BranchHint
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import TOKEN_BYTES, count

AHEAD = 32  # tokens that are worth a request of their own before they are needed


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
        seconds = shared.pace.soon + shared.seconds_until(slot, now)
        called = shared.is_called(slot)
        await self._branch.hint(
            BranchHint(tool_wait_seconds=seconds) if called else BranchHint(next_use_seconds=seconds)
        )
        ahead = await self._certain(pending)
        if ahead is not None:
            self._computed = ahead.length
            shared.beside(self._prefill(ahead))

    async def stops(self) -> None:
        """The branch waits for others to end: theirs is needed before its own."""
        if self._computed:
            await self._branch.hint(BranchHint(next_use_seconds=LONGEST))

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

    def _tell(self, tokens: bytes, length: int, hint: BranchHint) -> None:
        shared = self._shared
        shared.engine.hint(hint.of(tokens[: length * TOKEN_BYTES], shared.request.namespace))

    async def _certain(self, pending: Sequence[Part]) -> BranchState | None:
        """The state with what is pending, as far as nothing that comes can change its tokens: to the last turn."""
        turns = [at for at, part in enumerate(pending) if isinstance(part, BeginRole | EndRole)]
        state = self._branch.state
        if turns:
            state = await self._branch.previewed(pending[: turns[-1] + 1])
        return state if state.length - self._computed >= AHEAD else None

    async def _prefill(self, state: BranchState) -> None:
        shared = self._shared
        generation = shared.engine.submit_packed(
            state.tokens,
            SamplingParams(max_tokens=0),
            namespace=shared.request.namespace,
            scheduling=shared.scheduling,
        )
        async with aclosing(generation):
            async for _ in generation:
                pass
