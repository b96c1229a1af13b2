"""An agent in the ReAct form: thoughts, searches in a small corpus, observations, an answer.

The model decides after each thought whether to act or to answer; what it may write as an action is held to the tools.

    palmette run examples/react_corpus.py
"""

from __future__ import annotations

import re

import palmette as sgl

CORPUS = {
    "Skerry Point": "Skerry Point is a lighthouse on the island of Fara. It was built in 1874 by Ada Thorne.",
    "Fara": "Fara is an island in the North Sea. 212 people live there. Its only town is Port Ann.",
    "Ada Thorne": "Ada Thorne was an engineer. She was born in Bergen in 1831 and built four lighthouses.",
    "Port Ann": "Port Ann has a harbour, a school and a bakery. Boats to Skerry Point leave from there at nine.",
}

QUESTIONS = ["Who built the lighthouse Skerry Point?", "How many people live on the island of Fara?"]

EXAMPLE = """
Question: Where was Ada Thorne born?
Thought: I search for Ada Thorne.
Action: {"name": "search", "arguments": {"query": "Ada Thorne"}}
Observation: Ada Thorne: Ada Thorne was an engineer. She was born in Bergen in 1831 and built four lighthouses.
Thought: The text says that she was born in Bergen.
Answer: Bergen
"""


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]{3,}", text.lower()))


@sgl.tool
def search(query: str) -> str:
    """Finds the best article about something.

    Args:
        query: what to look for, in a few words
    """
    wanted = words(query)
    scores = {title: 3 * len(wanted & words(title)) + len(wanted & words(text)) for title, text in CORPUS.items()}
    best = max(scores, key=lambda title: scores[title])
    return f"{best}: {CORPUS[best]}" if scores[best] else "Nothing was found; try other words."


researcher = sgl.agent(
    [search],
    mode="react",
    instructions="Find the answer in the articles.\n" + EXAMPLE,
    steps=3,
    least_calls=1,
    step_tokens=48,
    answer_tokens=24,
    thought_tokens=32,
)


if __name__ == "__main__":
    for result in researcher.run_batch(QUESTIONS, temperature=0.0):
        for step in result.steps:
            print(f"  {step.thought}\n  {', '.join(map(str, step.calls))} → {step.results[0].text}")
        print(f"→ {result.answer} ({result.ended})\n")
