"""The minimal automaton of a list of words, straight from their trie: enumerations are the commonest large patterns.

Called by the automaton for choices between plain texts.
"""

from __future__ import annotations

import numpy as np

from palmette.runtime.grammar.automaton.alphabet import DEAD_CLASS
from palmette.runtime.grammar.automaton.dfa import MAX_CELLS, Budget, Dfa
from palmette.runtime.grammar.regex.charset import CharSet
from palmette.runtime.grammar.regex.syntax import Chars, Choice, Node, Sequence

_FEW = 8  # words, below which the general way is as quick


def words_of(node: Node, members: dict[CharSet, frozenset[int]]) -> list[list[int]] | None:
    """The words as classes, where `node` is a choice between texts of single characters."""
    if not isinstance(node, Choice) or len(node.options) < _FEW:
        return None
    classes: dict[int, int] = {}  # by the identity of a Chars, which `node` keeps alive
    words = []
    for option in node.options:
        word = []
        for item in option.items if isinstance(option, Sequence) else (option,):
            class_ = classes.get(id(item))
            if class_ is None:
                found = members[item.chars] if isinstance(item, Chars) else ()
                if len(found) != 1:
                    return None
                (class_,) = found
                classes[id(item)] = class_
            word.append(class_)
        words.append(word)
    return words


def words_dfa(words: list[list[int]], classes: int, budget: Budget) -> Dfa:
    """Raises TooLarge."""
    trie: list[dict[int, int]] = [{}]
    ends = set()
    for word in words:
        at = 0
        for class_ in word:
            after = trie[at].get(class_)
            if after is None:
                after = trie[at][class_] = len(trie)
                trie.append({})
            at = after
        ends.add(at)
        budget.spend(len(word))
    # Children come after their parents, so from the back every child is settled before its parent.
    settled = [0] * len(trie)
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    for at in range(len(trie) - 1, -1, -1):
        row = trie[at]
        moves = [(class_, settled[row[class_]]) for class_ in (row if len(row) < 2 else sorted(row))]
        settled[at] = known.setdefault((at in ends, tuple(moves)), len(known) + 1)
    budget.check_states(len(known))
    if (len(known) + 1) * classes > MAX_CELLS:
        raise budget.too_large(f"has {len(known):,} states over {classes:,} kinds of characters")
    delta = np.zeros((len(known) + 1, classes), np.int32)
    finals = np.zeros(len(known) + 1, np.bool_)
    cells = [(state, class_, target) for (_, moves), state in known.items() for class_, target in moves]
    states, inputs, targets = np.array(cells, np.int32).T if cells else np.zeros((3, 0), np.int32)
    delta[states, inputs] = targets
    finals[[state for (final, _), state in known.items() if final]] = True
    assert not delta[:, DEAD_CLASS].any()
    return Dfa(delta, finals, settled[0])
