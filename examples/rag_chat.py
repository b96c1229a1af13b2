"""A chat over documents: for each question the best passages are looked up and put before it.

What was said stays in the radix tree; a turn computes its passages, its question and its answer, nothing else.

    palmette run examples/rag_chat.py
"""

from __future__ import annotations

import math
import re
from collections import Counter

import palmette as sgl

PASSAGES = [
    "The lighthouse of Skerry Point was built in 1874. Its lamp burns on rapeseed oil until 1902, then on paraffin.",
    "The keeper of Skerry Point is Mary Hale. She lives there with her brother and two goats.",
    "Boats to Skerry Point leave from Port Ann at nine in the morning, except on Sundays and in storms.",
    "The tower is 31 metres high and has 142 steps. Visitors may climb it between ten and four.",
    "Grey seals have their young on the beach of Skerry Point in November. Dogs must be on a lead then.",
    "In the great storm of 1911 the lamp room lost its glass. The keeper lit the lamp by hand all night.",
]

QUESTIONS = ["Who is the keeper?", "How high is the tower?", "When does the boat leave?"]


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


HELD = [Counter(words(passage)) for passage in PASSAGES]
RARITY = {
    word: math.log(len(HELD) / sum(word in held for held in HELD)) for held in HELD for word in held
}  # a word that every passage has tells nothing


def best(question: str, count: int = 1) -> list[str]:
    """The passages that share the rarest words with the question."""
    scores = [sum(RARITY.get(word, 0.0) for word in set(words(question)) if word in held) for held in HELD]
    order = sorted(range(len(PASSAGES)), key=lambda index: -scores[index])
    return [PASSAGES[index] for index in order[:count]]


@sgl.function
def chat(s, questions):
    s += sgl.system("Answer in one short sentence, from the passage that comes with the question.")
    for number, question in enumerate(questions):
        s[f"passages{number}"] = best(question)
        s += sgl.user("Passage: " + " ".join(s[f"passages{number}"]) + f"\nQuestion: {question}")
        s += sgl.assistant(sgl.gen(f"answer{number}", max_tokens=32, stop="\n"))


if __name__ == "__main__":
    state = chat.run(QUESTIONS, temperature=0.0, stream=True)
    for number, question in enumerate(QUESTIONS):
        print(f"\n> {question}")
        for piece in state.text_iter(f"answer{number}"):
            print(piece, end="", flush=True)
        print(f"\n  [{state[f'passages{number}'][0][:60]}…]")
