"""Charts: what the SVG and the text show, and where."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmette.runtime.roofline.charts import longest_shown, roofline_chart, traffic_chart
from palmette.runtime.roofline.cost import kv_overtakes
from palmette.runtime.roofline.device import DEVICES
from palmette.runtime.roofline.plot import Chart, Mark, Series, short, svg, text
from palmette.runtime.roofline.shape import PRESETS, model_shape

SVG = "{http://www.w3.org/2000/svg}"
SHAPE = model_shape(PRESETS["llama-3.1-70b"])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.5, "0.5"),
        (999, "999"),
        (1500, "1.5 k"),
        (999_900, "1 M"),
        (2.1e9, "2.1 G"),
        (9.89e14, "989 T"),
        (2e15, "2 P"),
    ],
)
def test_figures_are_short(value: float, shown: str) -> None:
    assert short(value) == shown
    assert short(value, "B") == (shown + "B" if shown[-1].isalpha() else shown + " B")


def test_the_traffic_chart_marks_where_kv_overtakes_the_weights() -> None:
    batches = [1, 8, 32, 128]
    chart = traffic_chart(SHAPE, batches, 32_768)
    assert [series.name for series in chart.series] == ["weights", *(f"KV of batch {batch}" for batch in batches)]
    assert [mark.at for mark in chart.marks] == [
        (kv_overtakes(SHAPE, batch), SHAPE.weight_bytes) for batch in (32, 128)
    ], "the other batches cross beyond the chart"
    for series in chart.series[1:]:
        assert all(later[1] > earlier[1] for earlier, later in pairwise(series.points))


def test_the_chart_is_long_enough_for_the_largest_batch() -> None:
    assert longest_shown(SHAPE, [1, 128], [1024]) > kv_overtakes(SHAPE, 128)
    assert longest_shown(SHAPE, [1], [200_000]) == 200_000


def test_points_lie_on_or_below_the_roof() -> None:
    device = DEVICES["h100"]
    chart = roofline_chart(SHAPE, device, [1, 32, 512], [1024, 8192])
    roof, *points = chart.series
    assert roof.points[1] == (chart.marks[0].at) == (989e12 / 3.35e12, 989e12)
    for series in points:
        for intensity, reached in series.points:
            assert reached <= min(intensity * device.bandwidth, 989e12) * 1.0001


def test_the_svg_is_one_and_has_every_series() -> None:
    charts = [roofline_chart(SHAPE, DEVICES["h100"], [1, 8], [1024]), traffic_chart(SHAPE, [1, 8], 8192)]
    root = ElementTree.fromstring(svg(charts, "70 B <on> one & another"))
    words = [element.text for element in root.iter(f"{SVG}text")]
    for series in (*charts[0].series, *charts[1].series):
        assert series.name in words
    assert "70 B <on> one & another" in words
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for line in root.iter(f"{SVG}polyline"):
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_the_text_plot_draws_lines_marks_and_a_legend() -> None:
    chart = Chart(
        "growth", "x", "y", [Series("up", [(1, 1), (100, 100)]), Series("flat", [(1, 10), (100, 10)])],
        [Mark((10, 10), "they meet")],
    )  # fmt: skip
    drawn = text(chart, width=41, height=11).splitlines()
    rows = [line.partition("│")[2].ljust(41) for line in drawn[1:12]]
    assert rows[0].rstrip().endswith("o")
    assert rows[10].startswith("o")
    assert rows[5][20] == "X", "both lines cross in the middle of a logarithmic plot"
    assert set(rows[5]) <= {"x", "X", "o"}
    assert drawn[-3:] == ["  o up", "  x flat", "  X they meet"]


positive = st.floats(1e-6, 1e18)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=6), st.booleans())
def test_any_points_can_be_drawn(points: list[tuple[float, float]], line: bool) -> None:
    chart = Chart("any", "x", "y", [Series("some", sorted(points), line=line)])
    assert len(text(chart).splitlines()) == 1 + 16 + 2 + 1
    ElementTree.fromstring(svg([chart], "any"))
