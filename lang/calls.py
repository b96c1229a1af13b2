"""What a run is given: arguments that fit the program's signature, sampling options, and how it is run.

One Parameters a program; it says at the line that runs the program what doesn't fit, and what may have been meant.
Knows nothing of how programs run.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palmette.lang.backends.base import Backend
from palmette.lang.default import resolve_backend
from palmette.lang.errors import Location, caller
from palmette.lang.nesting import chain_with
from palmette.lang.sampling import SAMPLING_NAMES, SamplingOptions, check_seconds, derive_seed, options
from palmette.lang.state import ProgramState
from palmette.runtime.errors import InvalidRequest

RUN_OPTIONS = frozenset(
    {"backend", "stream", "num_threads", "progress_bar", "generator_style", "namespace", "deadline", "reorder"}
)


@dataclass(frozen=True, slots=True)
class ProgramCall:
    """One run: arguments that fit the program's signature, the backend and the sampling defaults."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    backend: Backend
    sampling: SamplingOptions
    namespace: str
    where: Location  # the line that runs it
    chain: tuple[str, ...]  # the programs that it runs within, and itself
    deadline: float | None = None  # seconds from its start


class Parameters:
    """Of a program: `names`, its own parameters behind the state. Raises InvalidRequest for a function that is none."""

    def __init__(self, func: Callable[..., Any], name: str) -> None:
        self._name = name
        self._signature = inspect.signature(func)
        parameters = list(self._signature.parameters.values())
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if not parameters or parameters[0].kind not in positional:
            raise InvalidRequest(
                f"{name} takes no state.",
                hint="A program's first parameter is its state: def f(s, ...).",
            )
        for parameter in parameters[1:]:
            if parameter.name in RUN_OPTIONS:
                raise InvalidRequest(
                    f"{name} has a parameter {parameter.name!r}, which is an option of run.",
                    hint="Rename the parameter.",
                    param=parameter.name,
                )
        self.names = [parameter.name for parameter in parameters[1:]]
        plain = all(each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for each in parameters[1:])
        self._named = [frozenset(self.names[at:]) for at in range(len(self.names) + 1)] if plain else []
        self._sampling = SAMPLING_NAMES - set(self.names)  # the program's own parameters win

    def check_bound(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self.names:
                raise InvalidRequest(
                    f"{self._name} has no parameter {name!r} to bind{self._advice((), given)}.", param=name
                )

    def call(
        self,
        bound: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        backend: Any,
        namespace: str,
        deadline: float | None,
    ) -> ProgramCall:
        """Raises TypeError for arguments that don't fit, InvalidRequest for options outside their limits, ProgramError
        where programs run each other without an end."""
        where = caller()
        chain = chain_with(self._name, where)
        if deadline is not None:
            check_seconds("deadline", deadline)
        sampling = options({name: value for name, value in kwargs.items() if name in self._sampling})
        own = {**bound, **{name: value for name, value in kwargs.items() if name not in self._sampling}}
        if len(args) >= len(self._named) or own.keys() != self._named[len(args)]:  # else each has its argument
            try:
                self._signature.bind(None, *args, **own)
            except TypeError as error:
                raise TypeError(f"{self._name}: {error}{self._advice(args, own)}") from None
        return ProgramCall(args, own, resolve_backend(backend), sampling, namespace, where, chain, deadline)

    def calls(
        self,
        bound: Mapping[str, Any],
        batch: Sequence[Any],
        kwargs: Mapping[str, Any],
        backend: Any,
        namespace: str,
        deadline: float | None,
    ) -> list[ProgramCall]:
        """A call for each item of a batch, with a seed of its own. Raises as `call` does, naming the item."""
        unknown = sorted(set(kwargs) - self._sampling)
        if unknown:
            given = {name: kwargs[name] for name in unknown}
            raise TypeError(f"run_batch() got an unexpected keyword argument {unknown[0]!r}{self._advice((), given)}")
        backend = resolve_backend(backend)
        calls = []
        for index, item in enumerate(batch):
            args, own = _arguments(index, item)
            sampling = dict(kwargs)
            if sampling.get("seed") is not None:
                sampling["seed"] = derive_seed(sampling["seed"], index)
            try:
                calls.append(self.call(bound, args, own | sampling, backend, namespace, deadline))
            except TypeError as error:
                raise TypeError(f"batch item {index}: {error}") from None
        return calls

    @property
    def _shown(self) -> str:
        """The program's own parameters, as its `def` has them."""
        return f"({', '.join(str(each) for each in list(self._signature.parameters.values())[1:])})"

    def _advice(self, args: tuple[Any, ...], own: Mapping[str, Any]) -> str:
        """What may have been meant by arguments that don't fit."""
        if any(isinstance(value, ProgramState) for value in (*args, *own.values())):
            return ". A program makes its own state; what takes this one is a plain function, without @function."
        if len(args) > len(self.names):
            return f": {self._name}{self._shown} was given {len(args)}"
        known = sorted({*self.names, *self._sampling, *RUN_OPTIONS})
        for name in own:
            if name not in known and (near := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
                return f". Did you mean {near[0]!r} by {name!r}?"
        return ""


def _arguments(index: int, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Of a batch's item: in order, and by name."""
    if isinstance(item, Mapping):
        return (), dict(item)
    if isinstance(item, Sequence) and not isinstance(item, str):
        return tuple(item), {}
    raise InvalidRequest(
        f"Batch item {index} is {item!r}.",
        hint="Give a dict of arguments, or a list of them in order.",
    )
