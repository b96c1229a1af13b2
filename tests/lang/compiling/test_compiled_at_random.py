"""Random programs, compiled on a real engine with the tiny model: the same tokens as interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import palmette as sgl
from palmette import TraceError, function, gen, repeat, select, when

Step = tuple[object, ...]
NAMES = "xyz"
words = st.text("ab ", min_size=1, max_size=4)
leaf = st.one_of(
    st.tuples(st.just("text"), words),
    st.tuples(st.just("gen"), st.sampled_from(NAMES), st.integers(1, 4)),
    st.tuples(st.just("select"), st.sampled_from(NAMES), st.lists(st.sampled_from(["no", "yes", " a"]), min_size=1,
                                                                  max_size=3, unique=True)),
    st.tuples(st.just("int"), st.just("n")),
    st.tuples(st.just("insert"), st.sampled_from(NAMES)),
    st.tuples(st.just("format"), st.sampled_from([*NAMES, "n"])),
    st.tuples(st.just("turn"), st.sampled_from(["user", "assistant"]), words),
    st.tuples(st.just("text so far")),
)  # fmt: skip
steps = st.recursive(
    st.lists(leaf, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            leaf,
            st.tuples(st.just("fork"), st.sampled_from(["gather_variable", "concate_and_append"]),
                      st.lists(inner, min_size=1, max_size=3)),
            st.tuples(st.just("when"), st.sampled_from(NAMES), st.sampled_from(["no", "yes"]), inner, inner),
            st.tuples(st.just("repeat"), st.sampled_from(NAMES), st.integers(1, 3), inner),
            st.tuples(st.just("scope"), st.sampled_from("vw"), inner),
        ),
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip


def write(s: Any, program: Sequence[Step], depth: int = 0) -> None:
    for step in program:
        match step:
            case ("text", str(word)):
                s += word
            case ("gen", str(name), int(tokens)):
                s += gen(name, max_tokens=tokens)
            case ("select", str(name), list(choices)):
                s += select(name, choices)
            case ("int", str(name)):
                s += gen(name, type=int, max_tokens=4)
            case ("insert", str(name)) if name in s and not isinstance(s[name], list):
                s += s[name]
            case ("format", str(name)) if name in s and not isinstance(s[name], list):
                s += f"<{s[name]}>"
            case ("turn", str(role), str(word)) if depth == 0:
                s += getattr(sgl, role)(word)
            case ("text so far",):
                s.set_var("so_far", s.text())
                s += "\n" + s["so_far"]
            case ("fork", str(mode), list(branches)):
                forks = s.fork(len(branches))
                for fork, branch in zip(forks, branches, strict=True):
                    write(fork, branch, depth)
                forks.join(mode)
            case ("when", str(name), str(word), list(then), list(otherwise)) if name in s:
                if not isinstance(s[name], list):
                    s += when(
                        s[name] == word,
                        lambda t, body=then: write(t, body, depth + 1),
                        lambda t, body=otherwise: write(t, body, depth + 1),
                    )
            case ("repeat", str(name), int(most), list(body)) if name in s:
                if not isinstance(s[name], list):
                    s += repeat(
                        lambda t, body=body: write(t, body, depth + 1),
                        until=lambda t, name=name: t[name] == "no" if not isinstance(t[name], list) else True,
                        at_most=most,
                    )
            case ("scope", str(name), list(inner)):
                with s.var_scope(name):
                    write(s, inner, depth)


program_seed = st.integers(0, 2**32)


@settings(max_examples=60)
@given(steps, program_seed)
def test_random_programs_give_the_same_tokens(engine, program: Sequence[Step], seed: int) -> None:
    @function
    def written(s):
        s += "Go:" + gen("x", max_tokens=2) + select("y", ["no", "yes"])
        write(s, program)

    options = {"backend": engine, "seed": seed, "temperature": 1.5}
    plain = written.run(**options)
    try:
        compiled = written.compile().run(**options)
    except TraceError as error:
        refused = str(error)
        compiled = None
    if compiled is None:
        assert "different things" in refused
        return
    failed = plain.error()
    if failed is not None:
        error = compiled.error()
        assert error is not None
        assert type(error.cause) is type(failed.cause)
        return
    assert compiled.text() == plain.text()
    assert compiled.messages() == plain.messages()
    for name in plain.variables():
        assert compiled[name] == plain[name], name
