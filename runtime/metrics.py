"""What /metrics shows: the engine's counters as its heartbeats bring them, and latencies seen by the front.

Each front has its own registry; nothing global. Knows nothing of HTTP; the frontend records, the api exports.
"""

from __future__ import annotations

import time

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from palmette.runtime.messages.replies import Counters, Usage

GAUGES = {
    "running": "Requests in the running set",
    "waiting": "Requests in the queue",
    "pages_total": "KV pages of the pool",
    "pages_free": "KV pages in the free list",
    "pages_cached": "KV pages in the radix tree",
}
LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
GAP = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)


class FrontMetrics:
    """The registry of one front process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._engine = {
            name: Gauge(
                f"palmette_{name}",
                GAUGES.get(name, f"Engine total since its start: {name}"),
                registry=self.registry,
            )
            for name in Counters.__struct_fields__
        }
        self.first_token = self._histogram("time_to_first_token_seconds", "From request to first token", LATENCY)
        self.inter_token = self._histogram("inter_token_latency_seconds", "Between tokens of one output", GAP)
        self.end_to_end = self._histogram("end_to_end_latency_seconds", "From request to its last token", LATENCY)
        self.requests = Counter(
            "palmette_requests", "Requests of this front by outcome", ["outcome"], registry=self.registry
        )
        self.prompt_lengths = self._histogram(
            "request_prompt_tokens",
            "Prompt tokens of a request",
            tuple(float(4**power) for power in range(9)),
        )
        self.open = Gauge("palmette_open_requests", "Requests sent and not answered", registry=self.registry)
        self.engine_restarts = Counter("palmette_engine_restarts", "Engines that died", registry=self.registry)

    def record_counters(self, counters: Counters) -> None:
        for name, value in msgspec.structs.asdict(counters).items():
            self._engine[name].set(value)

    def export(self) -> bytes:
        """The text form that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"palmette_{name}", text, buckets=buckets, registry=self.registry)


class Stopwatch:
    """Latencies of one generation, as replies arrive."""

    def __init__(self, metrics: FrontMetrics) -> None:
        self._metrics = metrics
        self._start = time.monotonic()
        self._last: float | None = None

    def note_tokens(self, count: int) -> None:
        if not count:
            return
        now = time.monotonic()
        if self._last is None:
            self._metrics.first_token.observe(now - self._start)
        else:
            for _ in range(count):
                self._metrics.inter_token.observe((now - self._last) / count)
        self._last = now

    def note_finish(self, outcome: str, usage: Usage | None = None) -> None:
        self._metrics.requests.labels(outcome).inc()
        self._metrics.end_to_end.observe(time.monotonic() - self._start)
        if usage is not None:
            self._metrics.prompt_lengths.observe(usage.prompt_tokens)
