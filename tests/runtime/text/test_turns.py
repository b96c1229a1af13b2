"""What opening and closing turns appends, for templates of several manners."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from templates import CHATML, FOLDING, MOVING, THINKING
from test_chat_template import CONTENT, chat

from palmette.runtime.errors import InvalidRequest
from palmette.runtime.text.chat_template import Message
from palmette.runtime.text.turns import Rewrite, TurnRenderer


def said(*turns: str) -> list[Message]:
    """ "user: hello" → a message."""
    return [dict(zip(("role", "content"), turn.split(": ", 1), strict=True)) for turn in turns]


def run(template: str, turns: list[Message]) -> tuple[str, list[str]]:
    """The branch's text after these turns, and what each step appended ("!" in front of a rewrite)."""
    renderer = TurnRenderer(chat(template))
    text, steps = "", []
    for index, turn in enumerate(turns):
        opened = renderer.begin(turns[:index], turn["role"])
        if isinstance(opened, Rewrite):
            text = "".join(piece.text for piece in opened.pieces)
            steps.append("!" + text)
        else:
            text += opened
            steps.append(opened)
        text += turn["content"]
        closed = renderer.end(turns[: index + 1], turn["role"])
        text += closed
        steps.append(closed)
    return text, steps


def test_chatml_turns() -> None:
    _, steps = run(CHATML, said("system: s", "user: u", "assistant: a"))
    assert steps == [
        "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n",
        "<|im_start|>assistant\n", "<|im_end|>\n",
    ]  # fmt: skip


def test_the_templates_default_system_text_opens_a_first_user_turn() -> None:
    _, steps = run(CHATML, said("user: u", "assistant: a", "user: v"))
    assert steps[0] == "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n"
    assert steps[4] == "<|im_start|>user\n"


@given(turns=st.lists(st.tuples(st.sampled_from(["user", "assistant", "system"]), CONTENT), min_size=1, max_size=5))
def test_the_steps_add_up_to_the_rendering(turns: list[tuple[str, str]]) -> None:
    messages: list[Message] = [{"role": role, "content": content} for role, content in turns]
    if turns[0][0] == "assistant":  # its opening is the generation prompt, which has no default system text
        messages.insert(0, {"role": "user", "content": "x"})
    text, steps = run(CHATML, messages)
    assert text == chat(CHATML).render(messages).text
    assert not any(step.startswith("!") for step in steps)


def test_a_system_message_inside_the_first_user_turn() -> None:
    text, steps = run(FOLDING, said("system: s", "user: u", "assistant: a", "user: v"))
    assert steps == [
        "<|endoftext|>[INST] <<SYS>>", "", "<</SYS>> ", " [/INST]", " ", " <|im_end|>", "[INST] ", " [/INST]",
    ]  # fmt: skip
    assert text == chat(FOLDING).render(said("system: s", "user: u", "assistant: a", "user: v")).text


def test_trimmed_content_is_no_rewrite() -> None:
    _, steps = run(FOLDING, said("user: u ", "assistant:  a\n", "user: v"))
    assert not any(step.startswith("!") for step in steps)


def test_a_moving_system_message_is_a_rewrite() -> None:
    text, steps = run(MOVING, said("system: s", "user: u", "assistant: a", "user: v"))
    assert steps[:4] == ["<|u|>", "", ": ", "<|e|>"]
    assert steps[6] == "!<|u|>u<|e|><|a|>a<|e|><|u|>s: "
    assert text == "<|u|>u<|e|><|a|>a<|e|><|u|>s: v<|e|>"


def test_dropped_reasoning_is_a_rewrite() -> None:
    turns = said("user: u", "assistant: because</think>a", "user: v")
    text, steps = run(THINKING, turns)
    assert steps[2] == "<|im_start|>assistant\n<think>\n"
    assert steps[4] == "!<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\n"
    assert text == chat(THINKING).render(turns).text


def test_a_rewrite_keeps_content_plain() -> None:
    opened = TurnRenderer(chat(THINKING)).begin(said("user: <|im_end|>", "assistant: x</think>y"), "user")
    assert isinstance(opened, Rewrite)
    special = [piece.text for piece in opened.pieces if piece.special]
    assert special == ["<|im_start|>", "<|im_end|>", "<|im_start|>", "<|im_end|>", "<|im_start|>"]
    assert "user\n<|im_end|>" in [piece.text for piece in opened.pieces if not piece.special]


def test_roles_the_template_refuses_are_named() -> None:
    renderer = TurnRenderer(chat(FOLDING))
    with pytest.raises(InvalidRequest, match="alternate"):
        renderer.begin(said("user: a"), "user")
    with pytest.raises(InvalidRequest, match="'critic'"):
        TurnRenderer(chat(MOVING)).begin(said("user: a"), "critic")
    for role in ("", "x<|im_end|>"):
        with pytest.raises(InvalidRequest, match="is no role"):
            renderer.begin([], role)


def test_tools_and_variables_reach_every_rendering() -> None:
    template = (
        "{% if tools %}T{{ tools | length }} {% endif %}"
        "{% for m in messages %}[{{ m['role'] }}{{ mark }}]{{ m['content'] }};{% endfor %}"
    )
    renderer = TurnRenderer(chat(template), tools=[{"name": "f"}], mark="*")
    assert renderer.begin([], "user") == "T1 [user*]"
    assert renderer.begin(said("user: a"), "user") == "[user*]"
    assert renderer.end(said("user: a"), "user") == ";"
