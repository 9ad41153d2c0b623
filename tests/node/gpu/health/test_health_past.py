"""How long a state lasted and how much a counter grew, within the window and not beyond it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_readings import reading
from tachoscope_core.metrics import gpu as names
from tachoscope_node.gpu.health.history import GpuHistory, observe
from tachoscope_node.gpu.reading import Reading
from trying import each

WINDOW = 60.0


def watch(readings: list[Reading], seconds: float = 1.0) -> GpuHistory:
    past = GpuHistory()
    for number, one in enumerate(readings):
        past = observe(past, one, 100.0 + number * seconds, frozenset(), WINDOW)
    return past


def throttled(*reasons: str) -> Reading:
    return reading(*((names.GPU_THROTTLED, (reason,), 1.0) for reason in reasons))


def replays(value: float) -> Reading:
    return reading((names.GPU_PCIE_REPLAYS, (), value))


def test_seconds_of_throttling_are_those_of_the_window() -> None:
    assert watch([throttled("power_brake")] * 24).seconds("power_brake") == 23
    assert watch([throttled("power_brake")] * 500).seconds("power_brake") == WINDOW
    assert watch([throttled("power_brake")] * 500 + [reading()] * 500).seconds("power_brake") == 0


def test_every_other_second_is_half_of_the_time() -> None:
    assert watch([throttled("power_brake"), reading()] * 100).seconds("power_brake") == 30


def test_the_general_bit_counts_only_where_no_other_says_more() -> None:
    past = watch([throttled("hardware_slowdown", "hardware_thermal")] * 11 + [throttled("hardware_slowdown")] * 7)
    assert (past.seconds("hardware_thermal"), past.seconds("hardware_slowdown")) == (10, 7)


def test_what_the_driver_does_for_the_heat_explains_nothing_that_the_hardware_does() -> None:
    past = watch([throttled("hardware_slowdown", "thermal")] * 11 + [throttled("hardware_thermal", "thermal")] * 7)
    assert {reason: past.seconds(reason) for reason in ("hardware_slowdown", "hardware_thermal", "thermal")} == {
        "hardware_slowdown": 10,
        "hardware_thermal": 7,
        "thermal": 17,
    }


@each("reason", ["idle", "application_clocks", "power_cap", "sync_boost"])
def test_clocks_that_are_as_they_should_be_are_no_time_of_throttling(reason: str) -> None:
    assert watch([throttled(reason)] * 24).amounts == ()


def test_a_long_gap_between_readings_says_little_of_the_time_between() -> None:
    assert watch([throttled("power_brake")] * 2, seconds=3600.0).seconds("power_brake") <= 20


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_a_counters_growth_is_the_sum_of_its_steps(steps: list[float]) -> None:
    total, seen = 7.0, []
    for step in steps:
        seen.append(replays(total))
        total += step
    growth = watch(seen).growth("pcie_replays")
    if len(seen) < 2:
        assert growth is None
    else:
        assert growth == pytest.approx(total - steps[-1] - 7.0, abs=1e-6)


def test_a_counter_that_was_reset_grows_from_nothing() -> None:
    assert watch([replays(100.0), replays(103.0), replays(0.0), replays(2.0)]).growth("pcie_replays") == 5


def test_growth_before_the_window_is_forgotten() -> None:
    assert watch([replays(0.0), *[replays(50.0)] * 100]).growth("pcie_replays") == 0


def test_the_parts_of_nvlink_errors_add_up() -> None:
    def errors(replay: float, recovery: float, crc: float) -> Reading:
        kinds = {"replay": replay, "recovery": recovery, "crc_flit": crc, "crc_data": 1.0}
        return reading(*((names.GPU_NVLINK_ERRORS, (kind,), value) for kind, value in kinds.items()))

    past = watch([errors(0, 0, 10), errors(2, 3, 40)])
    assert (past.growth("nvlink_errors"), past.growth("nvlink_crc")) == (5, 30)


def test_silence_adds_up_until_it_answers() -> None:
    silent = reading(fine=False, up=False, fault="no_answer")
    assert watch([reading(), *[silent] * 13]).silent_seconds == 13
    assert watch([reading(), *[silent] * 13, reading()]).silent_seconds == 0


def test_a_reading_that_nobody_renews_grows_stale() -> None:
    same = reading()
    assert watch([same] * 8).stale_seconds == 7
    assert watch([reading() for _ in range(8)]).stale_seconds == 0


def test_of_a_gpu_that_is_well_nothing_is_kept() -> None:
    assert watch([reading() for _ in range(500)]).amounts == ()
