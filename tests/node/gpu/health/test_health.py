"""Each planted fault makes the verdict that the thresholds say, with value, threshold and action; unknown is never healthy."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_readings import FINE, Value, lost, reading, uuid
from tachoscope_core.metrics import gpu as names
from tachoscope_core.metrics.gpu import ACTIONS, GPU_HEALTH_STATES
from tachoscope_node.gpu.health.history import GpuHistory, observe
from tachoscope_node.gpu.health.rules import GRAVITY, HealthVerdict, holds, judge_gpu, thresholds
from tachoscope_node.gpu.reading import FAULTS, Reading
from tachoscope_node.gpu.xid.counter import XidError, about
from trying import each

NOW = 1_000_000.0
MOST_NVLINKS = 18.0

Plant = Callable[[float], Sequence[Reading]]


def look(readings: Sequence[Reading], xids: Sequence[XidError] = (), seconds: float = 1.0) -> HealthVerdict:
    """Judge the last of some readings, one a second."""
    past = GpuHistory()
    for number, one in enumerate(readings):
        past = observe(past, one, 100.0 + number * seconds, holds(one, MOST_NVLINKS), thresholds().window_seconds)
    return judge_gpu(readings[-1], past, xids, NOW, most_nvlinks=MOST_NVLINKS)


def lasting(*values: Value) -> list[Reading]:
    return [reading(*values) for _ in range(70)]


def throttled(reason: str) -> Plant:
    return lambda seconds: [reading()] + [reading((names.GPU_THROTTLED, (reason,), 1.0))] * int(seconds)


def growing(*kinds: tuple[names.Metric, tuple[str, ...]], times: float = 1.0) -> Plant:
    return lambda growth: [
        reading(*((metric, labels, 100.0) for metric, labels in kinds)),
        reading((*kinds[0], 100.0 + growth * times), *((metric, labels, 100.0) for metric, labels in kinds[1:])),
    ]


NVLINK = names.GPU_NVLINK_ERRORS
PLANTS: dict[str, tuple[Plant, Sequence[float], Sequence[float]]] = {
    "ecc_uncorrected": (lambda value: [reading((names.GPU_ECC_ERRORS, ("uncorrected", "volatile"), value))], [0], [1, 9]),
    "row_remap_pending": (lambda value: [reading((names.GPU_ROW_REMAP, ("pending",), value))], [0], [1]),
    "row_remap_failed": (lambda value: [reading((names.GPU_ROW_REMAP, ("failed",), value))], [0], [1]),
    "retired_pages": (lambda value: [reading((names.GPU_RETIRED_PAGES, ("corrected",), value))], [0, 62], [63, 64]),
    "hardware_slowdown": (throttled("hardware_slowdown"), [0, 9], [10, 50]),
    "hardware_thermal": (throttled("hardware_thermal"), [0, 9], [10, 50]),
    "thermal": (throttled("thermal"), [0, 29], [30, 50]),
    "power_brake": (throttled("power_brake"), [0, 9], [10, 50]),
    "temperature_gpu": (lambda value: lasting((names.GPU_TEMPERATURE_MARGIN, ("gpu",), value)), [3, 40], [2, 0, -5]),
    "temperature_memory": (lambda value: lasting((names.GPU_TEMPERATURE_MARGIN, ("memory",), value)), [3, 40], [2, 0, -5]),
    "pcie_width": (lambda value: lasting((names.GPU_PCIE_LINK, ("width", "current"), value)), [16], [8, 1]),
    "pcie_replays": (growing((names.GPU_PCIE_REPLAYS, ())), [0, 8], [9, 1000]),
    "nvlinks_active": (lambda value: lasting((names.GPU_NVLINKS, ("active",), value)), [18], [17, 0]),
    "nvlink_errors": (growing((NVLINK, ("recovery",)), (NVLINK, ("replay",))), [0], [1, 50]),
    "nvlink_crc": (growing((NVLINK, ("crc_flit",)), (NVLINK, ("crc_data",)), times=60.0), [0, 99], [100, 500]),
}
"""For each rule: how to plant a value, values that are fine, and values that are not."""


def error(code: int, age: float = 10.0, *, reset_since: bool = False) -> XidError:
    return XidError(uuid(0), "0", about(code), 1, NOW - age, "", reset_since)


def test_every_rule_of_the_thresholds_is_planted_here_and_has_a_source() -> None:
    limits = thresholds()
    assert set(limits.rules) == set(PLANTS)
    assert all(rule.source.startswith("https://") for rule in limits.rules.values())
    assert set(GRAVITY) == set(GPU_HEALTH_STATES)


@each("rule", PLANTS)
def test_a_value_beyond_its_threshold_is_the_reason_and_one_within_it_is_not(rule: str) -> None:
    plant, fine, bad = PLANTS[rule]
    known = thresholds().rules[rule]
    for value in fine:
        assert look(plant(value)) == HealthVerdict("healthy", (), look(plant(value)).not_measured), value
        assert rule not in look(plant(value)).not_measured
    for value in bad:
        verdict = look(plant(value))
        (reason,) = verdict.reasons
        assert (reason.what, reason.value, reason.severity, reason.action) == (rule, value, known.severity, known.action)
        assert verdict.state == known.severity
        compare = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}[reason.comparison]
        assert compare(reason.value, reason.threshold)
        assert f"{reason.value:g}" in reason.text
        assert f"{reason.threshold:g}" in reason.text


@each("rule", [rule for rule in PLANTS if thresholds().rules[rule].for_seconds])
def test_what_must_last_is_no_reason_while_it_is_short(rule: str) -> None:
    plant, _, bad = PLANTS[rule]
    bad_reading = plant(bad[0])[-1]
    assert look([reading(), *[bad_reading] * 9]).state == "healthy"
    assert look([reading(), *[bad_reading] * 10]).state == "degraded"


def test_a_gpu_without_values_is_unknown_and_says_why() -> None:
    verdict = look([reading(fine=False)])
    assert verdict.state == "unknown"
    assert [reason.what for reason in verdict.reasons] == ["not_measured"]
    assert set(verdict.not_measured) == set(PLANTS)


def test_values_that_tell_nothing_of_health_leave_it_unknown() -> None:
    busy = reading(
        (names.GPU_UTILIZATION, (), 0.9), (names.GPU_TEMPERATURE, ("gpu",), 95.0), (names.GPU_POWER, ("usage",), 700.0), fine=False
    )
    assert look([busy]).state == "unknown"


def test_what_was_not_measured_is_listed_beside_a_healthy_verdict() -> None:
    verdict = look([reading((names.GPU_ECC_ERRORS, ("uncorrected", "volatile"), 0.0), fine=False)])
    assert verdict.state == "healthy"
    assert set(verdict.not_measured) == set(PLANTS) - {"ecc_uncorrected"}


def test_a_lost_gpu_is_unhealthy_at_once() -> None:
    verdict = look([reading(), lost()])
    assert verdict.state == "unhealthy"
    assert [(reason.what, reason.action) for reason in verdict.reasons] == [("lost", "reboot_node")]
    assert "GPU is lost" in verdict.reasons[0].text


@pytest.mark.parametrize(("fault", "action"), [("no_answer", "reboot_node"), ("driver_error", "drain_node")])
def test_a_gpu_that_does_not_answer_is_unknown_for_a_minute_and_then_unhealthy(fault: str, action: str) -> None:
    silent = reading(fine=False, up=False, fault=fault, detail="the driver's words")
    for seconds, state, comparison in ((1, "unknown", "<"), (59, "unknown", "<"), (60, "unhealthy", ">="), (94, "unhealthy", ">=")):
        verdict = look([reading(), *[silent] * seconds])
        (reason,) = verdict.reasons
        assert (verdict.state, reason.what, reason.comparison, reason.threshold) == (state, fault, comparison, 60.0)
        assert reason.value == seconds
        assert reason.action == (action if state == "unhealthy" else "none")
        assert f"for {seconds} s {comparison} 60 s: the driver's words" in reason.text


def test_a_time_that_is_added_up_is_no_more_than_the_window_and_told_without_its_thousandths() -> None:
    bad = reading((names.GPU_THROTTLED, ("hardware_slowdown",), 1.0))
    (reason,) = look([reading(), *[bad] * 70], seconds=1.0007).reasons
    assert reason.text == "hardware slowdown: 60 seconds of the last 60 >= 10"
    assert reason.value <= thresholds().window_seconds


def test_a_reading_that_nobody_renews_is_no_longer_believed() -> None:
    assert look([reading()] * 2).state == "healthy"
    verdict = look([reading_ := reading(), *[reading_] * 90])
    assert (verdict.state, verdict.reasons[0].what) == ("unknown", "stale")


@each("code", [*range(1, 173), 9999])
def test_an_xid_error_counts_by_its_severity(code: int) -> None:
    verdict = look([reading()], [error(code)])
    known = about(code)
    assert verdict.state == {"none": "healthy"}.get(known.severity, known.severity)
    assert [(reason.what, reason.action) for reason in verdict.reasons] == (
        [] if known.severity == "none" else [(f"xid_{code}", known.action)]
    )


def test_an_xid_error_counts_for_a_day_or_until_the_reset_that_it_asks_for() -> None:
    day = thresholds().xid_seconds
    assert look([reading()], [error(79, age=day - 1)]).state == "unhealthy"
    assert look([reading()], [error(79, age=day + 1)]).state == "healthy"
    assert look([reading()], [error(79, reset_since=True)]).state == "healthy"
    assert look([reading()], [error(92, reset_since=True)]).state == "degraded", "a reset fixes no hardware that must be inspected"


@each("number", range(9))
def test_the_drivers_own_advice_is_taken(number: int) -> None:
    verdict = look([reading((names.GPU_RECOVERY_ACTION, (), float(number)))])
    expected = {0: "healthy", 1: "unhealthy", 2: "unhealthy", 6: "unhealthy", 7: "unhealthy"}.get(number, "degraded")
    assert verdict.state == expected
    assert [reason.action for reason in verdict.reasons] == {
        0: [],
        1: ["reset_gpu"],
        2: ["reboot_node"],
        6: ["reset_gpu"],
        7: ["reboot_node"],
    }.get(number, ["drain_node"])


def test_every_reason_is_in_the_table_of_the_page() -> None:
    docs = Path(__file__).parents[4] / "docs"
    page = (docs / "reference" / "gpus.md").read_text()
    for reason in (*PLANTS, *FAULTS, "stale", "not_measured", "gpus_missing", "xid_<code>", "recovery_action"):
        assert f"\n| `{reason}`" in page, reason
    for advice in thresholds().recovery_actions.values():
        assert advice.severity == "none" or advice.says in page
    for action in ACTIONS:
        assert f"`{action}`" in (docs / "agent" / "health.md").read_text()


def test_the_gravest_reason_comes_first() -> None:
    verdict = look([reading((names.GPU_ROW_REMAP, ("pending",), 1.0), (names.GPU_ROW_REMAP, ("failed",), 1.0))], [error(94)])
    assert verdict.reasons[0].what == "row_remap_failed"
    assert {reason.what for reason in verdict.reasons} == {"row_remap_failed", "row_remap_pending", "xid_94"}


VALUES = st.lists(st.sampled_from(FINE), unique=True, max_size=len(FINE)).map(list)
BAD = st.sampled_from(
    [(rule, value) for rule, (_, _, bad) in PLANTS.items() for value in bad if rule not in ("pcie_width", "nvlinks_active")]
)
CODES = st.lists(st.integers(1, 200), max_size=4)


@given(VALUES, st.lists(BAD, max_size=3), CODES, BAD)
def test_a_bad_value_more_never_makes_the_verdict_better(
    values: list[Value], before: list[tuple[str, float]], codes: list[int], bad: tuple[str, float]
) -> None:
    """From unknown, where nothing was measured, a bad value is knowledge: then the verdict is at least not healthy."""

    def series(faults: list[tuple[str, float]]) -> list[Reading]:
        made = [reading(*values, fine=False)] * 70
        for rule, value in faults:
            planted = PLANTS[rule][0](value)
            planted = [planted[0]] * (70 - len(planted)) + list(planted)
            made = [merge(one, plant, values) for one, plant in zip(made, planted, strict=True)]
        return made

    xids = [error(code) for code in codes]
    less, more = look(series(before), xids), look(series([*before, bad]), xids)
    assert more.state != "healthy"
    assert less.state == "unknown" or GRAVITY.index(more.state) >= GRAVITY.index(less.state)
    worse = look(series(before), [*xids, error(79)])
    assert worse.state == "unhealthy"
    for verdict in (less, more):
        assert all(reason.action in ACTIONS for reason in verdict.reasons)


def merge(one: Reading, plant: Reading, fine: list[Value]) -> Reading:
    """Return a reading with what is bad in either: a value of the plant that is not as fine GPUs have it wins."""
    usual = {(metric.name, labels): value for metric, labels, value in FINE}
    held = {name: dict(found) for name, found in one.values.items()}
    for name, found in plant.values.items():
        for labels, value in found.items():
            if usual.get((name, labels)) != value:
                held.setdefault(name, {})[labels] = value
    return replace(one, values=held)


@given(VALUES)
def test_the_more_is_measured_the_less_is_listed_as_not_measured(values: list[Value]) -> None:
    assert set(look([reading()] * 2).not_measured) <= set(look([reading(*values, fine=False)] * 2).not_measured)
