"""A state's branch on its backend: opened at the first verb, and opened again from its history where it was lost.

Keeps what the branch holds (parts and tokens), so that nothing else has to. Lives on the backend's loop; the
interpreter is its only caller.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from palmette.lang.backends.base import Backend, BackendBranch, Result
from palmette.runtime.errors import BranchLost, EngineDied, InternalError
from palmette.runtime.messages.branches import (
    ChoiceScores,
    ExtendStep,
    GenerateStep,
    Part,
    Step,
    Text,
    Tokens,
)
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.tokens import TOKEN_BYTES, pack


class Connection:
    """`history`: what the branch holds; `forked_at`: how much of it was there when the state was forked. `on_first` is
    called with what the first verb appends."""

    def __init__(self, backend: Backend, namespace: str = "") -> None:
        self._backend = backend
        self._namespace = namespace
        self._branch: BackendBranch | None = None
        self.history: list[Part] = []
        self.forked_at = 0
        self.on_first: Callable[[Sequence[Part]], None] | None = None

    async def run(self, steps: Sequence[Step], take: Callable[[int, Result], object], *, last: bool = False) -> None:
        """`take` gets what each step gives, with its number. `last`: nothing comes behind them.

        Where the branch is lost before a step gave anything, it goes on once on a branch opened again.
        """
        self._begins(steps[0].parts)
        done, retried = 0, False
        while done < len(steps):
            begun = False
            tokens = bytearray()
            branch, lead = await self._opened()
            results = branch.run([*lead, *steps[done:]], last=last)
            first = done - len(lead)
            try:
                async for number, result in results:
                    if first + number < done:
                        continue  # the history, which is known
                    if not begun:
                        self.history += steps[done].parts
                        begun = True
                    ended = self._took(steps[done], result, tokens)
                    if ended:
                        done, begun, retried, tokens = done + 1, False, False, bytearray()
                    take(first + number, result)
                if done < len(steps):
                    raise InternalError("The backend's stream ended without a finish.")
            except (BranchLost, EngineDied):
                if begun or retried:
                    raise
                retried = True
                await self.close()
            finally:
                await results.aclose()
        if last:
            self._branch = None

    async def extend(self, parts: Sequence[Part]) -> str:
        """Append `parts`; returns the text they added."""
        texts: list[str] = []
        await self.run([ExtendStep(parts=tuple(parts))], lambda _, result: texts.append(result.appended))
        return "".join(texts)

    def note(self, parts: Sequence[Part]) -> None:
        """`parts` would come next, but the branch ends here: only whoever reads the history wants them."""
        self.history += parts

    async def fork(self, parts: Sequence[Part], count: int) -> list[Connection]:
        """Append `parts`, and `count` connections that start from here."""
        self._begins(parts)
        for last_try in (False, True):
            try:
                branch, lead = await self._opened()
                forks = await branch.fork([*(part for step in lead for part in step.parts), *parts], count)
                break
            except (BranchLost, EngineDied):
                if last_try:
                    raise
                await self.close()
        self.history += parts
        return [self._child(fork) for fork in forks]

    async def hint(self, hint: BranchHint) -> None:
        """Tell the cache; a branch that isn't open, or is lost, has nothing cached to keep."""
        if self._branch is not None:
            with contextlib.suppress(BranchLost, EngineDied):
                await self._branch.hint(hint)

    def _child(self, branch: BackendBranch) -> Connection:
        child = Connection(self._backend, self._namespace)
        child._branch = branch
        child.history, child.forked_at = list(self.history), len(self.history)
        return child

    def adopt(self, other: Connection) -> None:
        """Become `other`, which nobody uses any more."""
        self._branch, other._branch = other._branch, None
        self.history, self.forked_at = other.history, other.forked_at

    async def close(self) -> None:
        """Release the branch; the next verb opens another."""
        branch, self._branch = self._branch, None
        if branch is not None:
            with contextlib.suppress(BranchLost, EngineDied):  # then nothing is left to close
                await branch.close()

    def drop(self) -> bool:
        """`close` where no verb runs, from any thread; False where that has to be awaited."""
        if self._branch is not None and self._branch.drop():
            self._branch = None
        return self._branch is None

    def _begins(self, parts: Sequence[Part]) -> None:
        if self.on_first is not None:
            self.on_first(parts)
            self.on_first = None

    async def _opened(self) -> tuple[BackendBranch, list[Step]]:
        """The branch, and the step that gives a new one its history."""
        if self._branch is not None:
            return self._branch, []
        self._branch = await self._backend.open(namespace=self._namespace)
        return self._branch, [ExtendStep(parts=tuple(self.history))] if self.history else []

    def _took(self, step: Step, result: Result, tokens: bytearray) -> bool:
        """Remember what the branch keeps of a result; whether its step ended with it."""
        if isinstance(result, ChoiceScores):
            if result.chosen is not None:
                self.history.append(Tokens(pack(result.tokens[result.chosen])))
            return True
        tokens += result.tokens
        if not isinstance(step, GenerateStep):
            return True
        if result.finish is None:
            return False
        kept = bytes(tokens[: TOKEN_BYTES * result.finish.kept_tokens])
        if kept:
            self.history.append(Tokens(kept))
        if result.finish.kept_bytes:  # of a token that a stop cut
            self.history.append(Text(result.finish.kept_bytes.decode("utf-8", "replace")))
        return True
