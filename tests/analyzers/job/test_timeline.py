from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from course_making import late, planted
from course_making import lines as planted_lines
from gpu_making import FakeGpu, gpu_job
from making import job as made
from tachoscope_analyzers.job.classify import Classification, decide
from tachoscope_analyzers.job.report import report_of
from tachoscope_analyzers.job.timeline import MOST_BINS, Timeline, bin_edges, step_edges, timeline
from tachoscope_analyzers.records.load import from_spool
from tachoscope_analyzers.records.steps import aligned
from tachoscope_analyzers.records.window import within
from tachoscope_core.records import records
from tachoscope_core.report.report import LEDGER_TOLERANCE, Report


def _judged(folder: Path, **options: object) -> tuple[Classification, Report]:
    job = from_spool([planted(folder, late(1, 151, 300, 0.05), **options)])  # type: ignore[arg-type]
    decided = decide(job, aligned(job))
    return decided, report_of(job, decided)


def _sums(course: Timeline) -> np.ndarray:
    return np.asarray(sum(course.states.values()))


@pytest.mark.parametrize(
    "most", [1, pytest.param(2, marks=pytest.mark.bar), 7, pytest.param(60, marks=pytest.mark.bar), 298, 10_000]
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_states_of_each_bin_sum_to_its_wall_time_and_the_bins_to_the_ledger(tmp_path: Path, most: int, ranks: int) -> None:
    decided, report = _judged(tmp_path, steps=300, ranks=ranks, seed=most)

    course = timeline(decided, most)

    np.testing.assert_allclose(_sums(course), course.wall, rtol=LEDGER_TOLERANCE)
    main = report.ledgers[0]
    assert course.wall.sum() == pytest.approx(main.wall_seconds, rel=LEDGER_TOLERANCE)
    assert {state: seconds.sum() for state, seconds in course.states.items()} == pytest.approx(main.states, rel=LEDGER_TOLERANCE)
    assert course.steps.sum() == report.window.steps


def test_a_wait_that_begins_in_the_middle_is_seen_from_there_on(tmp_path: Path) -> None:
    course = timeline(_judged(tmp_path, steps=300)[0])

    share = course.states["straggler_wait"] / course.wall
    assert share[course.last_step <= 150].mean() < 0.1
    assert share[course.first_step > 150].mean() > 0.2
    assert course.p50[-1] == pytest.approx(course.p50[0] + 0.05, abs=0.01)


def test_bins_follow_each_other_and_are_at_most_two_hundred(tmp_path: Path) -> None:
    course = timeline(_judged(tmp_path, steps=900, ranks=2)[0])

    assert len(course.wall) == MOST_BINS
    assert (course.first_step[1:] == course.last_step[:-1] + 1).all()
    assert (course.end[1:] > course.end[:-1]).all()


def test_seconds_that_no_record_covers_are_unexplained_in_their_bin(tmp_path: Path) -> None:
    lines = made([[{"forward": 0.1}] for _ in range(40)]).splitlines(keepends=True)
    kept = [line for line in lines if not any(f'"step":{step},'.encode() in line for step in range(21, 26))]
    (tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl").write_bytes(b"".join(kept))
    job = from_spool([tmp_path])

    course = timeline(decide(job, aligned(job)), 4)

    np.testing.assert_allclose(_sums(course), course.wall, rtol=LEDGER_TOLERANCE)
    assert course.states["unexplained"].max() == pytest.approx(0.5, rel=0.01)


def test_fewer_things_than_bins_are_a_bin_each() -> None:
    assert bin_edges(3, 200).tolist() == [0, 1, 2, 3]


def test_bins_of_few_steps_sum_on_accelerators_too_whose_clocks_cut_steps_elsewhere(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    rows = []
    for line in gpu_job([FakeGpu(0), FakeGpu(1)], 60.0, gap=0.1).splitlines():
        row = records.decode(line)
        if isinstance(row, records.StepDone):  # what the device was at lies partly in the steps before and after
            shifted = {name: seconds * generator.uniform(0.8, 1.2) for name, seconds in row.device_seconds.items()}
            row = msgspec.structs.replace(row, device_seconds=shifted)
        rows.append(records.encode(row))
    (tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl").write_bytes(b"".join(rows))
    job = from_spool([tmp_path])

    course = timeline(decide(job, aligned(job)))

    assert (course.steps == 1).all()
    np.testing.assert_allclose(_sums(course), course.wall, rtol=LEDGER_TOLERANCE)
    assert all((seconds >= 0).all() for seconds in course.states.values())


@pytest.mark.parametrize(("first", "last"), [(0, 57), (10, 19), (57, 57), (0, 0)])
def test_a_window_between_two_edges_holds_the_steps_between_though_clocks_differ(tmp_path: Path, first: int, last: int) -> None:
    lines = []
    for line in planted_lines(steps=60, ranks=2).splitlines():
        row = records.decode(line)
        lines.append(records.encode(msgspec.structs.replace(row, time=row.time + 0.04 * row.rank)))
    (tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl").write_bytes(b"".join(lines))
    job = from_spool([tmp_path])
    edges = step_edges(aligned(job))

    window = within(job, round(edges[first], 3), round(edges[last + 1], 3))

    numbers = aligned(window).numbers
    assert {int(numbers[0]), int(numbers[-1])} == {first + 3, last + 3}
