"""What the tests of JSON schemas share: a tokenizer of few tokens, compiling, and generating at random."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from palmette.runtime.grammar.protocol import GrammarSource, Limits, Matcher, mask_words
from palmette.runtime.grammar.schema.compile import SchemaGrammar, build
from palmette.runtime.vocabulary import Vocabulary

EOS = 256
WORDS = (b'": ', b'", ', b'"}', b"}}", b'{"', b"true", b"null", b"12", b", ", b'"a', "é".encode(), "😀".encode()[:2])


class FewTokens:
    """All bytes, an end, and some tokens that cross the borders of JSON's lexemes."""

    def __init__(self) -> None:
        pieces = (*(bytes([byte]) for byte in range(256)), b"", *WORDS)
        self.vocabulary = Vocabulary(pieces, {EOS: "<eos>"}, (EOS,))

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


SPACE = FewTokens()


def schema_grammar(schema: Any, **options: Any) -> SchemaGrammar:
    return build(GrammarSource(kind="json_schema", text=json.dumps(schema), options=options), SPACE, Limits())


def allowed(matcher: Matcher) -> list[int]:
    mask = np.zeros(mask_words(SPACE.vocabulary.size), dtype=np.uint32)
    matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(token) for token in np.nonzero(bits)[0]]


def generate(matcher: Matcher, chance: random.Random, tokens: int = 400) -> str | None:
    """A random text under the masks, with a liking for its end; None if it didn't end. Fails at a dead end."""
    out = bytearray()
    for _ in range(tokens):
        choices = allowed(matcher)
        assert choices, f"a dead end after {bytes(out)!r}"
        if matcher.may_end and chance.random() < 0.5:
            token = EOS
        else:
            closing = [token for token in choices if SPACE.vocabulary.pieces[token][:1] in (b'"', b"}", b"]", b",")]
            wanted = closing if closing and chance.random() < 0.6 else choices
            token = chance.choice(wanted)
        assert matcher.accept(token)
        if token == EOS:
            return out.decode()
        out += SPACE.vocabulary.pieces[token]
    return None
