"""Tree of thought: three first steps, three second steps behind each, and a vote among the nine answers.

Each fork starts from what its parent has computed; nothing is sent or computed twice.

    palmette run examples/tree_of_thought.py
"""

from __future__ import annotations

import re
from collections import Counter

import palmette as sgl

WORKED = """Each question is answered in two steps.

Question: Mia has 3 boxes with 4 pencils in each. She gives 5 pencils away. How many pencils are left?
Step 1: 3 boxes with 4 pencils are 3 * 4 = 12 pencils.
Step 2: 12 pencils less 5 pencils are 12 - 5 = 7 pencils.
Answer: 7

Question: A baker bakes 30 rolls. He sells 12 and then bakes 6 more. How many rolls are there now?
Step 1: 30 rolls less 12 rolls are 30 - 12 = 18 rolls.
Step 2: 18 rolls and 6 rolls are 18 + 6 = 24 rolls.
Answer: 24
"""

QUESTIONS = [
    ("A jar holds 50 beads. Tim takes 20 beads and Eva takes 10. How many beads are left?", 20),
    ("Leo has 2 boxes with 6 toy cars in each. He gets 4 more toy cars. How many toy cars does he have?", 16),
    (
        "There are 8 birds on a roof. 3 birds fly away and then 5 birds come. How many birds are there now?",
        10,
    ),
]
BRANCHES = 3


def vote(answers: list[str]) -> int | None:
    """The number that most of the answers end with."""
    numbers = [int(found[-1]) for answer in answers if (found := re.findall(r"\d+", answer))]
    return Counter(numbers).most_common(1)[0][0] if numbers else None


@sgl.function
def solve(s, question, branches=BRANCHES):
    s += WORKED + f"\nQuestion: {question}\nStep 1:"
    firsts = s.fork(branches)
    firsts += sgl.gen("first", max_tokens=32, stop="\n")
    seconds = []
    for first in firsts:
        first += "\nStep 2:"
        forks = first.fork(branches)
        forks += sgl.gen("second", max_tokens=32, stop="\n") + "\nAnswer:"
        forks += sgl.gen("answer", max_tokens=6, stop="\n", temperature=0.0)
        seconds.append(forks)
    for forks in seconds:
        forks.join()  # each first step gets its three answers as a list
    firsts.join()  # and the question gets a list of those lists
    s["vote"] = vote([answer for answers in s["answer"] for answer in answers])


if __name__ == "__main__":
    states = solve.run_batch([{"question": question} for question, _ in QUESTIONS], temperature=0.3, seed=1)
    for state, (question, expected) in zip(states, QUESTIONS, strict=True):
        print(question)
        for first, answers in zip(state["first"], state["answer"], strict=True):
            print(f"  {first.strip()}\n      answers: {' | '.join(answer.strip() for answer in answers)}")
        print(f"  vote: {state['vote']} (right: {expected})\n")
