"""Values that a traced program reads before they are there: what may be done with them, and what stops the tracing.

A symbol can be appended, formatted into text that is appended, compared (which gives a condition), stripped, and put
in lower or upper case. Whatever else would need the value itself raises TraceError at the program's line. Knows
nothing of states; tracing.py makes them.
"""

from __future__ import annotations

import enum
from typing import Any, NoReturn, Protocol

from palmette.lang.errors import TraceError
from palmette.lang.nodes import Expr, ExprList
from palmette.lang.types import OutputType
from palmette.runtime.messages import programs
from palmette.runtime.messages.programs import Change, Compare, Comparison, Condition, Every, Scalar, Some, Value

NUMBERS: dict[str, Change] = {"int": "int", "float": "float", "bool": "bool"}
WRITTEN_STRIPPED = ("date", "time")
"""Types whose value is written like the text it was made of, spaces around it aside."""
CONTROL_HINT = (
    'Say it in the language, as in s += when(s["x"] == "yes", …), match("x", {…}) or repeat(…, until=…); or run the '
    "program as it is."
)
COMPUTING_HINT = 'Compute it with s.call("y", function, s["x"]), or run the program as it is.'


class Formatter(Protocol):
    """What stands for a symbol inside a string until the string is appended."""

    def marker(self, symbol: Symbol) -> str: ...


class Symbol(Expr):
    """The value of a slot to come, called `name` by the program. `type`: what its text becomes, where not a str."""

    __slots__ = ("_formatter", "name", "type", "value")

    def __init__(self, formatter: Formatter, name: str, value: Value, type: OutputType | None = None) -> None:
        self._formatter = formatter
        self.name = name
        self.value = value
        self.type = None if type is None or type.name == "str" else type

    @property
    def is_text(self) -> bool:
        return self.type is None

    def changed(self, *changes: Change) -> Symbol:
        return Symbol(self._formatter, self.name, Value(self.value.slot, (*self.value.changes, *changes)))

    def as_text(self) -> Value:
        """What str() of the value gives. Raises TraceError where only Python knows."""
        if self.type is None:
            return self.value
        if self.type.name in NUMBERS:
            return Value(self.value.slot, (NUMBERS[self.type.name],))
        if self.type.name not in WRITTEN_STRIPPED and not self.type.name.startswith("Literal["):
            self.refuse(f"is a {self.type.name}, which only Python can write as text")
        return Value(self.value.slot, ("strip",))

    def refuse(self, what: str, hint: str = CONTROL_HINT) -> NoReturn:
        raise TraceError(f"{self!r} {what}.", hint=hint)

    # What can be traced

    def __str__(self) -> str:
        self.as_text()
        return self._formatter.marker(self)

    def __format__(self, spec: str) -> str:
        if spec:
            self.refuse(f"is formatted with {spec!r}, which needs its value", "Format it without a width or precision.")
        return str(self)

    def __repr__(self) -> str:
        return f"s[{self.name!r}]"

    def __add__(self, other: object) -> ExprList:
        self._need_text("is added to something")
        return Expr.__add__(self, other)

    def __radd__(self, other: object) -> ExprList:
        self._need_text("is added to something")
        return Expr.__radd__(self, other)

    def strip(self, characters: str | None = None) -> Symbol:
        if characters is not None:
            self.refuse(f"is stripped of {characters!r}", "strip() without arguments can be traced.")
        self._need_text("is stripped")
        return self.changed("strip")

    def lower(self) -> Symbol:
        self._need_text("is put in lower case")
        return self.changed("lower")

    def upper(self) -> Symbol:
        self._need_text("is put in upper case")
        return self.changed("upper")

    def startswith(self, prefix: str) -> Test:
        return self._text_test("startswith", prefix)

    def endswith(self, suffix: str) -> Test:
        return self._text_test("endswith", suffix)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)

    def __lt__(self, other: object) -> Any:
        return self._compare("<", other)

    def __le__(self, other: object) -> Any:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Any:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Any:
        return self._compare(">=", other)

    # What can't

    def __bool__(self) -> bool:
        self.refuse("decides what the program does")

    def __len__(self) -> int:
        self.refuse("is asked for its length", COMPUTING_HINT)

    def __iter__(self) -> NoReturn:
        self.refuse("is iterated over")

    def __contains__(self, item: object) -> bool:
        self.refuse(f"is searched for {item!r}")

    def __getitem__(self, key: object) -> NoReturn:
        self.refuse(f"is asked for its part {key!r}", COMPUTING_HINT)

    def __hash__(self) -> int:
        self.refuse("is used as a key")

    def __int__(self) -> int:
        self.refuse("is made an int", "Ask for one: gen(…, type=int).")

    def __float__(self) -> float:
        self.refuse("is made a float", "Ask for one: gen(…, type=float).")

    def __index__(self) -> int:
        self.refuse("is used as an index")

    def __getattr__(self, attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)  # Python's own questions
        self.refuse(f"is asked for .{attribute}", COMPUTING_HINT)

    # Inside

    def _need_text(self, what: str) -> None:
        if not self.is_text:
            self.refuse(what, f"{COMPUTING_HINT} As text in a longer one: str(…) around it.")

    def _text_test(self, by: Comparison, other: object) -> Test:
        if not self.is_text or not isinstance(other, str):
            self.refuse(f"is asked whether it {by} {other!r}")
        return Test(Compare(self.value, by, other))

    def _compare(self, by: Comparison, other: object) -> Test:
        if isinstance(other, Symbol):
            if (self.is_text or self._is_number) and self.type == other.type:
                return Test(Compare(self._read(), by, other._read()))
        elif self.is_text and isinstance(other, str):
            return Test(Compare(self.value, by, other))
        elif self._is_number and isinstance(other, int | float):
            return Test(Compare(self._read(), by, other))
        elif by in ("==", "!=") and (self.is_text or self._is_number):
            return Test(NEVER if by == "==" else ALWAYS)  # a str equals no other kind
        elif by in ("==", "!="):
            return self._is_one_of_its_type(by, other)
        return self.refuse(f"is compared with {other!r}")

    @property
    def _is_number(self) -> bool:
        return self.type is not None and self.type.name in NUMBERS

    def _read(self) -> Value:
        return self.as_text()

    def _is_one_of_its_type(self, by: Comparison, other: object) -> Test:
        """Against a value of an Enum or a Literal, by the text that it is made of."""
        assert self.type is not None
        text = str(other.value if isinstance(other, enum.Enum) else other)
        try:
            same = self.type.parse(text) == other and type(self.type.parse(text)) is type(other)
        except ValueError:
            same = False
        if not same:
            self.refuse(f"is compared with {other!r}, which is no {self.type.name}")
        return Test(Compare(Value(self.value.slot, ("strip",)), by, text.strip()))


class Test:
    """A condition on values to come. `&` and `|` join several; `if`, `and`, `or` and `not` need it now."""

    __slots__ = ("condition",)
    __test__ = False  # nothing for pytest

    def __init__(self, condition: Condition) -> None:
        self.condition = condition

    def __and__(self, other: object) -> Test:
        return Test(Every((self.condition, condition_of(other))))

    def __or__(self, other: object) -> Test:
        return Test(Some((self.condition, condition_of(other))))

    __rand__ = __and__
    __ror__ = __or__

    def __bool__(self) -> bool:
        raise TraceError(
            "The program decides by a value that is not there yet.",
            hint=f"{CONTROL_HINT} Conditions are joined with & and |, not with `and` and `or`.",
        )

    def __repr__(self) -> str:
        return shown(self.condition, lambda value: f"slot {value.slot}")


ALWAYS: Condition = Every(())
NEVER: Condition = Some(())


def condition_of(given: object) -> Condition:
    """The condition that a test, or a bool, stands for. Raises TraceError for something else."""
    if isinstance(given, Test):
        return given.condition
    if isinstance(given, Symbol):
        if given.type is not None and given.type.name == "bool":
            return Compare(given.as_text(), "==", True)
        if given.is_text:
            return Compare(given.value, "!=", "")
        given.refuse("is used as a condition", "Compare it with something.")
    return ALWAYS if given else NEVER


def shown(condition: Condition, name: Any) -> str:
    """A condition as people write it; `name(value)` gives a value's name."""
    if isinstance(condition, Compare):
        right: Scalar | Value = condition.right
        written = name(right) if isinstance(right, programs.Value) else repr(right)
        if condition.by in ("startswith", "endswith"):
            return f"{name(condition.left)}.{condition.by}({written})"
        return f"{name(condition.left)} {condition.by} {written}"
    if not condition.conditions:
        return "always" if isinstance(condition, Every) else "never"
    joint = " and " if isinstance(condition, Every) else " or "
    return "(" + joint.join(shown(each, name) for each in condition.conditions) + ")"
