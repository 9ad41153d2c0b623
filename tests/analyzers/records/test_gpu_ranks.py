"""Samples compared with steps: what counters and gauges say of each step, across gaps, resets and cells that are missing."""

import math
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_making import BEGIN, FakeGpu, gpu_job, write_job, write_samples
from tachoscope_analyzers.records.gpu_by_rank import RankGpu, rank_gpus
from tachoscope_analyzers.records.gpu_samples import GpuSamples
from tachoscope_analyzers.records.load import from_store
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.metrics.gpu import GPU_UTILIZATION
from tachoscope_core.storage.store import Store

NAN = math.nan


def made(times: list[float], gauge: list[float] | None = None, steps: tuple[float, ...] = (0.0, 10.0, 20.0, 30.0)) -> RankGpu:
    samples = GpuSamples(array("d", times), {(GPU_UTILIZATION.name,): array("d", gauge or [NAN] * len(times))})
    edges = np.array(steps)
    seconds = np.diff(times)
    return RankGpu(0, 0, samples, np.array(times), seconds <= 3 * np.median(seconds), edges[:-1], edges[1:])


def test_a_counters_growth_falls_on_the_steps_in_which_it_grew() -> None:
    gpu = made([0.0, 10.0, 20.0, 30.0])
    rate = gpu.rate(np.array([100.0, 100.0, 104.0, 105.0]))

    assert gpu.by_step(rate).tolist() == [0.0, 0.4, 0.1]
    assert gpu.seconds(rate) == pytest.approx(5.0)
    assert gpu.coverage(rate) == 1.0


def test_a_counter_that_fell_counts_from_zero_again() -> None:
    gpu = made([0.0, 10.0, 20.0, 30.0])

    assert (gpu.rate(np.array([100.0, 104.0, 3.0, 5.0])) * 10).tolist() == pytest.approx([4.0, 3.0, 2.0])


def test_a_counter_that_was_not_told_for_a_while_is_spread_over_it_and_outside_unknown() -> None:
    gpu = made([-10.0, 0.0, 10.0, 20.0, 30.0])
    rate = gpu.rate(np.array([NAN, 0.0, NAN, 6.0, NAN]))

    assert rate.tolist() == pytest.approx([NAN, 0.3, 0.3, NAN], nan_ok=True)
    assert gpu.coverage(rate) == pytest.approx(2 / 3)
    assert np.isnan(gpu.rate(np.full(5, NAN))).all()


def test_of_a_gap_between_samples_nothing_is_known() -> None:
    gpu = made([0.0, 10.0, 20.0, 120.0, 130.0], [1.0, 1.0, 1.0, 0.0, 0.0], steps=(0.0, 20.0, 120.0, 130.0))
    spans = gpu.between(gpu.values(GPU_UTILIZATION))

    assert np.isnan(spans).tolist() == [False, False, True, False]
    assert gpu.by_step(spans).tolist() == pytest.approx([1.0, NAN, 0.0], nan_ok=True)
    assert gpu.mean(spans) == pytest.approx(2 / 3)
    assert gpu.coverage(spans) == pytest.approx(30 / 130)


def test_a_gauge_is_the_mean_of_both_ends_or_of_the_one_that_was_told() -> None:
    gpu = made([0.0, 10.0, 20.0, 30.0], [1.0, 0.5, NAN, NAN])

    assert gpu.between(gpu.values(GPU_UTILIZATION)).tolist() == pytest.approx([0.75, 0.5, NAN], nan_ok=True)
    assert gpu.lowest(gpu.values(GPU_UTILIZATION)).tolist() == pytest.approx([0.5, 0.5, NAN], nan_ok=True)


def test_steps_outside_of_all_samples_are_unknown() -> None:
    gpu = made([0.0, 10.0, 20.0], [1.0, 1.0, 1.0], steps=(-20.0, -10.0, 0.0, 5.0, 40.0))
    spans = gpu.between(gpu.values(GPU_UTILIZATION))

    assert gpu.by_step(spans).tolist() == pytest.approx([NAN, NAN, 1.0, 1.0], nan_ok=True)
    assert gpu.coverage(spans) == pytest.approx(20 / 60)


@settings(deadline=None)
@given(
    st.lists(st.floats(0.1, 100.0), min_size=2, max_size=30),
    st.lists(st.floats(0.01, 60.0), min_size=1, max_size=50),
    st.data(),
)
def test_however_steps_and_samples_lie_nothing_is_counted_twice_or_lost(
    grown: list[float], walls: list[float], data: st.DataObject
) -> None:
    times = [15.0 * number for number in range(len(grown))]
    begin = data.draw(st.floats(-30.0, times[-1]))
    steps = begin + np.concatenate([[0.0], np.cumsum(walls)])
    gpu = made(times, steps=tuple(steps))
    counter = np.cumsum(grown)

    inside = np.interp(steps[-1], times, counter) - np.interp(steps[0], times, counter)

    assert gpu.seconds(gpu.rate(counter)) == pytest.approx(inside, abs=1e-6)


@pytest.mark.parametrize(("every", "measured"), [(15.0, True), (29.0, False)])
def test_a_job_with_fewer_than_three_samples_is_not_measured(tmp_path: Path, every: float, measured: bool) -> None:
    store = Store(str(tmp_path))
    write_job(store, gpu_job([FakeGpu(0)], 60.0))
    write_samples(store, [FakeGpu(0)], 60.0, every=every)
    job = from_store(store, "planted")

    found, missing = rank_gpus(job, aligned(job))

    assert bool(found) is measured
    assert ("at least 3 metric samples" in missing.get(0, "")) is not measured


def test_steps_are_placed_by_the_records_own_clock(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    write_job(store, gpu_job([FakeGpu(0)], 60.0))
    write_samples(store, [FakeGpu(0)], 60.0)
    job = from_store(store, "planted")

    (gpu,), _ = rank_gpus(job, aligned(job))

    assert gpu.ends[-1] == pytest.approx(BEGIN + 60.0)
    assert gpu.starts[1:] == pytest.approx(gpu.ends[:-1])
