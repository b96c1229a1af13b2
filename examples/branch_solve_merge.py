"""Branch, solve, merge: a judge looks at two answers by one criterion a branch, and merges the marks into a verdict.

palmette run examples/branch_solve_merge.py
"""

from __future__ import annotations

from typing import Literal

import palmette as sgl

CRITERIA = {
    "correct": "Are the facts right?",
    "clear": "Is it easy to understand?",
    "complete": "Does it answer the whole question?",
}

Mark = Literal[1, 2, 3, 4, 5]

CASES = [
    {
        "question": "Why is the sky blue, and why is it red in the evening?",
        "first": "Air scatters blue light more than red. In the evening the light's way through the air is longer, "
        "so only the red is left.",
        "second": "The sky is blue because it reflects the sea.",
    },
    {
        "question": "How many minutes are two hours?",
        "first": "Some.",
        "second": "Two hours are 120 minutes, since an hour has 60.",
    },
]


@sgl.function
def judge(s, question, first, second):
    s += sgl.system("You compare two answers to a question.")
    s += sgl.user(f"Question: {question}\nAnswer A: {first}\nAnswer B: {second}")

    branches = s.fork(len(CRITERIA))
    for branch, (name, question_) in zip(branches, CRITERIA.items(), strict=True):
        branch += sgl.user(f"{question_} Think in one sentence, then mark both from 1 to 5.")
        with branch.assistant():
            branch += f"How {name} they are: " + sgl.gen("thought", max_tokens=30, stop="\n")
            branch += "\nMark of A: " + sgl.gen("mark_a", type=Mark, temperature=0)
            branch += "\nMark of B: " + sgl.gen("mark_b", type=Mark, temperature=0)
    branches.join()

    marks = zip(CRITERIA, s["mark_a"], s["mark_b"], strict=True)
    s += sgl.user("The marks are:\n" + "".join(f"- {name}: A {a}, B {b}\n" for name, a, b in marks))
    s += sgl.assistant("The better answer is " + sgl.select("winner", ["A", "B"]) + ".")
    s["totals"] = {"A": sum(s["mark_a"]), "B": sum(s["mark_b"])}


if __name__ == "__main__":
    for case, state in zip(CASES, judge.run_batch(CASES, temperature=0.2, seed=2), strict=True):
        print(case["question"])
        print(f"  marks of A {state['mark_a']}, of B {state['mark_b']}; the winner: {state['winner']}")
