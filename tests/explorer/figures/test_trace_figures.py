"""Figures of the page Trace, without the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from planting import Planted
from tachoscope_analyzers.trace.analyses.event_slices import slices as found_slices
from tachoscope_analyzers.trace.analyses.overview import edges, extent, streams, summary_rows
from tachoscope_analyzers.trace.events.view import TraceView
from tachoscope_explorer.figures.trace_overview import StepMark, overview
from tachoscope_explorer.figures.trace_slices import slices
from tachoscope_explorer.figures.trace_words import duration, escaped, unique
from tachoscope_explorer.page.view import View as PageView
from tachoscope_explorer.page.view import parameters_of, view_of

US = 1_000


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_CACHE", str(tmp_path / "cache"))


def test_a_busier_bin_is_darker_and_one_that_was_not_recorded_is_blank(tmp_path: Path) -> None:
    planted = Planted()
    planted.op("aten::mm", 0, 10 * US)
    planted.kernel("k", 10 * US, 10 * US)
    planted.kernel("k", 20 * US, 2 * US)
    planted.kernel("k", 38 * US, 2 * US)
    view = TraceView(planted.read(tmp_path))
    (row,) = summary_rows(view, edges(0, 40 * US, 4))

    (heat,) = [trace for trace in overview([("device", row)], 0, 0.01).data if trace.type == "heatmap"]

    first, busy, pale, last = heat.z[0].tolist()
    assert np.isnan(first)
    assert 1 < pale < busy < 2
    assert pale == pytest.approx(last)
    assert heat.customdata[0].sum(axis=1).tolist() == [100] * 4


@pytest.mark.bar  # a size
def test_thousands_of_slices_with_long_names_stay_below_a_megabyte(tmp_path: Path) -> None:
    planted = Planted()
    for number in range(6_000):
        planted.kernel(f"void kernel_{number}<{'float, ' * 40}>", number * 10 * US, 9 * US)
    trace = planted.read(tmp_path)
    start, end = extent(trace)

    found = found_slices(trace, start, end)
    figure = slices(trace, found, start, start, end)

    assert found.left_out == 1_000
    assert len(figure.to_json()) < 1_000_000


def test_an_overview_of_64_rows_stays_far_below_a_megabyte(tmp_path: Path) -> None:
    planted = Planted()
    for stream in range(20):
        planted.kernel("k", stream * US, 50 * US, stream=stream)
    view = TraceView(planted.read(tmp_path))
    rows = [(row.name, row) for row in streams(view, edges(*extent(view.trace), 312))] * 4

    assert len(overview(rows[:64], 0, 1, marks=[StepMark(number, number) for number in range(4_000)]).to_json()) < 500_000


def test_foreign_names_are_letters_and_cut() -> None:
    assert escaped("<b>\n&") == "&lt;b&gt; &amp;"
    assert len(escaped("x" * 500)) == 70
    assert json.dumps(unique(["a", "b", "a"])) == '["a", "b", "a (2)"]'


@pytest.mark.parametrize(
    ("value", "words"), [(0, "0 ns"), (999, "999 ns"), (1_500, "1.5 µs"), (43_458e6, "43.5 s"), (5_000e9, "5,000.0 s")]
)
def test_durations_have_the_unit_that_fits(value: float, words: str) -> None:
    assert duration(value) == words


def test_a_window_of_microseconds_goes_into_an_address_and_back() -> None:
    view = PageView(job="a", part="kernels", start=1_700_000_000.000051, end=1_700_000_000.25)

    sent = parameters_of(view)

    assert sent == {"job": "a", "part": "kernels", "from": "1700000000000.051", "to": "1700000000250"}
    assert parameters_of(view_of(sent)) == sent
    assert view_of({"from": "1.2345"}).wrong
