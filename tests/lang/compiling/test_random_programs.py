"""Random programs: the text is what a plain string would have become, and waiting in between changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from lang_helpers import until

import palmette as sgl
from palmette import function, gen, select

Step = tuple[object, ...]

words = st.text("abé ", max_size=5)
leaf = st.one_of(
    st.tuples(st.just("text"), words),
    st.tuples(st.just("gen"), st.sampled_from("xyz")),
    st.tuples(st.just("select"), st.sampled_from("xyz"), st.lists(st.text("no", min_size=1, max_size=3), min_size=1)),
    st.tuples(st.just("turn"), st.sampled_from(["user", "assistant"]), words),
    st.tuples(st.just("wait"), st.sampled_from(["sync", "text", "read", "messages"])),
)
steps = st.recursive(
    st.lists(leaf, max_size=5),
    lambda inner: st.lists(
        st.one_of(leaf, st.tuples(st.just("fork"), st.sampled_from(["gather_variable", "concate_and_append"]),
                                  st.lists(inner, min_size=1, max_size=3))),
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip


def answer(prompt: str) -> str:
    return f"[{len(prompt.encode())}]"


def expected(program: Sequence[Step], text: str, variables: dict[str, object]) -> str:
    """The reference: strings and dictionaries only."""
    for step in program:
        match step:
            case ("text", str(word)):
                text += word
            case ("gen", str(name)):
                variables[name] = answer(text)
                text += answer(text)
            case ("select", str(name), [str(first), *_]):
                variables[name] = first
                text += first
            case ("turn", str(role), str(word)):
                text += f"<{role}>{word}</{role}>"
            case ("fork", str(mode), list(branches)):
                inner = [dict(variables) for _ in branches]
                texts = [expected(branch, text, own) for branch, own in zip(branches, inner, strict=True)]
                if mode == "concate_and_append":
                    text = text + "".join(whole[len(text) :] for whole in texts)
                else:
                    for name in sorted({name for own in inner for name in own} - set(variables)):
                        variables[name] = [own[name] for own in inner if name in own]
    return text


def run(s, program: Sequence[Step], *, waits: bool) -> None:
    for step in program:
        match step:
            case ("text", str(word)):
                s += word
            case ("gen", str(name)):
                s += gen(name)
            case ("select", str(name), list(choices)):
                s += select(name, choices)
            case ("turn", str(role), str(word)):
                s += getattr(sgl, role)(word)
            case ("wait", str(how)) if waits:
                if how == "read" and s.variables():
                    s[s.variables()[0]]
                elif how != "read":
                    getattr(s, how)()
            case ("fork", str(mode), list(branches)):
                forks = s.fork(len(branches))
                for fork, branch in zip(forks, branches, strict=True):
                    run(fork, branch, waits=waits)
                forks.join(mode)


@settings(max_examples=60)
@given(steps)
def test_a_program_writes_what_a_string_would_hold(program: Sequence[Step]) -> None:
    variables: dict[str, object] = {}
    text = expected(program, "", variables)
    for waits in (False, True):
        scripted = sgl.ScriptedBackend(answer)
        state = function(lambda s, waits=waits: run(s, program, waits=waits)).run(backend=scripted)
        assert state.text() == text
        assert {name: state[name] for name in state.variables()} == variables
        assert "".join(state.text_iter()) == text
    until(lambda: scripted.open_branches == 0)


@settings(max_examples=40)
@given(steps, st.integers(0, 30))
def test_a_failure_anywhere_reaches_every_reader(program: Sequence[Step], fails_at: int) -> None:
    """Nothing hangs, branches are released, and what comes back is a value or the failure."""
    calls = 0

    def sometimes(prompt: str) -> str:
        nonlocal calls
        calls += 1
        if calls - 1 == fails_at:
            raise RuntimeError("fails here")
        return answer(prompt)

    scripted = sgl.ScriptedBackend(sometimes)
    [state] = function(lambda s: run(s, program, waits=True)).run_batch([{}], backend=scripted)
    failed = state.error()
    for name in state.variables():
        try:
            state[name]
        except sgl.ProgramError as error:
            assert "fails here" in str(error)  # noqa: PT017
    if failed is not None:
        assert "fails here" in str(failed)
    until(lambda: scripted.open_branches == 0)
