"""Errors cross a process as the kind that the other side knows."""

from __future__ import annotations

import pytest

from palmette.runtime import errors
from palmette.runtime.errors import ErrorInfo, GrammarError, InternalError, PalmetteError, from_info
from palmette.runtime.grammar.automaton.dfa import TooLarge

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PalmetteError) and kind is not PalmetteError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_as_itself(kind: type[PalmetteError]) -> None:
    back = from_info(kind("No.", hint="Do that.", param="stop").info())
    assert type(back) is kind
    assert (back.message, back.hint, back.param) == ("No.", "Do that.", "stop")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_by_its_code_over_http(kind: type[PalmetteError]) -> None:
    back = from_info(ErrorInfo(kind.http_code(), "No."))
    assert back.http_status == kind.http_status
    assert type(back) is kind or back.http_code() == kind.http_code()


def test_codes_that_clients_of_openai_go_by() -> None:
    assert errors.ContextLengthExceeded.http_code() == errors.NeverFits.http_code() == "context_length_exceeded"
    assert errors.ModelNotFound.http_code() == "model_not_found"


def test_a_narrower_kind_of_some_room_keeps_its_status() -> None:
    back = from_info(TooLarge("Too many states.", param="regex").info())
    assert type(back) is GrammarError
    assert back.http_status == 400


def test_what_is_no_known_kind_is_a_fault_of_ours() -> None:
    class Odd(PalmetteError):
        pass

    assert Odd("Odd.").info().kind == "InternalError"
    assert type(from_info(ErrorInfo("Later", "Unknown here."))) is InternalError
