"""What /metrics shows: the engine's counters as its heartbeats bring them, and latencies seen by the front.

Each front has its own registry; nothing global. Knows nothing of HTTP; the frontend records, the api exports.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from palmette.runtime.messages.replies import Counters, Usage

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
GAP = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
LAG = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
TOKENS = tuple(float(4**power) for power in range(9))

TOTALS = {
    "steps": "Steps of the engine",
    "prompt_tokens": "Prompt tokens of sequences that have ended",
    "reusable_tokens": "Those of them that a cache without end would have held",
    "completion_tokens": "Sampled and forced tokens of sequences that have ended",
    "retractions": "Sequences that gave way for want of pages or slots, and were computed again",
    "preemptions": "Those of them that gave way to a higher priority",
    "evicted_pages": "Cached pages given up",
    "tree_resets": "How often the tree was damaged beyond mending, and emptied",
    "targeted": "Finished requests that had a target",
    "in_time": "Those of them that met it",
    "grammar_seconds": "Seconds that requests have waited for their grammars to be compiled",
    "prefill_tokens": "Tokens that rows of steps computed which are no decodes",
}
STEP_PARTS = ("receive", "plan", "execute", "commit", "emit")


class EngineMetrics(Collector):
    """The newest counters of the engine as metrics. They begin anew with a new engine, as counters may."""

    def __init__(self) -> None:
        self.counters = Counters()

    def collect(self) -> Iterator[Family]:
        counters = self.counters
        for name, text in TOTALS.items():
            yield CounterMetricFamily(f"palmette_{name}", text, getattr(counters, name))
        yield _labelled(
            CounterMetricFamily("palmette_tokens", "Tokens of sequences that have ended", labels=["source"]),
            cached=counters.cached_tokens,
            computed=counters.computed_tokens,
            generated=counters.completion_tokens,
        )
        yield _labelled(
            CounterMetricFamily("palmette_step_seconds", "Seconds of the engine's step", labels=["part"]),
            **{part: getattr(counters, f"{part}_seconds") for part in STEP_PARTS},
        )
        yield _labelled(
            CounterMetricFamily("palmette_step_rows", "Rows of steps", labels=["purpose"]),
            decode=counters.decode_rows,
            prefill=counters.prefill_rows,
        )
        yield _labelled(
            CounterMetricFamily("palmette_engine_requests", "Requests that the engine answered", labels=["outcome"]),
            finished=counters.finished,
            failed=counters.failed,
            aborted=counters.aborted,
        )
        yield from self._gauges(counters)
        yield _batch_sizes(counters)

    def _gauges(self, counters: Counters) -> Iterator[Family]:
        yield GaugeMetricFamily("palmette_requests_running", "Sequences in the running set", counters.running)
        yield GaugeMetricFamily("palmette_requests_waiting", "Sequences in the queue", counters.waiting)
        held = counters.pages_total - counters.pages_free - counters.pages_cached - counters.quarantined_pages
        yield _labelled(
            GaugeMetricFamily("palmette_pages", "KV pages; cached ones may be in use too", labels=["state"]),
            free=counters.pages_free,
            cached=counters.pages_cached,
            private=max(0, held),
            quarantined=counters.quarantined_pages,
        )
        in_use = "KV pages that requests hold for themselves, outside the tree: 0 where nothing runs"
        yield GaugeMetricFamily("palmette_kv_pages_in_use", in_use, max(0, held))
        yield GaugeMetricFamily("palmette_pool_pages", "KV pages of the pool", counters.pages_total)
        reuse = _share(counters.cached_tokens, counters.prompt_tokens)
        yield GaugeMetricFamily("palmette_reuse", "Share of the prompt tokens that were not computed", reuse)
        reached = _share(counters.cached_tokens, counters.reusable_tokens)
        yield GaugeMetricFamily("palmette_reuse_of_reusable", "Of what a cache without end would have given", reached)


class WebMetrics:
    """What is known of the server under the application: its connections, and how long its event loop makes wait."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.open = Gauge("palmette_connections", "Connections of clients", registry=registry)
        self.refused = Counter(
            "palmette_connections_dropped",
            "Connections that were closed on clients, by what was waited for in vain, or for want of room",
            ["reason"],
            registry=registry,
        )
        self.loop_lag = Histogram(
            "palmette_event_loop_lag_seconds",
            "How much later than asked for the event loop came back, ten times a second",
            buckets=LAG,
            registry=registry,
        )
        for reason in ("head", "body", "reader", "idle", "full"):
            self.refused.labels(reason)


class FrontMetrics:
    """The registry of one front process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.web = WebMetrics(self.registry)
        self.engine = EngineMetrics()
        self.registry.register(self.engine)
        self.first_token = self._histogram("time_to_first_token_seconds", "From request to first token", LATENCY)
        self.inter_token = self._histogram("inter_token_latency_seconds", "Between tokens of one output", GAP)
        self.end_to_end = self._histogram("end_to_end_latency_seconds", "From request to its last token", LATENCY)
        self.queue_time = self._histogram("queue_time_seconds", "From arrival to the first computation", LATENCY)
        self.prompt_lengths = self._histogram("request_prompt_tokens", "Prompt tokens of a request", TOKENS)
        self.output_lengths = self._histogram("request_output_tokens", "Output tokens of a request", TOKENS)
        self.requests = Counter(
            "palmette_requests", "Requests of this front that have ended", ["outcome"], registry=self.registry
        )
        self.open = Gauge("palmette_open_requests", "Requests sent and not answered", registry=self.registry)
        self.engine_restarts = Counter("palmette_engine_restarts", "Engines that died", registry=self.registry)
        self.restarts = 0

    def record_counters(self, counters: Counters) -> None:
        self.engine.counters = counters

    def record_restart(self) -> None:
        self.restarts += 1
        self.engine_restarts.inc()

    def export(self) -> bytes:
        """The text form that Prometheus scrapes. Takes a few milliseconds; any thread may do it."""
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
            self._metrics.output_lengths.observe(usage.completion_tokens)
            self._metrics.queue_time.observe(usage.queue_seconds)


def _labelled(family: CounterMetricFamily | GaugeMetricFamily, **values: float) -> Family:
    """`family` with a sample a label."""
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _batch_sizes(counters: Counters) -> HistogramMetricFamily:
    total = 0
    buckets: list[tuple[str, float]] = []
    for power, steps in enumerate(counters.batch_sizes):
        total += steps
        buckets.append((str(float(2**power)), float(total)))
    rows = counters.decode_rows + counters.prefill_rows
    return HistogramMetricFamily(
        "palmette_step_batch_rows", "Rows of a step", buckets=[*buckets, ("+Inf", float(total))], sum_value=rows
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
