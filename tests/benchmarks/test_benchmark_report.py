"""The table and the plot: medians, ratios in the right direction, failures and noise shown."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree

import pytest
from rich.console import Console

from benchmarks.loop import Outcome
from benchmarks.quiet import Load, machine, sample_load, wait_until_quiet
from benchmarks.report import Measurement, figure, plot, summarise, table
from benchmarks.reuse import Reuse
from benchmarks.workloads import Headline

QUIET = Load((0.0, 0.0, 0.0), 0.01, 0.0)
BUSY = Load((2.0, 2.0, 2.0), 0.7, 0.0)


def measured(
    system: str, value: float | None, *, headline: Headline = "seconds", run: int = 0, before: Load = QUIET
) -> Measurement:
    outcome = None
    if value is not None:
        outcome = Outcome(
            "w",
            headline,
            value,
            1.0,
            0.1,
            0.2,
            0.01,
            10,
            10.0,
            Reuse(100, 90, None if system == "silent" else 80),
            True,
        )
    return Measurement(system, "w", run, outcome, None if outcome else "it broke", before, QUIET)


@pytest.mark.parametrize(("headline", "ratio"), [("seconds", 2.0), ("decode tokens/s", 0.5)])
def test_ratio_says_how_many_times_faster_the_first_system_is(headline: Headline, ratio: float) -> None:
    ours, peer = summarise([measured("ours", 3.0, headline=headline), measured("peer", 6.0, headline=headline)])
    assert ours.ratio is None
    assert peer.ratio == ratio


def test_median_spread_and_noise() -> None:
    runs = [measured("ours", v, run=i, before=BUSY if i == 2 else QUIET) for i, v in enumerate((5.0, 1.0, 2.0))]
    (line,) = summarise([*runs, measured("ours", None, run=3)])
    assert (line.median, line.low, line.high, line.runs, line.noisy_runs) == (2.0, 1.0, 5.0, 3, 1)
    assert (line.reached, line.ceiling) == (0.8, 0.9)


def test_a_system_that_always_fails_leaves_the_others_their_lines() -> None:
    lines = summarise([measured("ours", None), measured("peer", 1.0)])
    assert [(line.system, line.ratio) for line in lines] == [("peer", None)]
    assert summarise([]) == []


def test_the_table_shows_all_that_a_reader_needs() -> None:
    lines = summarise([measured("ours", 3.0, before=BUSY), measured("silent", 6.0)])
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table(lines, title="a title", limits={"w": 1.5}))
    text = console.export_text()
    for shown in (
        "a title",
        "ours",
        "silent",
        "1 (1 noisy)",
        "2.00×",
        "0.800 / 0.900",
        "? / 0.900",
        "0.900",
        "50%",
        "25%",
    ):
        assert shown in text


def test_the_plot_is_an_svg_whose_longest_bar_is_the_fastest() -> None:
    root = ElementTree.fromstring(plot(summarise([measured("<ours>", 3.0), measured("peer", 6.0)]), title="a & b"))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    widths = [float(e.get("width", "0")) for e in root.iter("{http://www.w3.org/2000/svg}rect") if e.get("x")]
    assert texts[0] == "a & b"
    assert "<ours>" in texts
    assert widths == [420, 210]


def test_figures_have_three_digits() -> None:
    assert [figure(v) for v in (0.01234, 1.234, 12.34, 123.4, 1234.4)] == [
        "0.0123",
        "1.23",
        "12.3",
        "123",
        "1,234",
    ]


def test_the_machine_is_described_and_sampled() -> None:
    facts = machine()
    assert facts["cpu"]
    assert facts["commit"]
    load = sample_load(0.05)
    assert load.busy is None or 0 <= load.busy <= 1
    assert wait_until_quiet(busy=1.0, timeout=5).average == load.average or load.average is not None
