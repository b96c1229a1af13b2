"""llguidance behind our protocol: grammars of its Lark dialect as Grammar.

Schemas, EBNF and tags come here as Lark text. Whatever fails inside llguidance is a GrammarError of the one request.
"""

from __future__ import annotations

import numpy as np
from llguidance import LLMatcher

from palmette.runtime.grammar.blueprint import RuleText
from palmette.runtime.grammar.llg.matcher import LlgMatcher
from palmette.runtime.grammar.llg.start import Start, start
from palmette.runtime.grammar.llg.tokenizers import TOKENIZERS, byte_tokenizer
from palmette.runtime.grammar.protocol import Explanation, GrammarSource, Matcher, TokenSpace


class LlgGrammar:
    """A Grammar of llguidance's Lark dialect. Raises GrammarError for one that it refuses."""

    def __init__(self, source: GrammarSource, space: TokenSpace, blueprint: RuleText) -> None:
        self._source = source
        self._space = space
        self.blueprint = blueprint
        self.lark = blueprint.lark
        tokenizer, vetted = TOKENIZERS.of(space), blueprint.vetted
        self._start = Start(lambda: start(tokenizer, blueprint.lark, kind=source.kind, vetted=vetted))

    @property
    def source(self) -> GrammarSource:
        return self._source

    def matcher(self) -> Matcher:
        return self.plain_matcher()

    def plain_matcher(self) -> LlgMatcher:
        return LlgMatcher(self._start, self._start.begin(), self._space)

    def accepts(self, text: str) -> bool:
        return self.explain(text).matches

    def explain(self, text: str) -> Explanation:
        matcher = start(byte_tokenizer(), self.blueprint.as_text or self.lark)
        raw = text.encode(errors="surrogatepass")
        matched = matcher.try_consume_tokens(list(raw))
        position = len(raw[:matched].decode(errors="ignore"))
        if matched == len(raw) and matcher.is_accepting():
            return Explanation(matches=True, position=position)
        possible = _possible(matcher)
        found = "the end" if matched == len(raw) else repr(text[position])
        message = f"At character {position} comes {found}; possible is {possible}."
        return Explanation(matches=False, position=position, possible=possible, message=message)


def _possible(matcher: LLMatcher) -> str:
    """What may come next, for people."""
    if matcher.is_stopped():
        return "the end"
    mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    allowed = [byte for byte in range(256) if mask[byte >> 3] >> (byte & 7) & 1]
    shown = [repr(chr(byte)) for byte in allowed if 0x20 <= byte < 0x7F]
    if len(shown) > 20:
        shown = [*shown[:20], "…"]
    if any(byte >= 0x80 for byte in allowed):
        shown.append("other characters")
    if matcher.is_accepting():
        shown.append("the end")
    return ", ".join(shown) or "nothing"
