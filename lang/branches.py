"""A group of forked states: written to one by one or together, and joined back into the state they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol

from palmette.runtime.errors import InvalidRequest, Unsupported

MAX_FORKS = 4096
JoinMode = Literal["gather_variable", "concate_and_append"]


class ForkedState(Protocol):
    """What a group needs of a state (lang/state.py has the only one)."""

    def __iadd__(self, other: object) -> Any: ...

    def get_var(self, name: str) -> Any: ...

    def finish(self, why: str = ...) -> None: ...


class StateGroup:
    """The states of one fork, in order. As a context manager it joins at the end of the block.

    `forks[i]` is a state, `forks["x"]` the list of its values in each; `forks += …` appends the same to each, what
    a function of its number gives, or of a list an entry to each.
    """

    def __init__(
        self,
        states: Sequence[Any],
        gather: Callable[[list[Any]], None],
        concatenate: Callable[[list[Any]], None],
    ) -> None:
        self.states = list(states)
        self._join: dict[str, Callable[[list[Any]], None]] = {
            "gather_variable": gather,
            "concate_and_append": concatenate,
        }
        self._joined = False

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """End the forks. `gather_variable`: each variable they wrote becomes a list in the state they came from;
        `concate_and_append`: what each appended is appended there, in order (recomputed behind the first).

        Never waits; reading a gathered variable does. The forks' own variables stay readable.
        """
        if mode not in self._join:
            raise InvalidRequest(f"join mode {mode!r} is not one of {', '.join(self._join)}.", param="mode")
        if self._joined:
            raise InvalidRequest("These forks have been joined already.", hint="Fork again for new ones.")
        self._joined = True
        for state in self.states:
            state.finish("this fork has been joined")
        self._join[mode](self.states)

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.states)

    def __getitem__(self, key: Any) -> Any:
        """`forks[i]`: a state; `forks["x"]`: the variable of each."""
        if isinstance(key, str):
            return [state.get_var(key) for state in self.states]
        return self.states[key]

    def __setitem__(self, index: int, state: object) -> None:
        """So that `forks[i] += …` works; nothing else can be assigned."""
        if state is not self.states[index]:
            raise InvalidRequest(f"forks[{index}] can't be replaced.", hint="Append to it with +=.")

    def __iadd__(self, other: object) -> StateGroup:
        """The same for every fork; a function of the index; or a list with one entry a fork."""
        if isinstance(other, list | tuple) and len(other) != len(self.states):
            raise InvalidRequest(f"{len(other)} entries were appended to {len(self.states)} forks.")
        for index, state in enumerate(self.states):
            if callable(other):
                state += other(index)
            elif isinstance(other, list | tuple):
                state += other[index]
            else:
                state += other
        return self

    def __enter__(self) -> StateGroup:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None and not self._joined:
            self.join()


def group(states: Sequence[Any], parent: Any) -> StateGroup:
    return StateGroup(states, parent.gather, parent.concatenate)


def check_fork(size: object, position_ids_offset: object) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_FORKS:
        raise InvalidRequest(f"fork({size!r}): the number of forks is a whole number from 1 to {MAX_FORKS}.")
    if position_ids_offset is not None:
        raise Unsupported(
            f"position_ids_offset={position_ids_offset!r} is not supported.",
            hint="Positions follow from what a state holds; leave it out.",
            param="position_ids_offset",
        )
