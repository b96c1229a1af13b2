"""All workloads by name, in the paper's order as far as it has one."""

from __future__ import annotations

from benchmarks.paper.agents import AGENTS
from benchmarks.paper.chats import CHATS
from benchmarks.paper.few_shot import FEW_SHOT
from benchmarks.paper.thoughts import THOUGHTS
from benchmarks.paper.workload import Workload

WORKLOADS: dict[str, Workload] = {each.name: each for each in (*FEW_SHOT, *AGENTS[:2], *THOUGHTS, *CHATS, *AGENTS[2:])}
