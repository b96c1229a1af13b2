"""What each tenant was given: the virtual token counters of fair scheduling (Sheng et al., OSDI 2024).

Knows tenants by name and sequences by what they were given. Used by the fair-share policy.
"""

from __future__ import annotations

from collections.abc import Iterable

from palmette.runtime.scheduler.sequence import Sequence

OUTPUT_WEIGHT = 2.0  # an output token takes a step of its own; a prefill token one row of many


class TenantShares:
    """Weighted tokens by tenant, of those computed: what the cache gave costs nobody anything."""

    def __init__(self) -> None:
        self._given: dict[str, float] = {}

    def given(self, tenant: str) -> float:
        return self._given.get(tenant, 0.0)

    def joins(self, tenant: str, active: Iterable[str]) -> None:
        """A tenant that had nothing to do takes no credit from that time: it starts where the least served is."""
        least = min((self.given(other) for other in active), default=0.0)
        self._given[tenant] = max(self.given(tenant), least)

    def charge_prefill(self, tenant: str, tokens: int) -> None:
        self._given[tenant] = self.given(tenant) + tokens

    def settle(self, running: Iterable[Sequence]) -> None:
        """Charges the outputs given since the last time."""
        for sequence in running:
            self.charge_outputs(sequence)

    def charge_outputs(self, sequence: Sequence) -> None:
        generation = sequence.generation
        if generation is not None and generation.outputs > sequence.charged_outputs:
            more = generation.outputs - sequence.charged_outputs
            self._given[sequence.tenant] = self.given(sequence.tenant) + OUTPUT_WEIGHT * more
            sequence.charged_outputs = generation.outputs
