"""Programs that branch: tree of thought, skeleton of thought, and a judge that branches, solves and merges."""

from __future__ import annotations

import asyncio
from typing import Any

import palmette as pt
from benchmarks.paper.material import Draw
from benchmarks.paper.workload import Item, Plain, Workload, written

PLANS, SOLUTIONS = 3, 3
PLAN, SOLUTION, CHECK, ANSWER = 32, 40, 16, 16


def tree_items(draw: Draw) -> list[Item]:
    """Problems of GSM8K behind two solved ones."""
    shots = "".join(
        f"Question: {each.question}\nPlan: Find each number in turn.\nSolution: {each.solution}\n"
        f"Answer: {each.number}\n\n"
        for each in draw.problems(2)
    )
    head = f"{draw.mark} Plan how each question can be solved, solve it, and check the solution.\n\n{shots}Question: "
    return [{"head": head, "question": each.question} for each in draw.problems(draw.count(6))]


@pt.function
def tree_of_thought(s: Any, head: str, question: str) -> None:
    """Three plans, three solutions of each, a look at each solution, an answer behind the first of each plan."""
    s += head + question
    plans = s.fork(PLANS)
    solved = []
    for number, plan in enumerate(plans, 1):
        plan += f"\nPlan {number}:" + written("plan", PLAN)
        solutions = plan.fork(SOLUTIONS)
        for each, solution in enumerate(solutions, 1):
            solution += f"\nSolution {each}:" + written("solution", SOLUTION)
            solution += "\nCheck:" + written("check", CHECK)
        solved.append(solutions)
    for solutions in solved:
        solutions.join()
    plans.join()
    s += "".join(f"\nSolution {number}:{each[0]}" for number, each in enumerate(s["solution"], 1))
    s += "\nThe answer:" + written("answer", ANSWER)


async def plain_tree_of_thought(client: Plain, head: str, question: str) -> dict[str, Any]:
    async def solve(before: str, number: int) -> tuple[str, str]:
        opened = f"{before}\nSolution {number}:"
        solution = await client.complete(opened, SOLUTION)
        return solution, await client.complete(f"{opened}{solution}\nCheck:", CHECK)

    async def follow(number: int) -> tuple[str, list[tuple[str, str]]]:
        opened = f"{head}{question}\nPlan {number}:"
        plan = await client.complete(opened, PLAN)
        return plan, await asyncio.gather(*(solve(opened + plan, each) for each in range(1, SOLUTIONS + 1)))

    plans = await asyncio.gather(*(follow(number) for number in range(1, PLANS + 1)))
    solutions = [[solution for solution, _ in solved] for _, solved in plans]
    best = "".join(f"\nSolution {number}:{each[0]}" for number, each in enumerate(solutions, 1))
    return {
        "plan": [plan for plan, _ in plans],
        "solution": solutions,
        "check": [[check for _, check in solved] for _, solved in plans],
        "answer": await client.complete(f"{head}{question}{best}\nThe answer:", ANSWER),
    }


POINTS = 5
SKELETON, POINT, CLOSING = 48, 48, 16


def skeleton_items(draw: Draw) -> list[Item]:
    """Questions of MT-bench."""
    head = (
        f"{draw.mark} A skeleton of an answer is a numbered list of {POINTS} points, each of three to five words. "
        "Then each point is written out in two sentences, without going into the other points.\n\n"
        "Question: How does one keep a house cool in summer?\n"
        "Skeleton: 1. Close shutters by day. 2. Open windows at night. 3. Plant trees outside. 4. Cook outdoors. "
        "5. Hang wet sheets.\n"
        "Point 2 in full: At night the air outside is cooler than the walls. Windows on two sides let it through.\n\n"
        "Question: "
    )
    return [{"head": head, "question": " ".join(draw.dialogue()[0].split()[:60])} for _ in range(draw.count(10))]


@pt.function
def skeleton_of_thought(s: Any, head: str, question: str) -> None:
    """A skeleton, its points at once, and a closing sentence behind all of them."""
    s += head + question + "\nSkeleton: 1." + written("skeleton", SKELETON)
    points = s.fork(POINTS)
    for number, point in enumerate(points, 1):
        point += f"\nPoint {number} in full:" + written("point", POINT)
    points.join()
    s += "".join(f"\nPoint {number} in full:{text}" for number, text in enumerate(s["point"], 1))
    s += "\nIn short:" + written("closing", CLOSING)


async def plain_skeleton_of_thought(client: Plain, head: str, question: str) -> dict[str, Any]:
    opened = f"{head}{question}\nSkeleton: 1."
    skeleton = await client.complete(opened, SKELETON)
    before = opened + skeleton
    points = await asyncio.gather(
        *(client.complete(f"{before}\nPoint {number} in full:", POINT) for number in range(1, POINTS + 1))
    )
    whole = before + "".join(f"\nPoint {number} in full:{text}" for number, text in enumerate(points, 1))
    return {"skeleton": skeleton, "point": points, "closing": await client.complete(f"{whole}\nIn short:", CLOSING)}


DIMENSIONS = {
    "Correctness": "Are the numbers and the steps right?",
    "Clarity": "Is each step easy to follow?",
    "Completeness": "Does it answer the whole question?",
    "Brevity": "Does it say nothing that isn't needed?",
    "Tone": "Would a pupil like to read it?",
}
GRADES = (" A", " B", " C", " D")
NOTE, SUMMARY = 40, 40


def judge_items(draw: Draw) -> list[Item]:
    """A problem and two solutions of it, of which one is another problem's."""
    rules = (
        f"{draw.mark} A teacher compares two solutions of a problem. The teacher looks at one dimension after the "
        "other, writes two sentences about each, sums them up, and gives a grade from A (the first solution is much "
        "better) to D (the second is much better).\n\nProblem: "
    )
    items: list[Item] = []
    for problem, other in zip(draw.problems(draw.count(10)), draw.problems(draw.count(10)), strict=True):
        first, second = draw.shuffled([problem.solution, f"{other.solution} So it is {problem.number}."])
        case = f"{problem.question}\nFirst solution: {first}\nSecond solution: {second}"
        items.append({"rules": rules, "case": case})
    return items


@pt.function
def judge(s: Any, rules: str, case: str) -> None:
    """Branch: a dimension each; solve: a note on it; merge: a summary of all notes, and a grade."""
    s += rules + case
    branches = s.fork(len(DIMENSIONS))
    for branch, (dimension, asked) in zip(branches, DIMENSIONS.items(), strict=True):
        branch += f"\n{dimension}: {asked}\nNote:" + written("note", NOTE)
    branches.join()
    s += "".join(f"\n{dimension}:{note}" for dimension, note in zip(DIMENSIONS, s["note"], strict=True))
    s += "\nIn all:" + written("summary", SUMMARY)
    s += "\nGrade:" + pt.select("grade", GRADES)


async def plain_judge(client: Plain, rules: str, case: str) -> dict[str, Any]:
    notes = await asyncio.gather(
        *(
            client.complete(f"{rules}{case}\n{dimension}: {asked}\nNote:", NOTE)
            for dimension, asked in DIMENSIONS.items()
        )
    )
    told = "".join(f"\n{dimension}:{note}" for dimension, note in zip(DIMENSIONS, notes, strict=True))
    opened = f"{rules}{case}{told}\nIn all:"
    summary = await client.complete(opened, SUMMARY)
    grade = await client.choose(f"{opened}{summary}\nGrade:", GRADES)
    return {"note": notes, "summary": summary, "grade": grade}


THOUGHTS = (
    Workload(
        "tree-of-thought", "tree of thought on GSM8K: 3 plans, 3 solutions each", tree_items, tree_of_thought,
        plain_tree_of_thought, ("plan", "solution", "check", "answer"),
    ),
    Workload(
        "skeleton-of-thought", "skeleton of thought: 5 points at once", skeleton_items, skeleton_of_thought,
        plain_skeleton_of_thought, ("skeleton", "point", "closing"),
    ),
    Workload(
        "judge", "LLM judge: branch, solve, merge over 5 dimensions", judge_items, judge, plain_judge,
        ("note", "summary", "grade"),
    ),
)  # fmt: skip
