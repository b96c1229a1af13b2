"""The default model's own tokenizer and template, from its GGUF file."""

from __future__ import annotations

import pytest
from mixed_lines import mixed_lines

from palmette.runtime.checkpoint.resolve import resolve
from palmette.runtime.config import DEFAULT_MODEL
from palmette.runtime.text.chat_template import ChatTemplate, encode_rendered
from palmette.runtime.text.load import load_tokenizer
from palmette.runtime.text.tokenizer import Tokenizer
from palmette.runtime.text.turns import TurnRenderer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(resolve(DEFAULT_MODEL))


def test_every_line_comes_back(tokenizer: Tokenizer) -> None:
    for line in mixed_lines(4000):
        for special in (False, True):
            assert tokenizer.decode(tokenizer.encode(line, special=special), skip_special=False) == line


def test_digits_are_single_and_spaces_as_trained(tokenizer: Tokenizer) -> None:
    pieces = tokenizer.vocabulary.pieces
    shown = [pieces[token].decode() for token in tokenizer.encode("Hello  world 123", special=False)]
    assert shown == ["Hello", " ", " world", " ", "1", "2", "3"]


def test_specials(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.eos_ids == (2, 0)
    assert not tokenizer.vocabulary.add_bos
    assert tokenizer.encode("<|im_end|>", special=True) == [2]
    assert len(tokenizer.encode("<|im_end|>", special=False)) > 1


def test_turns_add_up_to_the_models_template(tokenizer: Tokenizer) -> None:
    template = ChatTemplate.of(tokenizer)
    turns = [{"role": role, "content": f"{role} says <|im_end|>."} for role in ("user", "assistant", "user")]
    renderer = TurnRenderer(template)
    text = ""
    for index, turn in enumerate(turns):
        opened = renderer.begin(turns[:index], turn["role"])
        assert isinstance(opened, str)
        text += opened + turn["content"] + renderer.end(turns[: index + 1], turn["role"])
    rendered = template.render(turns)
    assert text == rendered.text
    tokens = encode_rendered(tokenizer, rendered.pieces)
    assert [token for token in tokens if token in tokenizer.vocabulary.special_pieces] == [1, 2] * 4
