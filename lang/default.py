"""The default backend that `set_default_backend` names, and what counts as a backend."""

from __future__ import annotations

from typing import Any

from palmette.lang.backends.base import Backend
from palmette.lang.backends.engine import EngineBackend
from palmette.lang.loop import run_on
from palmette.runtime.errors import InvalidRequest

_default: list[Backend] = []


def set_default_backend(backend: Any) -> None:
    """Programs run without `backend=` use this one: a backend, or an Engine."""
    _default[:] = [as_backend(backend)]


def default_backend() -> Backend:
    if not _default:
        raise InvalidRequest(
            "No backend to run on.",
            hint="Call set_default_backend(Runtime()) for a model in this process, or "
            "set_default_backend(RuntimeEndpoint('http://localhost:30000')) for a server; or give backend=.",
            param="backend",
        )
    return _default[0]


def resolve_backend(backend: Any = None) -> Backend:
    return default_backend() if backend is None else as_backend(backend)


def as_backend(value: Any) -> Backend:
    """A backend as it is, an Engine wrapped. Raises InvalidRequest for anything else."""
    if callable(getattr(value, "open", None)) and callable(getattr(value, "flush_cache", None)):
        backend: Backend = value
        return backend
    if hasattr(value, "frontend") and hasattr(value, "loop"):
        return EngineBackend(value)
    raise InvalidRequest(
        f"{value!r} is not a backend.",
        hint="Use Runtime(...), RuntimeEndpoint(url), an Engine, or ScriptedBackend(...).",
        param="backend",
    )


def flush_cache(backend: Any = None) -> int:
    """Drop every cached page that no request uses; returns how many."""
    resolved = resolve_backend(backend)
    return run_on(resolved.loop, resolved.flush_cache())
