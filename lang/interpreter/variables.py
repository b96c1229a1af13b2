"""The variables of a state: declared in the program's thread when a node is written, filled on the loop later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from palmette.lang.arrival import Arrival
from palmette.lang.errors import ProgramError, UnknownVariable
from palmette.lang.streams import Signal, TextStream
from palmette.runtime.errors import InvalidRequest


class Variable:
    """A value to come. `value` gives it or the failure that took it away; `stream` its text as it grows.

    Where a gen has several outputs, `stream` is the first one's; see `output_stream`.
    """

    __slots__ = ("_more", "meta", "name", "stream", "value")

    def __init__(self, name: str, outputs: int = 1) -> None:
        self.name = name
        self.value: Arrival[Any] = Arrival()
        self.meta: dict[str, Any] | None = None  # complete when `value` is there
        self.stream = TextStream()
        self._more = [TextStream() for _ in range(outputs - 1)] if outputs > 1 else ()

    def output_stream(self, index: int) -> TextStream:
        """The text of output `index` as it grows. Raises InvalidRequest where there are fewer."""
        if not 0 <= index <= len(self._more):
            raise InvalidRequest(
                f"{self.name!r} has {len(self._more) + 1} outputs, so none with index {index!r}.",
                hint="Ask for more with n=.",
                param="index",
            )
        return self._more[index - 1] if index else self.stream

    def fill(self, value: Any, meta: dict[str, Any] | None = None) -> None:
        if not self.value.done():
            self.meta = meta
            for stream in (self.stream, *self._more):
                stream.end()
            self.value.set_result(value)

    def fail(self, error: ProgramError) -> None:
        if not self.value.done():
            for stream in (self.stream, *self._more):
                stream.end(error)
            self.value.set_exception(error)

    def read(self) -> Any:
        """Wait in this thread. Raises the failure anew for each reader."""
        try:
            return self.value.result()
        except ProgramError as error:
            raise error.again() from error.cause

    async def aread(self) -> Any:
        try:
            return await self.value
        except ProgramError as error:
            raise error.again() from error.cause


class Scope:
    """Variables by name. While a program's body runs elsewhere (`stream=True`), a reader may come before the writer:
    it waits until the variable is declared or the scope is sealed."""

    def __init__(self, inherited: Iterable[Variable] = ()) -> None:
        self._signal = Signal()
        self._inherited = {variable.name: variable for variable in inherited}
        self._by_name = dict(self._inherited)
        self._own: list[Variable] = []
        self._failure: ProgramError | None = None
        self.sealed = True  # nobody but the reader itself can declare more

    def __iter__(self) -> Iterator[Variable]:
        return iter(list(self._by_name.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def names(self) -> list[str]:
        return list(self._by_name)

    def written(self) -> list[Variable]:
        """Those that were written here, also over an inherited name."""
        return [variable for name, variable in self._by_name.items() if self._inherited.get(name) is not variable]

    def declare(self, name: str, outputs: int = 1) -> Variable:
        variable = Variable(name, outputs)
        with self._signal.lock:
            self._by_name[name] = variable
            self._own.append(variable)
            if self._failure is not None:
                variable.fail(self._failure)
            self._signal.notify()
        return variable

    def restore(self, variables: Mapping[str, Variable]) -> None:
        """Go back to the names of an earlier moment."""
        with self._signal.lock:
            self._by_name = dict(variables)

    def forget(self, variable: Variable) -> None:
        """It was never written: nobody finds it any more."""
        with self._signal.lock:
            if self._by_name.get(variable.name) is variable:
                del self._by_name[variable.name]

    def seal(self) -> None:
        with self._signal.lock:
            self.sealed = True
            self._signal.notify()

    def fail(self, error: ProgramError) -> None:
        """Fail what this scope declared and has not got; what it inherited belongs to another."""
        with self._signal.lock:
            self._failure = self._failure or error
            for variable in self._own:
                variable.fail(error)
        self.seal()

    def find(self, name: str, *, wait: bool) -> Variable:
        """The variable, or UnknownVariable; where the program failed before it was written, that failure."""
        while True:
            found, waiter = self._look(name, wait)
            if found is not None:
                return found
            assert waiter is not None
            waiter.result()

    async def afind(self, name: str, *, wait: bool) -> Variable:
        while True:
            found, waiter = self._look(name, wait)
            if found is not None:
                return found
            assert waiter is not None
            await waiter

    def _look(self, name: str, wait: bool) -> tuple[Variable | None, Arrival[None] | None]:
        with self._signal.lock:
            variable = self._by_name.get(name)
            if variable is not None:
                return variable, None
            if self._failure is not None:
                raise self._failure.again() from self._failure.cause
            if self.sealed or not wait:
                raise UnknownVariable(name, self._by_name)
            return None, self._signal.waiter()
