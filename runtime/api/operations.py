"""What people who run a server look at: /v1/models, /health, /ready, /metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from palmette.runtime.api.json_response import JsonResponse
from palmette.runtime.api.surface import Surface


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
        }

    @routes.get("/v1/models")
    async def models() -> Response:
        return JsonResponse({"object": "list", "data": [model_card(name) for name in surface.names]})

    @routes.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        if name not in surface.names:
            surface.check_model(name)
        return JsonResponse(model_card(name))

    @routes.get("/health")
    async def health() -> Response:
        """200 while the engine's loop lives; 503 with the reason where it doesn't."""
        now = frontend.health()
        body = {"status": now.status, "heartbeat_age_seconds": now.heartbeat_age, "detail": now.detail}
        counters = frontend.counters
        if now.status == "ok" and counters.quarantined_pages:
            body["status"], body["detail"] = "degraded", f"{counters.quarantined_pages} pages are quarantined."
        body |= {"running": counters.running, "waiting": counters.waiting}
        return JsonResponse(body, status_code=200 if now.status == "ok" else 503)

    @routes.get("/ready")
    async def ready() -> Response:
        """200 when requests can be served now."""
        status = frontend.health().status
        return JsonResponse({"ready": status == "ok", "status": status}, status_code=200 if status == "ok" else 503)

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(frontend.metrics.export(), media_type=CONTENT_TYPE_LATEST)

    return routes
