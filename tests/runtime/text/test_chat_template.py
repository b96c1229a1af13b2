"""Chat templates: what they render, what they may not do, and that content can't become a special token."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from templates import CHATML, FOLDING, THINKING

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.errors import InvalidRequest, ModelError
from palmette.runtime.text.chat_template import ChatTemplate, encode_rendered
from palmette.runtime.text.load import load_tokenizer

TINY = load_tokenizer(resolve("tiny"))
SPECIAL = TINY.vocabulary.special_pieces
SPELLED = st.sampled_from(
    [
        "<|im_end|>",
        "<|im_start|>",
        "<|endoftext|>",
        "<|tool|>",
        "<|im_",
        "<",
        "|>",
        ">",
        "end|>",
        "<<|im_end|>>",
        "\U000f0000",
    ]
)
CONTENT = st.lists(SPELLED | st.text(max_size=8) | st.sampled_from([" ", "\n", "user"]), max_size=6).map("".join)


def chat(source: str) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<|endoftext|>", eos_token="<|im_end|>", special=SPECIAL.values())


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_the_models_own_template() -> None:
    template = ChatTemplate.of(TINY)
    rendered = template.render([user("Hi")], add_generation_prompt=True)
    assert rendered.text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert [piece.special for piece in rendered.pieces] == [True]
    tokens = encode_rendered(TINY, rendered.pieces)
    assert tokens == TINY.encode(rendered.text, special=True)
    assert [token for token in tokens if token in SPECIAL] == [1, 2, 1]


@given(contents=st.lists(CONTENT, min_size=1, max_size=3))
@example(contents=["<|im_end|>"])
@example(contents=["a<|im_", "end|>"])
def test_special_tokens_come_from_the_template_only(contents: list[str]) -> None:
    messages = [user(content) for content in contents]
    rendered = chat(CHATML).render(messages, add_generation_prompt=True)
    expected = "<|im_start|>system\nYou are helpful.<|im_end|>\n"
    expected += "".join(f"<|im_start|>user\n{content}<|im_end|>\n" for content in contents) + "<|im_start|>assistant\n"
    assert rendered.text == expected
    tokens = encode_rendered(TINY, rendered.pieces)
    assert TINY.decode(tokens, skip_special=False) == expected
    assert [token for token in tokens if token in SPECIAL] == [1, 2] * (len(contents) + 1) + [1]


def test_between_special_tokens_the_text_is_encoded_as_one_run() -> None:
    rendered = chat(CHATML).render([user("\n<|im_end|> x")])
    runs = [piece.text for piece in rendered.pieces if not piece.special]
    assert "user\n\n<|im_end|> x" in runs


@pytest.mark.parametrize(
    ("before", "content", "after"), [("<|im_", "end|>", ""), ("", "<|im_end", "|>"), ("<", "|im_end|>x", "")]
)
@pytest.mark.parametrize("filter", ["", " | trim"])
def test_template_text_and_content_together_make_no_special_token(
    before: str, content: str, after: str, filter: str
) -> None:
    template = chat(f"{before}{{{{ messages[0]['content']{filter} }}}}{after}<|im_end|>")
    tokens = encode_rendered(TINY, template.render([user(content)]).pieces)
    assert [token for token in tokens if token in SPECIAL] == [2]
    assert TINY.decode(tokens, skip_special=False) == f"{before}{content}{after}<|im_end|>"


def test_roles_tools_and_extra_variables_are_content_too() -> None:
    template = chat("{{ messages[0]['role'] }}|{{ tools | tojson }}|{{ note }}<|im_end|>")
    rendered = template.render(
        [{"role": "<|im_start|>", "content": ""}],
        tools=[{"name": "<|tool|>", "<|im_end|>": [1, None]}],
        note="<|im_end|>",
    )
    tokens = encode_rendered(TINY, rendered.pieces)
    assert [token for token in tokens if token in SPECIAL] == [2]
    assert rendered.text == '<|im_start|>|[{"name": "<|tool|>", "<|im_end|>": [1, null]}]|<|im_end|><|im_end|>'


def test_what_templates_expect_to_find() -> None:
    template = chat(
        "{% for m in messages %}{% if m['content'] == 'skip' %}{% continue %}{% endif %}"
        "{% generation %}{{ m['content'] }}{% endgeneration %};{% endfor %}"
        "{{ bos_token }}{{ eos_token }}{{ strftime_now('%Y') | length }}{{ {'a': 'é<'} | tojson(indent=1) }}"
        "{{ enable_thinking is defined }}{{ tools is none }}"
    )
    text = template.render([user("a"), user("skip"), user("b")]).text
    assert text == 'a;b;<|endoftext|><|im_end|>4{\n "a": "é<"\n}FalseTrue'
    assert template.render([user("a")], enable_thinking=True).text.endswith("TrueTrue")


def test_blocks_leave_no_blank_lines() -> None:
    assert (
        chat("{% for m in messages %}\n  {% if true %}\n{{ m['content'] }}\n  {% endif %}\n{% endfor %}")
        .render([user("a"), user("b")])
        .text
        == "a\nb\n"
    )


def test_a_template_that_refuses_names_its_line_and_reason() -> None:
    with pytest.raises(InvalidRequest, match=r"line 1: Roles must alternate\.") as caught:
        chat(FOLDING).render([user("a"), user("b")])
    assert caught.value.param == "messages"
    with pytest.raises(InvalidRequest, match=r"line 3: UndefinedError"):
        chat("{% if true %}\n{% endif %}\n{{ messages[0]['content'] + messages[0]['name']['x'] }}").render([user("a")])


def test_a_template_that_is_no_jinja_names_its_line() -> None:
    with pytest.raises(ModelError, match="line 2") as caught:
        chat("a\n{% for x in %}")
    assert "--chat-template" in caught.value.hint
    with pytest.raises(ModelError, match="characters"):
        chat("a" * ((1 << 20) + 1))


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ 'a' * 10000000000 }}",
        "{{ [0] * 10000000000 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{% for a in range(1000000000) %}x{% endfor %}",
        "{% include 'x' %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    started = time.monotonic()
    with pytest.raises(InvalidRequest):
        chat(source + "{{ nothing.at.all }}").render([user("a")])
    assert time.monotonic() - started < 3


def test_endless_output_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palmette.runtime.text.chat_template.MAX_RENDERED", 100_000)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}xxxxxxxxxx{% endfor %}{% endfor %}"
    with pytest.raises(InvalidRequest, match="over its limits"):
        chat(loops).render([user("a")])


def test_no_template_says_what_to_do() -> None:
    tokenizer: Any = type("Bare", (), {"chat_template": None})()
    with pytest.raises(ModelError, match="no chat template") as caught:
        ChatTemplate.of(tokenizer)
    assert "--chat-template" in caught.value.hint


def test_messages_are_not_changed() -> None:
    messages = [user("<|im_end|>")]
    before = json.dumps(messages)
    chat(THINKING).render(messages)
    assert json.dumps(messages) == before
