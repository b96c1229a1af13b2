"""Fields that say how soon a request is wanted, and whose cached pages it may share; used by the schemas."""

from __future__ import annotations

from pydantic import Field

from palmette.runtime.api.access import Caller
from palmette.runtime.api.bodies import Body
from palmette.runtime.errors import InvalidRequest
from palmette.runtime.messages.requests import Scheduling


class SchedulingFields(Body):
    """Times are seconds from the request's arrival."""

    priority: int = Field(default=0, ge=-(2**31), le=2**31 - 1)
    """Higher goes first."""
    deadline: float | None = Field(default=None, gt=0)
    """Seconds to the last token; late ones are reported, and what is due first goes first under `--policy deadline`."""
    ttft_target: float | None = Field(default=None, gt=0)
    """Seconds to the first token."""
    tpot_target: float | None = Field(default=None, gt=0)
    """Seconds for each token after the first."""
    user: str | None = None
    """Who shares fairly, where no API key tells."""
    namespace: str = ""
    """Requests of different namespaces never share cached pages."""
    cache_salt: str = ""
    """Another name of `namespace`."""

    def scheduling(self, caller: Caller) -> Scheduling:
        return Scheduling(
            priority=self.priority,
            tenant=caller.tenant or self.user or "",
            ttft_target=self.ttft_target,
            tpot_target=self.tpot_target,
            deadline=self.deadline,
        )

    def cache_namespace(self, caller: Caller) -> str:
        """Raises InvalidRequest where namespace and cache_salt differ."""
        if self.namespace and self.cache_salt and self.namespace != self.cache_salt:
            raise InvalidRequest(
                f"namespace={self.namespace!r} and cache_salt={self.cache_salt!r} differ.",
                hint="They are two names of one thing: give one.",
                param="cache_salt",
            )
        return caller.namespace(self.namespace or self.cache_salt)
