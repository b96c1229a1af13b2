"""Skeleton of thought: first the points of an answer, then all points are written out side by side.

The long part is generated in forks at the same time, behind one computed beginning.

    palmette run examples/skeleton_of_thought.py
"""

from __future__ import annotations

import palmette as sgl

QUESTIONS = [
    "How can I sleep better?",
    "What should I take on a day in the mountains?",
]

EXAMPLE = """Question: How do I keep a plant alive?
Points:
1. Water it twice a week
2. Give it enough light
3. Change its soil in spring
Point 2 in one sentence: Put the plant near a window, but not where the sun burns its leaves.
"""


@sgl.function
def answer(s, question, points=3):
    s += EXAMPLE + f"\nQuestion: {question}\nPoints:\n"
    for number in range(1, points + 1):
        s += f"{number}." + sgl.gen(f"point{number}", max_tokens=12, stop="\n") + "\n"

    forks = s.fork(points)
    forks += lambda index: f"Point {index + 1} in one sentence:"
    forks += sgl.gen("sentence", max_tokens=40, stop="\n")
    forks.join()

    s["answer"] = "\n".join(
        f"{number}. {s[f'point{number}'].strip()}: {sentence.strip()}"
        for number, sentence in enumerate(s["sentence"], 1)
    )


if __name__ == "__main__":
    states = answer.run_batch([{"question": question} for question in QUESTIONS], temperature=0.2, seed=1)
    for question, state in zip(QUESTIONS, states, strict=True):
        print(f"{question}\n{state['answer']}\n")
