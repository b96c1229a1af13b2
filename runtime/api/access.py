"""Who may ask, and as whom: API keys, the admin key, and what a key decides when a request says nothing else.

A middleware writes the Caller into the request's scope; routes read it. Knows nothing of what is asked.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from palmette.runtime.api.errors import error_response, failure
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.errors import Forbidden, InvalidRequest
from palmette.runtime.messages.namespaces import namespace

OPEN_PATHS = ("/health", "/ready")  # probes carry no key
SCOPE_KEY = "palmette.caller"
_BEARABLE = re.compile(r"[!-~]([ -~]*[!-~])?")
UNIX_SOCKET = None  # a client without an address came through a socket file, which has its own permissions


@dataclass(frozen=True)
class Keys:
    """What callers must bear: one of `api`, where there are any; `admin` for what concerns everybody."""

    api: tuple[str, ...] = ()
    admin: str | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequest for a key that no client can bear, or that everybody would."""
        for flag, key in (*(("--api-key", key) for key in self.api), ("--admin-key", self.admin)):
            if key is not None and not _BEARABLE.fullmatch(key):
                raise InvalidRequest(
                    f"{flag} is {'empty' if not key else 'no key that a header can hold'}.",
                    hint="A key is printable ASCII without blanks around it. Is the variable that holds it set?",
                    param=flag.lstrip("-").replace("-", "_"),
                )


@dataclass(frozen=True)
class Caller:
    """`tenant`: the digest of the key; empty where there are no keys. `salted`: several tenants share this server, so
    each has cached pages of its own."""

    tenant: str = ""
    salted: bool = False
    admin: bool = True

    def namespace(self, wanted: str = "") -> str:
        """The namespace of what this caller calls `wanted`."""
        return namespace(f"{self.tenant}/{wanted}" if self.salted else wanted)

    def request_id(self, chosen: str) -> str:
        """The id of a request that this caller calls `chosen`: tenants can't meet one another's."""
        return f"{self.tenant}/{chosen}" if self.salted else chosen

    def shown_id(self, request_id: str) -> str:
        """What this caller calls it."""
        return request_id.removeprefix(f"{self.tenant}/") if self.salted else request_id

    def check_admin(self, verb: str) -> None:
        """Raises Forbidden unless this caller may do what concerns everybody."""
        if not self.admin:
            raise Forbidden(
                f"{verb} is for administrators.",
                hint="Send the key given by --admin-key; without one, ask from the machine itself.",
            )


def caller_of(request: Request) -> Caller:
    caller = request.scope.get(SCOPE_KEY)
    return caller if isinstance(caller, Caller) else Caller()


class Access:
    """Lets through what bears one of the keys (Authorization: Bearer …, or x-api-key; where a client sends both, one of
    them), compared in constant time.

    Without any key everybody is let through. Administrators bear the admin key; where there is none they are whoever
    holds the only key, and whoever asks from this machine. Web pages of other origins than `origins` and the server's
    own are kept out: a browser sends what they ask, key or none, before it asks whether they may.
    """

    def __init__(self, app: ASGIApp, keys: Keys, origins: Sequence[str] = ()) -> None:
        self._app = app
        self._origins = frozenset(origin.encode() for origin in origins)
        self._keys = [key.encode() for key in keys.api]
        self._admin_key = keys.admin.encode() if keys.admin is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if not self._may_come_from(scope):
                foreign = Forbidden(
                    "A web page of another origin can't use this server.",
                    hint="Allow its origin with --allow-origin.",
                )
                await error_response(foreign, scope["path"])(scope, receive, send)
                return
            caller = self._caller(scope)
            if caller is None and scope["path"] not in OPEN_PATHS:
                body = failure(401, "The API key is missing or wrong.", scope["path"], code="invalid_api_key")
                await JsonResponse(body, status_code=401)(scope, receive, send)
                return
            scope[SCOPE_KEY] = caller or Caller(admin=False)
        await self._app(scope, receive, send)

    def _may_come_from(self, scope: Scope) -> bool:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        origin = headers.get(b"origin")
        if origin is None or origin in self._origins or b"*" in self._origins:
            return True
        return origin.partition(b"://")[2] == headers.get(b"host")

    def _caller(self, scope: Scope) -> Caller | None:
        given = _keys_of(scope)
        salted = len(self._keys) > 1
        if self._admin_key is not None and _is_among(self._admin_key, given):
            return Caller(tenant="admin", salted=salted, admin=True)
        near = self._admin_key is None and is_near(scope)
        if not self._keys:
            return Caller(admin=near)
        # Every key is compared, so that the time says nothing about which was nearly right.
        borne = [each for each in given if _is_among(each, self._keys)]
        if not borne:
            return None
        alone = self._admin_key is None and len(self._keys) == 1
        return Caller(tenant=sha256(borne[0]).hexdigest()[:16], salted=salted, admin=near or alone)


def _keys_of(scope: Scope) -> list[bytes]:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    kind, _, key = headers.get(b"authorization", b"").partition(b" ")
    return [key.strip() if kind.lower() == b"bearer" else b"", headers.get(b"x-api-key", b"")]


def _is_among(key: bytes, others: list[bytes]) -> bool:
    matches = [hmac.compare_digest(key, each) for each in others]
    return any(matches)


def is_near(scope: Scope) -> bool:
    """The client is on this machine, and calls the server by a name of this machine: a web page whose own name was
    made to lead here doesn't."""
    client = scope.get("client")
    host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
    if client is UNIX_SOCKET:
        return True
    try:
        return ipaddress.ip_address(client[0]).is_loopback and _is_own_name(host)
    except ValueError:
        return False


def _is_own_name(host: str) -> bool:
    """Of a Host header: an address, `localhost`, or nothing."""
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    if name in ("", "localhost") or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
