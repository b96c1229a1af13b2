"""Bodies that refuse more than names: what this model or server can't do, which a lenient server leaves out and names.

Base of the chat surfaces' schemas. See bodies.py for what is refused by its name.
"""

from __future__ import annotations

from palmette.runtime.api.bodies import Body
from palmette.runtime.errors import Unsupported


class LenientBody(Body):
    def refuse(self, error: Unsupported, *, named: str | None = None) -> None:
        """Raises `error`; on a lenient server the field at fault is left out by the caller, and named in the answer's
        headers: by `named`, or as the error's `param`."""
        if not self._lenient:
            raise error
        self._ignored.append(named or error.param or "")
