"""Tracing: graphs of programs, what can't be traced and where it says so, and control nodes run as they are."""

from __future__ import annotations

from typing import Literal

import pytest
from lang_helpers import line_of

import palmette as sgl
from palmette import TraceError, assistant, function, gen, match, repeat, select, system, user, when


@function
def thinking(s, question, width=2):
    s += system("You think.") + user(question)
    forks = s.fork(width)
    for fork in forks:
        fork += assistant(gen("plan", max_tokens=8))
    forks.join()
    s += assistant("Plans: " + s["plan"][0] + f" and {s['plan'][1]}." + select("best", ["0", "1"]))
    return s["best"]


def test_a_graph_shows_what_waits_for_what() -> None:
    graph = thinking.trace("why?")
    kinds = graph.kinds()
    assert kinds["gen"] == 2
    assert kinds["select"] == 1
    assert kinds["fork"] == 1
    assert kinds["end"] == 3
    (best,) = graph.named("best")
    plans = graph.named("plan")
    inserted = [node for node in graph.nodes if node.reads == ("plan",)]
    assert [plan.id for plan in plans] == [node.after[-1] for node in inserted]
    assert best.kind == "select"
    assert best.track == 0
    assert len(thinking.trace("why?", width=3).plan.tracks) == 4
    assert "gen plan, at most 8 tokens" in str(graph)


def test_graphs_are_drawn() -> None:
    graph = thinking.trace('a "question" <b>')
    assert graph.svg().startswith("<svg")
    assert graph.svg().count("<rect") == len(graph.nodes)
    assert "<b>" not in graph.svg()
    assert "<b>" not in graph.mermaid()
    assert graph.mermaid().count("-->") == sum(len(node.after) for node in graph.nodes)


def test_every_node_waits_for_earlier_ones_only() -> None:
    graph = thinking.trace("why?")
    assert [node.id for node in graph._in_order()].__len__() == len(graph.nodes)
    rows = graph._rows()
    assert all(rows[other] < rows[node.id] for node in graph.nodes for other in node.after)


def branches(s):
    s += gen("x")
    if s["x"] == "a":  # here
        s += "b"


def truth(s):
    s += gen("x")
    s += "yes" if s["x"] else "no"  # here


def number(s):
    s += gen("x")
    s += "." * int(s["x"])  # here


def iterates(s):
    s += gen("x")
    for letter in s["x"]:  # here
        s += letter


def length(s):
    s += gen("x")
    s += str(len(s["x"]))  # here


def key(s):
    s += gen("x")
    s += {"a": "b"}[s["x"]]  # here


def searches(s):
    s += gen("x")
    s += "yes" if "a" in s["x"] else "no"  # here


def looks_into_a_string(s):
    s += gen("x")
    said = f"it says {s['x']}"  # here
    s += "yes" if "a" in said else "no"


def changes_a_string(s):
    s += gen("x")
    said = f"it says {s['x']}"  # here
    s += said.upper()


def strips_a_string(s):
    s += gen("x")
    said = f"it says {s['x']}"  # here
    s += said.strip()


def joins(s):
    s += gen("x")
    s += ", ".join([s["x"]])  # here


def joins_conditions(s):
    s += gen("x")
    s += "a" if s["x"] == "a" and s["x"] == "b" else "b"  # here


def asks_for_usage(s):
    s += gen("x")
    s += str(s.usage().calls)  # here


def asks_for_messages(s):
    s += user(gen("x"))
    s += str(s.messages())  # here


def splits(s):
    s += gen("x")
    s += s["x"].split()[0]  # here


def chooses_of_generated(s):
    s += gen("x")
    s += select("y", [s["x"], "b"])  # here


def writes_elsewhere(s):
    other = s.copy()
    s += gen("x")

    def body(t):
        other.__iadd__("no")  # here

    s += when(s["x"] == "a", body)


@pytest.mark.parametrize(
    "body",
    [branches, truth, number, iterates, length, key, searches, looks_into_a_string, changes_a_string, strips_a_string,
     joins, joins_conditions, asks_for_usage, asks_for_messages, splits, chooses_of_generated, writes_elsewhere],
)  # fmt: skip
def test_what_cant_be_traced_is_named_by_its_line(body) -> None:
    with pytest.raises(TraceError) as failure:
        function(body).trace()
    assert failure.value.where.line == line_of(body, "here")
    assert "test_tracing.py" in str(failure.value)


def test_a_program_that_cant_be_traced_still_runs() -> None:
    state = function(branches).run()
    assert state["x"] == "[0]"
    assert state.text() == "[0]"


def test_the_programs_own_errors_stay_its_own() -> None:
    @function
    def wrong(s):
        s += "a"
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        wrong.trace()


def test_typed_values_are_compared_and_formatted() -> None:
    @function
    def typed(s):
        s += "n: " + gen("n", type=int)
        s += gen("kind", type=Literal["cat", "dog"])
        s += f"{s['n']} {s['kind']}"
        s += when((s["n"] > 3) & (s["kind"] == "cat"), "big cat")

    assert "s['n'] > 3 and s['kind'].strip() == 'cat'" in str(typed.trace())


def test_a_number_is_not_appended_as_it_is() -> None:
    @function
    def typed(s):
        s += gen("n", type=int)
        s += s["n"]

    with pytest.raises(TraceError, match="is no text"):
        typed.trace()


def test_coroutine_programs_are_traced() -> None:
    @function
    async def asking(s):
        s += gen("x")
        s += await s.aget("x")

    assert asking.trace().kinds()["text"] == 1


# Control nodes as they are


def test_when_runs_one_branch() -> None:
    @function
    def deciding(s, word):
        s += gen("x")
        s += when(s["x"] == word, " yes", lambda t: t.__iadd__(gen("y")))
        s += "."

    assert deciding("[0]").text() == "[0] yes."
    assert deciding("no").text() == "[0][3]."


def test_match_takes_the_case_that_is_equal() -> None:
    @function
    def deciding(s):
        s += select("x", ["a", "b"])
        s += match("x", {"b": "no", "a": gen("y")}, "neither")

    assert deciding().text() == "a[1]"


def test_repeat_ends_by_its_condition_or_its_bound() -> None:
    @function
    def counting(s, last, most):
        s += repeat(gen("x"), until=lambda t: t["x"] == last, at_most=most)

    assert counting("[3]", 5).text() == "[0][3]"
    assert counting("never", 3).text() == "[0][3][6]"
    with pytest.raises(sgl.PalmetteError, match="at_most=0"):
        counting("never", 0)


@pytest.mark.parametrize(
    "make",
    [lambda: when(True, 3), lambda: match("", {"a": "b"}), lambda: match("x", {}), lambda: repeat(None, at_most=2),
     lambda: repeat("a", until=True, at_most=2)],
)  # fmt: skip
def test_wrong_control_nodes_are_refused(make) -> None:
    with pytest.raises(sgl.PalmetteError):
        make()


def test_branches_that_leave_different_turns_are_refused() -> None:
    @function
    def turns(s):
        s += gen("x")
        s += when(s["x"] == "a", sgl.user_begin(), "b")

    with pytest.raises(TraceError, match="leaves a turn open"):
        turns.trace()


def test_a_variable_written_as_different_things_is_named_where_it_is_read() -> None:
    @function
    def mixed(s):
        s += gen("x")
        s += when(s["x"] == "a", gen("y", type=int), gen("y"))
        s += f"{s['y']}"

    with pytest.raises(TraceError, match="different things"):
        mixed.trace()
