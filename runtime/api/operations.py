"""What people who run a server look at: /v1/models, /health, /ready, /metrics."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from palmette.runtime.api.document import operation
from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.native.answers import HealthAnswer, ReadyAnswer
from palmette.runtime.api.openai.answers import ModelCard, ModelList
from palmette.runtime.api.surface import Surface
from palmette.runtime.messages.replies import Counters


def router(surface: Surface) -> APIRouter:
    routes = APIRouter()
    frontend = surface.frontend

    def model_card(name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": surface.started,
            "owned_by": "palmette",
            "max_model_len": frontend.context_length,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(surface.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycle": "active",
            "max_input_tokens": frontend.context_length,
            "max_tokens": frontend.context_length,
        }

    @routes.get("/v1/models", **operation(ModelList, errors=(401,), tag="OpenAI"))
    async def models() -> Response:
        """The served names, each as a model: OpenAI's fields and Anthropic's in one object."""
        first, last = surface.names[0], surface.names[-1]
        cards = [model_card(name) for name in surface.names]
        return JsonResponse({"object": "list", "data": cards, "first_id": first, "last_id": last, "has_more": False})

    @routes.get("/v1/models/{name:path}", **operation(ModelCard, errors=(401, 404), tag="OpenAI"))
    async def model(name: str) -> Response:
        """One of them."""
        if name not in surface.names:
            surface.check_model(name)
        return JsonResponse(model_card(name))

    @routes.get("/health", **operation(HealthAnswer, errors=(), unavailable=HealthAnswer, tag="operations"))
    async def health() -> Response:
        """200 while the engine's loop lives, 503 with the reason where it doesn't. `degraded` is a 200: it serves."""
        now = frontend.health()
        counters = frontend.counters
        body: dict[str, object] = {
            "status": now.status,
            "detail": now.detail,
            "heartbeat_age_seconds": now.heartbeat_age,
            "running": counters.running,
            "waiting": counters.waiting,
            "quarantined_pages": counters.quarantined_pages,
            "tree_resets": counters.tree_resets,
            "engine_restarts": frontend.metrics.restarts,
        }
        if now.status == "ok" and (counters.quarantined_pages or counters.tree_resets):
            body |= {"status": "degraded", "detail": _damage(counters)}
        return JsonResponse(body, status_code=200 if now.status == "ok" else 503)

    @routes.get("/ready", **operation(ReadyAnswer, errors=(), unavailable=ReadyAnswer, tag="operations"))
    async def ready() -> Response:
        """200 when requests can be served now."""
        status = frontend.health().status
        return JsonResponse({"ready": status == "ok", "status": status}, status_code=200 if status == "ok" else 503)

    @routes.get("/metrics", **operation(errors=(401,), media="text/plain", tag="operations"))
    async def metrics() -> Response:
        """What Prometheus scrapes."""
        exported = await frontend.offload.run(frontend.metrics.export)
        return Response(exported, media_type=CONTENT_TYPE_LATEST)

    return routes


def _damage(counters: Counters) -> str:
    told = []
    if counters.quarantined_pages:
        told.append(f"{counters.quarantined_pages} pages are quarantined.")
    if counters.tree_resets:
        told.append(f"The tree was damaged and has been emptied {counters.tree_resets} times.")
    return " ".join(told)
