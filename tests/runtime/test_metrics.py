"""What a scrape shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from palmette.runtime.messages.replies import Counters, Usage
from palmette.runtime.metrics import FrontMetrics, Stopwatch


def scraped(metrics: FrontMetrics) -> dict[str, float]:
    """name{label=value} → value"""
    return {
        sample.name + "".join(f"{{{key}={value}}}" for key, value in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(metrics.export().decode())
        for sample in family.samples
    }


def test_the_engine_s_counters() -> None:
    metrics = FrontMetrics()
    metrics.record_counters(
        Counters(
            running=3, waiting=2, pages_total=100, pages_free=60, pages_cached=30, quarantined_pages=1,
            prompt_tokens=80, cached_tokens=20, reusable_tokens=40, computed_tokens=60, completion_tokens=7,
            plan_seconds=0.5, grammar_seconds=0.25, decode_rows=9, prefill_rows=2, batch_sizes=(1, 0, 3), aborted=4,
        )
    )  # fmt: skip
    found = scraped(metrics)
    assert found["palmette_requests_running"] == 3
    assert found["palmette_requests_waiting"] == 2
    assert [found[f"palmette_pages{{state={state}}}"] for state in ("free", "cached", "private", "quarantined")] == [
        60, 30, 9, 1,
    ]  # fmt: skip
    assert found["palmette_kv_pages_in_use"] == 9
    assert found["palmette_tokens_total{source=cached}"] == 20
    assert found["palmette_tokens_total{source=generated}"] == 7
    assert (found["palmette_reuse"], found["palmette_reuse_of_reusable"]) == (0.25, 0.5)
    assert found["palmette_step_seconds_total{part=plan}"] == 0.5
    assert found["palmette_grammar_seconds_total"] == 0.25
    assert found["palmette_engine_requests_total{outcome=aborted}"] == 4
    assert found["palmette_step_batch_rows_bucket{le=4.0}"] == found["palmette_step_batch_rows_count"] == 4
    assert found["palmette_step_batch_rows_bucket{le=2.0}"] == 1
    assert found["palmette_step_batch_rows_sum"] == 11


def test_every_counter_is_shown() -> None:
    """A counter that somebody adds must be thought of here."""
    values = {name: 1000.5 + index for index, name in enumerate(Counters.__struct_fields__) if name != "batch_sizes"}
    metrics = FrontMetrics()
    metrics.record_counters(Counters(**values))  # type: ignore[arg-type]
    shown = set(scraped(metrics).values())
    assert {name for name, value in values.items() if value not in shown} == set()


def test_latencies_of_a_request() -> None:
    metrics = FrontMetrics()
    watch = Stopwatch(metrics)
    for tokens in (0, 1, 2):
        watch.note_tokens(tokens)
    watch.note_finish("stop", Usage(prompt_tokens=5, completion_tokens=3, queue_seconds=0.2))
    found = scraped(metrics)
    assert found["palmette_time_to_first_token_seconds_count"] == 1
    assert found["palmette_inter_token_latency_seconds_count"] == 2
    assert found["palmette_queue_time_seconds_sum"] == 0.2
    assert found["palmette_request_output_tokens_sum"] == 3
    assert found["palmette_requests_total{outcome=stop}"] == 1
    metrics.record_restart()
    assert scraped(metrics)["palmette_engine_restarts_total"] == metrics.restarts == 1
