"""Figures of the pages Compare and What if: bars stand where the numbers say."""

import numpy as np
import pytest

from tachoscope_analyzers.compare.aligned_steps import StepTimes, aligned_steps
from tachoscope_core.report.comparison import Comparison, Difference
from tachoscope_core.report.palette import STATE_COLORS
from tachoscope_core.report.report import Change
from tachoscope_explorer.figures import compare, what_if
from tachoscope_explorer.figures.time_unit import time_unit


def difference(name: str, before: float, now: float, *, sure: bool = True) -> Difference:
    return Difference(name=name, baseline_seconds=before, seconds=now, interval=(now - before, now - before), beyond_noise=sure)


def comparison(*states: Difference) -> Comparison:
    before, now = sum(row.baseline_seconds for row in states), sum(row.seconds for row in states)
    return Comparison(
        baseline="old", source="", baseline_steps=9, baseline_ranks=1, verdict="slower", severity=None, share=now / before - 1,
        step=difference("step", before, now), states=list(states), ranks="all", made_of=[], notes=[],
    )  # fmt: skip


def test_the_waterfall_leads_from_the_baseline_to_now() -> None:
    one = comparison(difference("data_wait", 0.01, 0.05), difference("compute", 0.1, 0.08), difference("gc", 0.02, 0.0201))
    bars = compare.from_baseline_to_now(one).data

    assert [bar.x[0] for bar in bars] == ["baseline", "data wait", "compute", "now"]
    assert bars[0].y[0] == pytest.approx(130)
    assert bars[1].base[0] == pytest.approx(bars[0].y[0])
    assert bars[2].base[0] == pytest.approx(bars[1].base[0] + bars[1].y[0])
    assert bars[-1].y[0] == pytest.approx(150.1)
    assert bars[1].marker.color == STATE_COLORS["data_wait"]


def test_many_small_differences_are_one_bar_and_what_is_noise_is_pale() -> None:
    small = [difference(f"s{number}", 0.01, 0.01 + 4e-4) for number in range(9)]
    bars = compare.from_baseline_to_now(comparison(difference("compute", 0.1, 0.2, sure=False), *small)).data

    assert [bar.x[0] for bar in bars] == ["baseline", "compute", "the rest", "now"]
    assert bars[1].marker.opacity < 1
    assert bars[2].y[0] == pytest.approx(3.6)


def test_both_runs_have_a_line_and_a_band() -> None:
    runs = tuple(StepTimes(np.arange(500), np.full(500, seconds)) for seconds in (0.1, 0.2))
    figure = compare.step_times(aligned_steps(runs), ["old", "new"])

    assert [trace.name for trace in figure.data if trace.name] == ["old", "new"]
    assert sum(trace.fill == "toself" for trace in figure.data) == 2
    assert sum(len(trace.x) for trace in figure.data) < 1000


def test_names_of_kernels_are_text_and_the_largest_difference_is_on_top() -> None:
    rows = [
        Change(kind="kernel", name=name, baseline_name=name, matched="exact", baseline_seconds=0.001, seconds=now)
        for name, now in (("small", 0.0012), ("<script>", 0.0003), ("large", 0.005))
    ]
    figure = compare.largest_changes(rows)

    assert [text.partition("<br>")[0] for text in figure.layout.yaxis.ticktext] == ["large", "&lt;script&gt;", "small"]
    assert "<script>" not in figure.to_json()
    assert list(figure.data[0].x) == pytest.approx([4, -0.7, 0.2])


def test_what_is_saved_leads_from_now_to_then() -> None:
    (bars,) = what_if.from_now_to_then(
        0.1, [what_if.WaterfallBar("a", "data_wait", 0.03), what_if.WaterfallBar("b", "", 0.02)], 0.05, 0.06
    ).data

    assert list(bars.base) == pytest.approx([0, 70, 50, 0])
    assert list(bars.y) == pytest.approx([100, 30, 20, 50])


@pytest.mark.parametrize(("seconds", "sign"), [(2.0, "s"), (0.02, "ms"), (2e-5, "µs"), (0.0, "µs")])
def test_an_axis_has_the_unit_of_its_largest_number(seconds: float, sign: str) -> None:
    assert time_unit([seconds, float("nan"), seconds / 10]).sign == sign


def test_a_band_ends_where_steps_are_missing_and_begins_anew_behind_them() -> None:
    numbers = np.concatenate([np.arange(100), np.arange(300, 400)])
    figure = compare.step_times(aligned_steps((StepTimes(numbers, np.full(200, 0.1)),) * 2), ["old", "new"])

    assert sum(trace.fill == "toself" for trace in figure.data) == 4
