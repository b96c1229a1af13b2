"""Who gives way when pages or slots are missing, and how long nobody is admitted afterwards.

Knows the running set's pages; moves nobody itself. Called by the planner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from palmette.runtime.scheduler.sequence import Sequence

FADING = 1 / 64  # weight of the newest output length in their mean
SLACK_SHARE = 0.125  # of the pool, free or evictable, before anybody is admitted after a retraction


def protected(running: Iterable[Sequence]) -> Sequence:
    """The one that never gives way to others of its priority, so that progress is always made: of the highest
    priority the first admitted. `running` in order of admission, not empty."""
    return max(running, key=lambda sequence: sequence.priority)


def lost_work(running: Iterable[Sequence], page_size: int) -> dict[Sequence, int]:
    """Tokens that would have to be computed again if a sequence gave way: those in no page that another holds too."""
    running = list(running)
    holders = Counter(page for sequence in running for page in sequence.pages)
    lost = {}
    for sequence in running:
        kept = sum(holders[page] > 1 for page in sequence.pages)
        lost[sequence] = max(0, sequence.computed - kept * page_size)
    return lost


def growth_victim(running: Iterable[Sequence], page_size: int) -> Sequence:
    """Who gives pages to those that grow: of the lowest priority the one with the least work to lose, of several the
    one admitted last. At least two run."""
    running = list(running)
    safe = protected(running)
    lost = lost_work(running, page_size)
    return min(
        (sequence for sequence in reversed(running) if sequence is not safe),
        key=lambda sequence: (sequence.priority, lost[sequence]),
    )


def preempted(running: Iterable[Sequence], priority: int, page_size: int, *, pages: int, slot: bool) -> list[Sequence]:
    """Whom a sequence of `priority` may displace to have `pages` more pages, and a slot where `slot` says so; nobody
    where all lower ones together don't hold that. Each that goes needs no page for its growth any more."""
    running = list(running)
    lower = [sequence for sequence in reversed(running) if sequence.priority < priority]
    lost = lost_work(running, page_size)
    lower.sort(key=lambda sequence: (sequence.priority, lost[sequence]))
    holders = Counter(page for sequence in running for page in sequence.pages)
    victims: list[Sequence] = []
    for sequence in lower:
        if pages <= 0 and not (slot and not victims):
            break
        victims.append(sequence)
        holders.subtract(sequence.pages)
        pages -= 1 + sum(holders[page] == 0 for page in sequence.pages)
    return victims if pages <= 0 and (victims or not slot) else []


class Growth:
    """Pages that running sequences are expected to need still: what admission leaves free for them.

    Outputs are expected to be as long as recent ones were, and never longer than they may be.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._mean = 0.0  # output tokens of those that ended lately
        self._ended = 0

    def ended(self, outputs: int) -> None:
        self._ended += 1
        self._mean += (outputs - self._mean) * max(FADING, 1 / self._ended)

    def pages(self, running: Iterable[Sequence]) -> int:
        """At least one for each that runs."""
        size, mean, total = self._page_size, self._mean, 0
        for sequence in running:
            generation, missing = sequence.generation, 1
            if generation is not None:
                more = min(generation.max_tokens, max(mean, generation.outputs)) - generation.outputs
                missing = int((sequence.length + more) // size) + 1 - len(sequence.pages)
            total += missing if missing > 1 else 1
        return total

    def outputs(self, sequence: Sequence) -> float:
        """Tokens that it is expected to be given still."""
        generation = sequence.generation
        if generation is None:
            return 0.0
        return min(generation.max_tokens - generation.outputs, max(0.0, self._mean - generation.outputs))


class AdmissionHold:
    """After a retraction nobody is admitted until there is slack: else the next to come would be the next to go.

    The slack is a share of the pool, so that those that run can grow for a while. Nothing else is remembered: once
    there is slack, the engine runs as it did before.
    """

    def __init__(self, slack_pages: int) -> None:
        self._slack_pages = slack_pages
        self.active = False

    def begin(self) -> None:
        self.active = True

    def look(self, room: int, running: int) -> None:
        """Ends where `room` pages could be given to a new sequence, or nothing runs."""
        if room >= self._slack_pages or not running:
            self.active = False
