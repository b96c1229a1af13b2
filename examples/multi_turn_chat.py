"""A chat of several turns. Each turn computes only what is new; all that was said before is in the tree.

palmette run examples/multi_turn_chat.py
"""

from __future__ import annotations

import palmette as sgl

TURNS = [
    "What does a bee do all day?",
    "Why do flowers need bees?",
    "What is honey made of?",
    "How can I help bees in my garden?",
    "Thank you. Give me one last tip.",
]


@sgl.function
def chat(s, turns):
    s += sgl.system("You are a helpful guide to nature. Keep answers short.")
    for number, turn in enumerate(turns):
        s += sgl.user(turn)
        s += sgl.assistant(sgl.gen(f"reply{number}", max_tokens=48))


if __name__ == "__main__":
    state = chat.run(TURNS, temperature=0.0, stream=True)
    for number, turn in enumerate(TURNS):
        print(f"\n> {turn}")
        for piece in state.text_iter(f"reply{number}"):
            print(piece, end="", flush=True)
    usage = state.usage()
    print(f"\n\n{usage.prompt_tokens} prompt tokens, {usage.cached_tokens} of them reused from the turns before.")
