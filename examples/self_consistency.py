"""Self-consistency: the same question several times, and the answer that most of the ways lead to.

palmette run examples/self_consistency.py
"""

from __future__ import annotations

from collections import Counter

import palmette as sgl

QUESTIONS = [
    ("Ana has 3 bags with 4 apples in each. She eats 2 apples. How many apples are left?", 10),
    ("A bus has 20 seats. 12 are taken, then 3 people leave. How many seats are free?", 11),
]

EXAMPLE = """Question: Ben has 2 boxes with 5 pens in each. He loses 1 pen. How many pens are left?
Reasoning: 2 boxes with 5 pens are 10 pens. 10 - 1 = 9.
Answer: 9
"""


@sgl.function
def consistent(s, question, ways=5):
    s += EXAMPLE + f"\nQuestion: {question}\nReasoning:"
    forks = s.fork(ways)
    forks += sgl.gen("reasoning", max_tokens=40, stop="\n", temperature=0.7)
    forks += "\nAnswer: " + sgl.gen("answer", type=int, max_tokens=6, temperature=0)
    forks.join()
    answer, votes = Counter(s["answer"]).most_common(1)[0]
    s["vote"], s["agreement"] = answer, votes / ways


if __name__ == "__main__":
    states = consistent.run_batch([{"question": question} for question, _ in QUESTIONS], seed=3)
    for (question, right), state in zip(QUESTIONS, states, strict=True):
        print(question)
        for reasoning, answer in zip(state["reasoning"], state["answer"], strict=True):
            print(f"  {answer:>4}  {reasoning.strip()}")
        print(f"  vote: {state['vote']} ({state['agreement']:.0%} agree; right: {right})\n")
