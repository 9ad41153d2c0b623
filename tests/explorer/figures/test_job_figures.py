from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from course_making import late, planted
from tachoscope_analyzers.job.classify import decide
from tachoscope_analyzers.job.rank_grid import RankGrid, own_time
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.job.timeline import Timeline, timeline
from tachoscope_analyzers.ledger.histogram import histogram
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_core.report.palette import STATE_COLORS
from tachoscope_core.report.report import Report
from tachoscope_explorer.figures import ledger, steps
from tachoscope_show.report import states_picture


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobRecords:
    return from_spool([planted(tmp_path_factory.mktemp("figures"), late(2, 101, 200, 0.05), steps=300)])


@pytest.fixture(scope="module")
def aligned_steps(job: JobRecords) -> Steps:
    return aligned(job)


@pytest.fixture(scope="module")
def course(job: JobRecords, aligned_steps: Steps) -> Timeline:
    return timeline(decide(job, aligned_steps))


@pytest.fixture(scope="module")
def report(job: JobRecords) -> Report:
    return analyze(job)


def _grid(ranks: int, columns: int) -> RankGrid:
    rank, step, seconds = np.arange(ranks), np.arange(columns), np.full((ranks, columns), 0.1)
    worst = np.repeat(rank[:, None], columns, axis=1)
    return RankGrid(rank, rank, step, step, step * 1.0, step + 1.0, seconds, seconds, worst)


def test_states_have_their_colours_and_seconds_a_step_sum_to_the_step(course: Timeline, report: Report) -> None:
    figure = ledger.over_time(course, "step", "seconds")

    assert {trace.fillcolor for trace in figure.data} <= set(STATE_COLORS.values())
    begins = np.sum([trace.y[:-1] for trace in figure.data], axis=0)  # the last point is the end of the last bin
    assert np.average(begins, weights=course.steps) == pytest.approx(report.step_seconds.mean, rel=0.01)


def test_bins_begin_and_end_where_their_bars_would_and_gaps_stay_empty(course: Timeline) -> None:
    part = np.r_[0:60, 80:140]
    gap = replace(
        course, **{name: getattr(course, name)[part] for name in ("first_step", "last_step", "steps", "start", "end", "wall")}
    )
    gap = replace(gap, states={state: seconds[part] for state, seconds in course.states.items()})

    trace = ledger.over_time(gap, "step", "share").data[0]

    assert (trace.x[0], trace.x[-1]) == (gap.first_step[0] - 0.5, gap.last_step[-1] + 0.5)
    assert (trace.x[60], trace.y[60]) == (gap.last_step[59] + 0.5, 0)
    assert (np.diff(trace.x) > 0).all()


def test_outlines_of_states_are_stacked_to_the_top_and_go_down_to_the_axis_where_steps_are_missing(course: Timeline) -> None:
    later = 100.0 * (np.arange(len(course.start)) >= 80)
    gap = replace(course, start=course.start + later, end=course.end + later)

    whole, torn = (states_picture.picture(one).outlines for one in (course, gap))

    assert [one.state for one in whole] == [*course.states][::-1], "the outline of all states lies below the others"
    assert set(re.findall(r"V([\d.]+)H", whole[0].path)) == {"0.0"}
    assert [one.path.count("V100H") for one in whole + torn] == [0] * len(whole) + [1] * len(torn)


@pytest.mark.parametrize("axis", ["time", "step"])
def test_what_is_outside_of_the_window_is_shaded(course: Timeline, axis: ledger.Axis) -> None:
    middle = float(course.start[50]), float(course.end[99])

    assert len(ledger.over_time(course, axis, "share", window=middle).layout.shapes) == 2
    assert len(ledger.over_time(course, axis, "share").layout.shapes) == 0


def test_a_moment_lies_where_its_step_is(course: Timeline) -> None:
    assert ledger.position(course, "step", float(course.start[0])) == pytest.approx(course.first_step[0] - 0.5)
    assert ledger.position(course, "step", float(course.end[-1])) == pytest.approx(course.last_step[-1] + 0.5)


def test_changes_are_numbered_and_late_ranks_have_a_strip(course: Timeline, report: Report) -> None:
    figure = steps.over_run(course, report.course, "step")

    texts = [one.text for one in figure.layout.annotations]
    assert {"<b>1</b>", "<b>2</b>", "rank 2 late "} <= set(texts)


def test_a_rank_of_every_row_can_be_clicked_however_many_there_are() -> None:
    figure = steps.cells(_grid(200, 100), "step")

    points = figure.data[1]
    assert len(points.x) <= 4000
    assert set(points.customdata[:, 0]) == set(range(200))


def test_a_point_says_its_rank_its_steps_and_its_window(aligned_steps: Steps) -> None:
    grid = own_time(aligned_steps)
    points = steps.cells(grid, "time").data[1]

    at = next(index for index, one in enumerate(points.customdata) if one[0] == 2)
    assert steps.cell_of_point(grid, at) == (2, grid.start[0], grid.end[0])
    row = list(grid.first_rank).index(2)
    assert points.customdata[at].tolist() == [2, 3, grid.last_step[0], pytest.approx(grid.worst_seconds[row, 0] * 1e3, abs=1e-4)]


def test_rows_of_several_ranks_are_named_so() -> None:
    grid = replace(_grid(4, 3), first_rank=np.array([0, 5, 10, 15]), last_rank=np.array([4, 9, 14, 19]))

    assert steps.cells(grid, "step").layout.yaxis.ticktext == ("0-4", "5-9", "10-14", "15-19")


def test_the_quantiles_are_named_with_their_values(report: Report) -> None:
    figure = steps.spread(histogram(np.array([0.1, 0.1, 0.2, 0.15])), report.step_seconds)

    assert [trace.name.split()[0] for trace in figure.data[1:]] == ["p50", "p95", "p99"]


def test_nothing_is_drawn_where_steps_are_missing() -> None:
    def grid(first: list[int], last: list[int]) -> RankGrid:
        seconds, ranks, begin, end = np.full((2, len(first)), 0.1), np.arange(2), np.array(first), np.array(last)
        worst = np.zeros_like(seconds, dtype=np.int64)
        return RankGrid(ranks, ranks, begin, end, begin / 10, end / 10 + 0.1, seconds, seconds, worst)

    for axis in ("step", "time"):
        whole, torn = (steps.cells(grid([1, 5, 9], last), axis).data[0] for last in ([4, 8, 12], [4, 6, 12]))
        assert np.shape(whole.z) == (2, 3)
        assert np.isnan(np.asarray(torn.z)).all(axis=0).tolist() == [False, False, True, False]
        assert len(torn.x) == 5
