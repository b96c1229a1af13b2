"""An edit loop: a function fails its tests; forks propose edits, the tests are run, and the best edit goes on.

The edits are arithmetic by a grammar, so that running them is safe.

    palmette run examples/code_edit_loop.py
"""

from __future__ import annotations

import palmette as sgl

EXPRESSION = r"(w|h|2)( [-+*] (w|h|2)){1,3}"
TASKS = [
    ("area", "the area of a rectangle", "w + h", [((2, 3), 6), ((4, 5), 20), ((1, 7), 7)]),
    ("perimeter", "the perimeter of a rectangle", "w * h", [((2, 3), 10), ((4, 5), 18), ((1, 7), 16)]),
]
Tests = list[tuple[tuple[int, int], int]]


def failures(name: str, expression: str, tests: Tests) -> list[str]:
    """What is wrong with an expression, as its tests say."""
    said = []
    for (w, h), right in tests:
        got = eval(
            expression, {"__builtins__": {}}, {"w": w, "h": h}
        )  # the grammar lets nothing but arithmetic through
        if got != right:
            said.append(f"{name}({w}, {h}) returned {got}, expected {right}")
    return said


@sgl.function
def repair(s, name, purpose, expression, tests, rounds=3, edits=4):
    s += f"# Python. Returns {purpose}.\ndef {name}(w, h):\n    return {expression}\n"
    s["tried"] = tried = [expression]
    for number in range(rounds):
        wrong = failures(name, expression, tests)
        if not wrong:
            break
        s += "".join(f"# Wrong: {failure}\n" for failure in wrong)
        s += f"\n# Repaired: returns {purpose}.\ndef {name}(w, h):\n    return "
        forks = s.fork(edits)
        forks += sgl.gen(f"edit{number}", regex=EXPRESSION, max_tokens=16, complete=True)
        forks.join()
        tried += s[f"edit{number}"]
        expression = min(s[f"edit{number}"], key=lambda edit: len(failures(name, edit, tests)))
        s += expression + "\n"
    s["expression"], s["passes"] = expression, not failures(name, expression, tests)


if __name__ == "__main__":
    for task in TASKS:
        state = repair.run(*task, temperature=1.0, seed=7)
        print(f"{task[0]}: {' → '.join(state['tried'])}")
        print(f"  {state['expression']} {'passes' if state['passes'] else 'still fails'}\n")
