"""How many loader workers: compared with a simulated loader whose costs are planted, and against what a host's cores allow."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loader_simulation import waits
from tachoscope_analyzers.advice import workers
from tachoscope_analyzers.advice.workers import Input, expected_step, needed_workers, shortest_step
from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.records.cores import Cores

RATIOS = st.floats(0.01, 24.0)


@given(ratio=RATIOS, step=st.floats(0.01, 1.0))
def test_with_the_advised_workers_no_step_waits_and_with_clearly_fewer_than_the_ratio_they_do(ratio: float, step: float) -> None:
    making, fewer = ratio * step, math.ceil(0.9 * ratio) - 1
    number = needed_workers(making, step)

    assert max(waits([making] * (20 * number), step, number)) <= 1e-9 * step * number
    if fewer > 0:
        assert sum(waits([making] * (20 * number), step, fewer)) > 0


@given(ratio=RATIOS, seed=st.integers(0, 1000))
def test_batches_that_differ_by_half_hardly_wait_with_the_advised_workers(ratio: float, seed: int) -> None:
    source = random.Random(seed)
    number = needed_workers(ratio, 1.0)

    lost = waits([ratio * source.uniform(0.5, 1.5) for _ in range(30 * number)], 1.0, number)

    assert sum(lost) / (sum(lost) + len(lost)) < threshold("warning_share")


def test_what_a_step_has_room_for_needs_no_worker_more_than_that() -> None:
    assert [needed_workers(making, 0.1) for making in (0.0999, 0.1, 0.1001, 0.3)] == [2, 2, 3, 4]


def test_a_step_that_takes_no_time_has_no_number_of_workers() -> None:
    with pytest.raises(ValueError, match="no number of workers"):
        needed_workers(0.1, 0.0)


@given(step=st.floats(0.01, 10.0), used=st.floats(0.1, 64.0), idle=st.floats(0.0, 64.0))
def test_no_step_is_shorter_than_its_core_seconds_over_all_cores(step: float, used: float, idle: float) -> None:
    shortest = shortest_step(step, Cores(used, idle))

    assert shortest * (used + idle) == pytest.approx(step * used)
    assert shortest <= step * (1 + 1e-12)


PLAIN = Input(step=0.175, rest=0.095, making=0.08, workers=0, computing=0.1, cores=Cores(2.0, 14.0, 16), splits=True)


def test_the_words_carry_the_formula_and_its_numbers() -> None:
    assert workers.advice(PLAIN).text == (
        "DataLoader(num_workers=2, persistent_workers=True): a step's input takes 80 ms in one process, the rest of the step "
        "95 ms; ceil(80 ms / 95 ms) + 1 = 2 workers a rank; 14 of 16 cores are idle. Expected step: 95 ms instead of 175 ms"
    )


def test_where_no_core_is_idle_more_workers_are_said_to_bring_nothing() -> None:
    words = workers.advice(Input(step=0.175, rest=0.095, making=0.08, workers=0, computing=1.0, cores=Cores(1.95, 0.05, 2))).text

    assert words.startswith("more workers cannot help: the job keeps 1.9 cores busy and 0.05 are idle")
    assert words.endswith("Expected step without it: 95 ms instead of 175 ms")


def test_where_some_cores_are_idle_the_step_is_as_long_as_they_allow() -> None:
    bound = Input(step=0.379, rest=0.099, making=0.28, workers=0, computing=1.0, cores=Cores(1.9, 1.1, 3))

    assert expected_step(bound) == pytest.approx(0.379 * 1.9 / 3.0)
    assert f"ceil(280 ms / 240 ms) + 1 = {math.ceil(280 / 240) + 1} workers" in workers.advice(bound).text
    assert workers.advice(bound).text.endswith(
        "The cores allow steps of 240 ms to 320 ms, not 379 ms; 99 ms if input is made cheaper"
    )


@pytest.mark.parametrize(
    ("computing", "words"), [(0.1, " a rank. Expected"), (1.0, "if cores are free: other processes use 1.8 of 2")]
)
def test_cores_that_other_processes_hold_are_not_the_limit(computing: float, words: str) -> None:
    taken = Input(step=0.175, rest=0.095, making=0.08, workers=0, computing=computing, cores=Cores(0.2, 0.0, 2), splits=True)

    assert expected_step(taken) == taken.rest
    assert words in workers.advice(taken).text


def test_a_loader_that_sleeps_needs_no_idle_core() -> None:
    asleep = Input(step=0.175, rest=0.095, making=0.08, workers=0, computing=0.1, cores=Cores(1.95, 0.05, 2))

    assert expected_step(asleep) == asleep.rest


def test_cores_that_were_not_measured_are_a_condition_only_for_a_loader_that_computes() -> None:
    computing, sleeping = (
        workers.advice(Input(step=0.2, rest=0.1, making=0.1, workers=0, computing=busy)).text for busy in (0.9, 0.1)
    )

    assert "if as many cores are free" in computing
    assert "cores" not in sleeping


def test_workers_that_were_seen_bound_what_making_takes_from_above() -> None:
    words = workers.advice(Input(step=0.14, rest=0.1, making=0.28, workers=2, computing=0.1, splits=True)).text

    assert words == (
        "DataLoader(num_workers=4): 2 workers now bring one step's input every 140 ms, the rest of the step 100 ms; "
        "ceil(2 x 140 ms / 100 ms) + 1 = 4 workers a rank. Expected step: 100 ms instead of 140 ms"
    )


@pytest.mark.parametrize("found", [Input(0.1, 0.0, 0.1, 0), Input(0.1, 0.05, 0.0, 0), Input(0.1, 0.1, 0.1, 0)])
def test_a_number_that_is_missing_gives_no_advice(found: Input) -> None:
    assert workers.advice(found).text == ""


def test_storage_is_asked_for_the_rate_at_which_the_step_then_reads() -> None:
    words = workers.advice(Input(step=0.2, rest=0.1, making=0.1, workers=0, bytes=12e6)).text

    assert words.endswith("if storage gives 120 MB/s (now 60)")


def test_no_words_are_longer_than_a_reader_takes_in() -> None:
    bound = Input(98.7, 43.2, 1579.2, 16, computing=0.9, cores=Cores(123.4, 45.6, 224))
    late = Input(98.7, 43.2, 1579.2, 16, (4, 9, 12, 77, 99), cores=Cores(63.4, 145.6, 224))

    assert len(workers.advice(bound).text) <= 320
    assert len(workers.advice(late).text) <= 320
    assert len(workers.start_of_workers(0.0123, 1234.5, 98.7, 65.4).text) <= 300


def test_where_handing_over_may_take_long_the_step_is_a_range_and_programs_get_no_number() -> None:
    small = Input(step=0.030, rest=0.010, making=0.020, workers=0, computing=0.0, handover=0.0015, splits=True)
    advised = workers.advice(small)

    assert "Expected step: 11.5 ms to 14.5 ms instead of 30 ms" in advised.text
    assert advised.settings["num_workers"] >= 2
    assert advised.expected is None
    assert workers.advice(replace(small, step=0.120, rest=0.060, making=0.060)).expected == pytest.approx(0.0615)


def test_workers_that_may_make_the_step_longer_are_not_advised() -> None:
    tiny = Input(step=0.0077, rest=0.0051, making=0.0025, workers=0, computing=0.0, handover=0.0015, splits=True)

    assert workers.advice(tiny).settings == {}
    assert workers.advice(tiny).text.startswith("no workers for so small batches")
