"""A society in miniature: agents who share a world. In each round all act at once, and the world takes note.

Every agent's prompt begins with the whole world so far, which is computed once a round for all of them.

    palmette run examples/society.py
"""

from __future__ import annotations

from typing import Literal

import palmette as sgl

WORLD = """The village of Brook lies by a river. It has a mill, a market and one small inn.
It is autumn. The harvest is in, and the old bridge is weak.
"""

AGENTS = {
    "Nora": "a miller who plans ahead",
    "Tom": "an innkeeper who loves company",
    "Ida": "a carpenter who fixes things",
}

Act = Literal["repair", "trade", "rest", "talk"]


@sgl.function
def society(s, agents, rounds=2):
    s += WORLD
    s["history"] = history = []
    for number in range(1, rounds + 1):
        s += f"\nDay {number}.\n"
        forks = s.fork(len(agents))
        for fork, (name, nature) in zip(forks, agents.items(), strict=True):
            fork += f"{name}, {nature}, decides to "
            fork += sgl.gen(f"act{number}", type=Act) + f'. {name} says: "'
            fork += sgl.gen(f"words{number}", max_tokens=24, stop=['"', "\n"])
        forks.join()
        for name, act, said in zip(agents, s[f"act{number}"], s[f"words{number}"], strict=True):
            history.append((number, name, act, said.strip()))
            s += f'{name} decided to {act} and said: "{said.strip()}"\n'
    s += "\nIn the end, the village was " + sgl.select("mood", ["happy", "worried", "divided"]) + "."


if __name__ == "__main__":
    state = society.run(AGENTS, temperature=0.8, seed=4)
    for day, name, act, said in state["history"]:
        print(f"day {day}  {name:5} {act:7} “{said}”")
    usage = state.usage()
    print(
        f"\nThe village was {state['mood']}. {usage.cached_tokens} of {usage.prompt_tokens} prompt tokens were shared."
    )
