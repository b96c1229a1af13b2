"""The state `s` that a program writes to and reads from: a thin face over one interpreter.

Writing (`s += …`) never waits; reading (`s["x"]`, `s.text()`) waits for the nodes before it. In async programs the
reading verbs have awaitable twins: `aget`, `atext`, `amessages`, `async_` (for `sync`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NoReturn

from palmette.lang.arrival import Arrival
from palmette.lang.author import Author
from palmette.lang.backends.base import Backend
from palmette.lang.blocks import Turn, VarScope, collect
from palmette.lang.branches import StateGroup, check_fork, group
from palmette.lang.control import Control
from palmette.lang.errors import Location, ProgramError, UnknownVariable, caller
from palmette.lang.interpreter.executor import Executor
from palmette.lang.interpreter.instructions import Barrier, Concatenate, End, Fork, Generation, Hinting, Node
from palmette.lang.interpreter.interpreter import Interpreter
from palmette.lang.interpreter.variables import Scope, Variable
from palmette.lang.loop import finished, refuse_on
from palmette.lang.nodes import AnyOrder, Expr, ExprList, GenNode, RoleBegin, RoleEnd, SelectNode, TextNode, parts_of
from palmette.lang.ordering import Arranges
from palmette.lang.primitives import turn
from palmette.lang.sampling import SamplingOptions
from palmette.lang.settling import Settling
from palmette.lang.threads import Job
from palmette.lang.traces.trace import Trace, trace_of
from palmette.lang.usage import ProgramUsage
from palmette.runtime.errors import Aborted, InvalidRequest, TimedOut
from palmette.runtime.messages.hints import BranchHint
from palmette.runtime.messages.tool_chats import Said

_TEXTS = (TextNode, AnyOrder)


class ProgramState:
    """What a program has appended, and its variables. Made by running a program, never directly.

    Reading raises ProgramError where the node that should have written failed; UnknownVariable (a KeyError) where
    nothing wrote it. What was written before a failure stays readable.

    `s += …` appends text, expressions, and several of them joined with `+`; `s["x"]` is a variable's value, for which
    it waits, `s["x"] = value` sets one, `"x" in s` asks for one. `ret_value` is what the program returned.
    """

    def __init__(
        self,
        backend: Backend,
        sampling: SamplingOptions,
        *,
        namespace: str = "",
        parent: ProgramState | None = None,
        streams: bool = False,
    ) -> None:
        self.ret_value: Any = None
        inherited: Iterable[Variable] = parent._scope if parent is not None else ()
        self._backend = backend
        self._namespace = namespace
        self._scope: Scope = Scope(inherited)
        self._settling = Settling(sampling, self._scope, streams=streams)
        self._author: Author = parent._author if parent is not None else Author()
        self._interpreter: Executor = self._executed(waits_for_fork=parent is not None)
        self._children: list[ProgramState] = []
        self._copied_in: StateGroup | None = None
        self._deciding: bool = parent is not None and parent._deciding  # a control node is read
        self._over: str | None = None  # why nothing can be appended any more
        if parent is not None:
            self._settling.inherit(parent._settling)

    # Writing

    def __iadd__(self, other: object) -> ProgramState:
        self._append(parts_of(other), caller())
        return self

    def __add__(self, other: object) -> NoReturn:
        raise InvalidRequest(
            f"s + … appends nothing to the state ({other!s:.60}).", hint="Write s += …, which appends in place."
        )

    def system(self, expr: object = None) -> Any:
        """A system turn: `s.system("…")` appends it, `with s.system():` opens and closes it around a block."""
        return self._turn("system", expr)

    def user(self, expr: object = None) -> Any:
        """A user turn, as `system`."""
        return self._turn("user", expr)

    def assistant(self, expr: object = None) -> Any:
        """An assistant turn, as `system`."""
        return self._turn("assistant", expr)

    def _turn(self, role: str, expr: object) -> Any:
        if expr is None:
            return Turn(self, role)
        self._append(turn(role, expr).items, caller())
        return ExprList()  # so that `s += s.user(…)` appends it once

    def var_scope(self, name: str) -> VarScope:
        """`with s.var_scope("x"):` keeps all text appended in the block as `s["x"]`."""
        return VarScope(self, name)

    def set_var(self, name: str, value: Any) -> None:
        """`s[name]` is `value` from here on; nothing is appended."""
        self._check_writable(caller())
        self._scope.declare(name).fill(value)

    def call(self, name: str, function: Callable[..., Any], *arguments: Any, seconds: float | None = None) -> None:
        """`s[name]` becomes the text that `function(*arguments)` gives (of other values str() of it). Nothing is
        appended. In a compiled program the function is called when its arguments are there, beside everything that
        doesn't need its result. What a coroutine function gives is awaited; what it raises comes as a ProgramError,
        here or where a compiled program's `s[name]` is read. `seconds`: how long it is expected to take, which is told
        to the cache."""
        where, node = caller(), f"call({name!r})"
        self._check_writable(where)
        try:
            given = finished(function(*arguments))
        except ProgramError:
            raise
        except Exception as cause:
            raise ProgramError(cause, where, node) from cause
        self.set_var(name, given if isinstance(given, str) else str(given))

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    # Reading

    def __getitem__(self, name: str) -> Any:
        return self.get_var(name)

    def get_var(self, name: str) -> Any:
        """The variable's value; waits for it."""
        return self._variable(name).read()

    async def aget(self, name: str) -> Any:
        """`s[name]` for coroutines."""
        return await (await self._avariable(name)).aread()

    def __contains__(self, name: object) -> bool:
        return name in self._scope

    def variables(self) -> list[str]:
        """The names written so far (values may still be on their way)."""
        return self._scope.names()

    def get_meta_info(self, name: str) -> dict[str, Any]:
        """About the gen or select that wrote `name`: id, finish_reason, token counts, log-probabilities asked for."""
        variable = self._variable(name)
        variable.read()
        return self._meta(variable)

    async def aget_meta_info(self, name: str) -> dict[str, Any]:
        """`get_meta_info` for coroutines."""
        variable = await self._avariable(name)
        await variable.aread()
        return self._meta(variable)

    def text(self, *, partial: bool = False) -> str:
        """Everything appended so far, template text included. `partial`: after a failure, what there is."""
        if not (partial and self.error()):
            self._wait(text=True)
        return self._interpreter.gathered.text

    async def atext(self) -> str:
        """`text` for coroutines."""
        await self._await(text=True)
        return self._interpreter.gathered.text

    def messages(self, *, partial: bool = False) -> list[dict[str, str]]:
        """The turns so far as `{"role", "content"}`, with a "reasoning_content" where it was kept apart. `partial`:
        after a failure, what there is."""
        if not (partial and self.error()):
            self._wait()
        return self._interpreter.gathered.transcript.all_messages()

    async def amessages(self) -> list[dict[str, str]]:
        """`messages` for coroutines."""
        await self._await()
        return self._interpreter.gathered.transcript.all_messages()

    def text_iter(self, var_name: str | None = None, index: int = 0) -> Iterator[str]:
        """The text as it grows: of one variable, or of the whole state. `index`: which output of a gen with n."""
        if var_name is None:
            self._written_elsewhere()
            for piece in self._interpreter.gathered.stream:
                yield piece.text
            return
        variable = self._variable(var_name)
        for piece in variable.output_stream(index):
            if piece.text:
                yield piece.text

    async def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False, index: int = 0
    ) -> AsyncIterator[Any]:
        """As text_iter; with `return_meta_data` (for a variable) pairs of text and meta info."""
        if return_meta_data and var_name is None:
            raise InvalidRequest("return_meta_data=True needs a variable.", hint="Give var_name.", param="var_name")
        if var_name is None:
            self._written_elsewhere()
            async for piece in self._interpreter.gathered.stream:
                yield piece.text
            return
        variable = await self._avariable(var_name)
        async for piece in variable.output_stream(index):
            if return_meta_data:
                yield piece.text, piece.meta
            elif piece.text:
                yield piece.text

    def sync(self) -> None:
        """Wait for everything appended so far. Raises ProgramError where a part of it failed."""
        self._wait()

    async def async_(self) -> None:
        """`sync` for async programs."""
        await self._await()

    def error(self) -> ProgramError | None:
        """Wait, and give the failure, if any, instead of raising it."""
        try:
            self._wait()
        except ProgramError as error:
            return error
        return None

    def usage(self) -> ProgramUsage:
        """Token counts of every call so far, forks included."""
        total = ProgramUsage.of(self._interpreter.gathered.usages)
        for child in self._children:
            total += child.usage()
        return total

    def trace(self) -> Trace:
        """What every call did so far, forks included: times, tokens computed and reused, waits."""
        return trace_of(self)

    def hint(self, **known: Any) -> None:
        """Tell the cache what is known of this state's future (runtime/messages/hints.py: BranchHint has the names)."""
        self._submit([Hinting(BranchHint(**known).check())], caller())

    # Forks

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> StateGroup:
        """`size` states that start from here and go on side by side. They share what was computed so far."""
        where = caller()
        check_fork(size, position_ids_offset)
        self._check_writable(where)
        children = [self._child(sampling) for sampling in self._settling.fork(size)]
        self._children += children
        self._interpreter.submit([Fork(tuple(child._interpreter for child in children))], where)
        return group(children, self)

    def copy(self, position_ids_offset: list[int] | None = None) -> ProgramState:
        """A single fork. As a context manager (`with s.copy() as c:`) it is joined at the end of the block."""
        forks = self.fork(1, position_ids_offset)
        copied: ProgramState = forks[0]
        copied._copied_in = forks
        return copied

    def gather(self, children: list[ProgramState]) -> dict[Variable, list[Variable]]:
        """Each variable that `children` wrote becomes a list of their values here (`join`'s first mode), also in place
        of one that was here before them. Returns the lists with what is in them."""
        self._check_writable(caller())
        names: dict[str, list[Variable]] = {}
        for child in children:
            for variable in child._scope.written():
                names.setdefault(variable.name, []).append(variable)
        lists = {self._scope.declare(name): variables for name, variables in names.items()}
        for gathered, variables in lists.items():
            collect(gathered, variables)
        return lists

    def concatenate(self, children: list[ProgramState]) -> None:
        """What `children` appended since their fork is appended here, one behind the other."""
        self._submit([Concatenate(tuple(child._interpreter for child in children))], caller())

    # The program's life

    def finish(self, why: str = "the program has ended") -> None:
        """Nothing more is appended; the branch is released once everything before is done. Idempotent."""
        if self._over is not None:
            return
        self._over = why
        for child in self._children:
            child.finish()
        if self._interpreter.failure is None:
            self._submit_ended()
        self._scope.seal()

    def abandon(self, cause: BaseException, where: Location, node: str) -> None:
        """The program raised: abort what runs, fail who waits."""
        self._over = self._over or "the program has failed"
        error = cause if isinstance(cause, ProgramError) else ProgramError(cause, where, node)
        for child in self._children:
            child.abandon(error, where, node)
        self._interpreter.fail(error)

    def cancel(self, reason: str = "the program was cancelled") -> None:
        """Stop it: what runs is aborted, its forks too. Readers get the reason; what was written stays readable."""
        self.abandon(Aborted(f"{reason}."), caller(), "cancel()")

    def body_runs_elsewhere(self) -> None:
        """Readers may now wait for variables that the program has not declared yet."""
        self._scope.sealed = False

    def body_waits(self, job: Job) -> None:
        """The body runs when it gets a thread; who waits for it may hurry it."""
        self._author.waits(job)

    def begin(self, deadline: float | None) -> None:
        """The body begins, in this thread or task; within `deadline` seconds it is over, or fails with TimedOut."""
        self._author.begins()
        if deadline is not None:
            self._expire_in(deadline)

    def keep(self, running: object) -> None:
        """Hold what runs the body, or what it computes (event loops hold tasks weakly)."""
        self._author.keep(running)

    def order_by(self, ordering: Arranges | None) -> None:
        """How texts in any order are put."""
        self._settling.ordering = ordering

    def on_begin(self, callback: Callable[[Sequence[Any]], None]) -> None:
        """Call back (from any thread) with what the first call takes with it: parts of messages/branches.py."""
        self._interpreter.on_begin(callback)

    def on_done(self, callback: Any) -> None:
        """Call back, from any thread, when the state is over, failed or not."""
        self._interpreter.done.on_done(callback)

    def wait_done(self) -> None:
        """Wait until the state is over, failed or not; never raises its failure."""
        self._interpreter.done.exception()

    async def await_done(self) -> None:
        try:
            await self._interpreter.done
        except ProgramError:
            return  # reading raises it

    def __enter__(self) -> ProgramState:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._copied_in is not None and error is None:
            self._copied_in.join()
        self.finish()

    def __repr__(self) -> str:
        return f"<ProgramState variables={self._scope.names()!r}{' over' if self._over else ''}>"

    # Inside

    def _executed(self, *, waits_for_fork: bool) -> Executor:
        """What executes this state's nodes."""
        return Interpreter(self._backend, self._scope, namespace=self._namespace, waits_for_fork=waits_for_fork)

    def _child(self, sampling: SamplingOptions) -> ProgramState:
        return ProgramState(self._backend, sampling, namespace=self._namespace, parent=self)

    def _expire_in(self, seconds: float) -> None:
        loop = self._interpreter.loop

        def expired() -> None:
            where, node = self._interpreter.at
            cause = TimedOut(f"the program's deadline of {seconds:g} s has passed.", hint="Give it more time.")
            self.abandon(cause, where, str(node))

        def begin() -> None:
            handle = loop.call_later(seconds, expired)
            self._interpreter.done.on_done(lambda: loop.call_soon_threadsafe(handle.cancel))

        loop.call_soon_threadsafe(begin)

    def _append(self, items: tuple[Expr, ...], where: Location) -> None:
        """Settle `items` in the program's thread (parameters checked, variables declared) and hand them on."""
        self._check_writable(where)
        nodes: list[Node] = []
        settling = self._settling
        for item in items:
            if isinstance(item, _TEXTS):
                if (text := settling.text(item)) is not None:
                    nodes.append(text)
            elif isinstance(item, GenNode):
                nodes.append(self._generation(item, where))
            elif isinstance(item, SelectNode):
                nodes.append(settling.selection(item))
            elif isinstance(item, Control):
                if nodes:
                    self._submit(nodes, where)
                    nodes = []
                self._control(item, where)
            else:
                assert isinstance(item, RoleBegin | RoleEnd), item
                nodes.append(settling.turn(item, where))
        if nodes:
            self._submit(nodes, where)

    def _generation(self, item: GenNode, where: Location) -> Generation:
        return self._settling.generation(item, where)

    def _control(self, item: Control, where: Location) -> None:
        """What the program's flow hangs on is known here, or waited for."""
        self._settling.decision()
        outer, self._deciding = self._deciding, True
        try:
            item.run(self)
        finally:
            self._deciding = outer

    def _written_in(self, part: int) -> AbstractContextManager[None]:
        """A branch of a when, a match or a repeat is written."""
        return self._settling.written_in(part)

    def _ask(self, name: str, messages: Sequence[Said], **turn: Any) -> None:
        """`s[name]` becomes the next turn of a conversation with tools (Settling.asking)."""
        where = caller()
        self._check_writable(where)
        self._submit([self._settling.asking(name, messages, **turn)], where)

    def _submit(self, nodes: list[Node], where: Location) -> None:
        self._interpreter.submit(nodes, where)

    def _submit_ended(self) -> None:
        try:
            self._interpreter.submit([End()], caller())
        except ProgramError:
            return  # failed meanwhile; its readers know

    def _check_writable(self, where: Location) -> None:
        failure = self._interpreter.failure
        if failure is not None:
            raise failure.again() from failure.cause
        if self._over is not None:
            raise ProgramError(
                InvalidRequest(f"nothing can be appended: {self._over}.", hint="Append before, or fork again."),
                where,
                "append",
            )

    def _written_elsewhere(self) -> bool:
        """Whether another than the reader writes this state. If so it is about to be waited for."""
        return not self._scope.sealed and self._author.is_another()

    def _variable(self, name: str) -> Variable:
        refuse_on(self._interpreter.loop)
        try:
            variable = self._scope.find(name, wait=self._written_elsewhere())
        except UnknownVariable as error:
            raise self._unknown(name) or error from None
        self._refuse_to_stall(variable.value)
        return variable

    def _refuse_to_stall(self, wanted: Arrival[Any]) -> None:
        """What the flow hangs on (when, match, repeat) is waited for all the same."""
        if not self._deciding:
            self._author.refuse_to_stall(wanted)

    async def _avariable(self, name: str) -> Variable:
        try:
            return await self._scope.afind(name, wait=self._written_elsewhere())
        except UnknownVariable as error:
            raise self._unknown(name) or error from None

    def _unknown(self, name: str) -> UnknownVariable | None:
        """What to say of a variable that is not here, but in a fork."""
        if not any(name in child._scope for child in self._children):
            return None
        advice = f"Its forks wrote it: forks.join() makes it a list here, or read forks[0][{name!r}]."
        return UnknownVariable(name, (known.name for known in self._scope), advice)

    def _meta(self, variable: Variable) -> dict[str, Any]:
        if variable.meta is None:
            with_meta = [known.name for known in self._scope if known.meta is not None]
            raise UnknownVariable(f"{variable.name} (by gen or select)", with_meta)
        return variable.meta

    def _settled(self, text: bool) -> Arrival[None]:
        """What says every node so far is done."""
        if self._over is not None or self._written_elsewhere():
            return self._interpreter.done
        barrier = Barrier(Arrival(), text)
        self._submit([barrier], caller())
        return barrier.reached

    def _wait(self, *, text: bool = False) -> None:
        refuse_on(self._interpreter.loop)
        settled = self._settled(text)
        self._refuse_to_stall(settled)
        try:
            settled.result()
        except ProgramError as error:
            raise error.again() from error.cause

    async def _await(self, *, text: bool = False) -> None:
        try:
            await self._settled(text)
        except ProgramError as error:
            raise error.again() from error.cause
