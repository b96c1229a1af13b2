"""A waiting queue on its own: what the tree would hold of each sequence is said by the test."""

from __future__ import annotations

from palmette.runtime.config import Policy
from palmette.runtime.messages.sampling import SamplingParams
from palmette.runtime.messages.tokens import pack
from palmette.runtime.scheduler.aging import Aging
from palmette.runtime.scheduler.policies import Facts, new_policy
from palmette.runtime.scheduler.queue import WaitingQueue
from palmette.runtime.scheduler.sequence import Generation, Sequence
from palmette.runtime.scheduler.stops import StopChecker
from palmette.runtime.scheduler.targets import Targets
from palmette.runtime.vocabulary import Vocabulary


def sequence(
    order: int,
    *,
    tokens: list[int] | None = None,
    length: int = 6,
    priority: int = 0,
    retractions: int = 0,
    moment: int = 0,
    arrival: float = 0.0,
    tenant: str = "",
    targets: Targets = Targets(),
    namespace: str = "",
) -> Sequence:
    packed = bytearray(pack(tokens if tokens is not None else [1] * length))
    return Sequence(
        str(order), packed, len(packed) // 4, namespace, order=order, arrival=arrival, priority=priority,
        retractions=retractions, moment=moment, tenant=tenant, targets=targets,
    )  # fmt: skip


def generating(each: Sequence, max_tokens: int, outputs: int = 0) -> Sequence:
    stops = StopChecker(Vocabulary((b"a",), {}, ()), strings=(), token_ids=(), min_tokens=0)
    each.generation = Generation(SamplingParams(), 1, 0, max_tokens, stops, (), None, outputs)
    return each


class Waiting:
    """`seconds`: of prefill a token. `now`: the clock."""

    def __init__(self, policy: Policy, *, alpha: float = 1, beta: float = 1e9, seconds: float = 0.0) -> None:
        self.matched: dict[Sequence, int] = {}
        self.evictions = 0
        self.now = 0.0
        self.running: list[Sequence] = []
        self.facts = Facts(self.peek, lambda: self.evictions, lambda: self.now, lambda n: n * seconds, self.running)
        self.going_on: set[Sequence] = set()  # those that go on with a program
        self.queue = WaitingQueue(
            lambda: new_policy(policy, self.facts), lambda: Aging(alpha, beta), self.peek, self.going_on.__contains__
        )

    def peek(self, sequence: Sequence) -> int:
        return self.matched.get(sequence, 0)

    def add(self, *sequences: Sequence) -> None:
        for each in sequences:
            self.queue.add(each)

    def ids(self) -> list[str]:
        return [each.request_id for each in self.queue.candidates()]

    def serve(self, tokens: int | None = None) -> str:
        """Admits the best; `tokens`: of its prefill, else all that are not matched."""
        best = next(self.queue.candidates())
        self.queue.admit(best, best.length - self.peek(best) if tokens is None else tokens)
        return best.request_id
