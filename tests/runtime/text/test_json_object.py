"""Arguments as templates take them: an object to some, its text to others."""

from __future__ import annotations

import pytest

from palmette.runtime.text.chat_template import ChatTemplate
from palmette.runtime.text.json_object import JsonObject

TEXT = '{"at":  "Oslo", "n": 1}'


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ a }}", TEXT),
        ("{{ 'x' + a + 'y' }}", f"x{TEXT}y"),
        ("{{ 'x' ~ a }}", f"x{TEXT}"),
        ("{{ a | tojson }}", '{"at": "Oslo", "n": 1}'),
        ("{% for key, value in a.items() %}{{ key }}={{ value }};{% endfor %}", "at=Oslo;n=1;"),
        ("{{ a is mapping }}{{ a is string }}{{ a.at }}", "TrueFalseOslo"),
    ],
)
def test_every_manner_of_template(template: str, says: str) -> None:
    made = ChatTemplate("{% for m in messages %}{% set a = m.a %}" + template + "{% endfor %}")
    assert made.render([{"a": JsonObject({"at": "Oslo", "n": 1}, TEXT)}]).text == says


def test_special_tokens_in_it_are_hidden_in_both() -> None:
    chat = ChatTemplate("{{ messages[0].a }}|{{ messages[0].a | tojson }}", special=["<end>"])
    rendered = chat.render([{"a": JsonObject({"x": "<end>"}, '{"x": "<end>"}')}])
    assert rendered.text == '{"x": "<end>"}|{"x": "<end>"}'
    assert not any(piece.special for piece in rendered.pieces)


def test_what_is_not_there_is_written_as_nothing() -> None:
    assert ChatTemplate("[{{ messages[0].content }}]").render([{"content": None}]).text == "[]"
