"""Throttling with planted truth: which rank, why, how many seconds; and nothing where nothing was planted."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_making import BEGIN, OWN, FakeGpu, Held, gpu_job, write_job, write_samples
from making import envelope
from tachoscope_analyzers.classify.gpu import losses as gpu_losses
from tachoscope_analyzers.classify.gpu.throttle import Throttled
from tachoscope_analyzers.findings.missing_signals import missing_signals
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.gpu_samples import Gpus, GpuSamples
from tachoscope_analyzers.records.load import JobRecords, from_spool, from_store
from tachoscope_analyzers.records.steps import Steps, aligned
from tachoscope_core.metrics.gpu import GPU_CLOCK, GPU_THROTTLED, GPU_THROTTLED_SECONDS, GPU_UTILIZATION
from tachoscope_core.report.report import Finding, Report
from tachoscope_core.storage.store import Store

SECONDS = 400.0
ALWAYS = Held(-100.0, 10_000.0, 0.5)
RUNBOOKS = Path(__file__).parents[3] / "runbooks"


def report(tmp_path: Path, gpus: Sequence[FakeGpu], seconds: float = SECONDS, **options: Any) -> Report:
    store = Store(str(tmp_path / "store"))
    write_job(store, gpu_job(gpus, seconds, **options))
    write_samples(store, gpus, seconds)
    return checked(analyze(from_store(store, "planted")))


def checked(result: Report) -> Report:
    for ledger in result.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01)
    assert sum(finding.seconds_per_step for finding in result.findings) <= result.step_seconds.mean * (1 + 1e-6)
    assert not {finding.class_ for finding in result.findings} & {row.class_ for row in result.not_measured}
    return result


def signals(finding: Finding) -> dict[str, float]:
    return {row.signal: row.value for row in finding.evidence}


def problems(result: Report) -> list[str]:
    return [finding.class_ for finding in result.findings if finding.class_ != "compute_bound"]


def late_for_an_unknown_reason(result: Report) -> bool:
    """Whether a rank is named that computes longer than others, and a straggler is only its runner-up: it may be throttled."""
    (finding,) = result.findings
    suspected = finding.runner_up.class_ if finding.runner_up else ""
    return (finding.class_, suspected, finding.ranks != "all") == ("unknown", "compute_straggler", True)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("counters", [True, False])
def test_a_throttled_rank_that_all_wait_for_is_named_with_all_that_it_costs(tmp_path: Path, ranks: int, counters: bool) -> None:
    gpus = [FakeGpu(rank, [ALWAYS] if rank == 1 else [], counters=counters) for rank in range(ranks)]
    result = report(tmp_path, gpus)

    (finding,) = result.findings
    # At half of the clock a step of 1 s takes 2 s: also the backward, which the others' waiting hides in the step records.
    assert (finding.class_, finding.severity, finding.ranks) == ("gpu_throttle", "critical", [1])
    assert finding.seconds_per_step == pytest.approx(1.0, rel=0.02)
    assert finding.speedup_if_fixed == pytest.approx(2.0, rel=0.05)
    assert finding.runner_up is not None and finding.runner_up.class_ == "compute_straggler"
    assert signals(finding)["part of the late rank's excess that low clocks explain"] == pytest.approx(1.0)
    assert signals(finding)["SM clock over its maximum while busy"] == pytest.approx(0.5)
    assert "cooling" in finding.action
    assert (RUNBOOKS.parent / finding.runbook).is_file()


def test_the_same_job_at_full_clocks_has_nothing(tmp_path: Path) -> None:
    result = report(tmp_path, [FakeGpu(rank) for rank in range(4)])

    assert problems(result) == []
    assert "gpu_throttle" not in {row.class_ for row in result.not_measured}


@pytest.mark.parametrize("counters", [True, False])
def test_a_late_rank_at_full_clocks_stays_a_straggler(tmp_path: Path, counters: bool) -> None:
    result = report(tmp_path, [FakeGpu(0, counters=counters), FakeGpu(1, counters=counters)], extra={1: 0.5})

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("compute_straggler", [1])]


def test_twenty_three_planted_windows_are_twenty_three_seconds(tmp_path: Path) -> None:
    held = [Held(50.0 + 13.0 * number, 51.0 + 13.0 * number, 0.25, "hardware_thermal") for number in range(23)]
    result = judged([FakeGpu(0, held)])

    assert {cause: round(seconds, 6) for cause, seconds in result[0].held_seconds.items() if seconds} == {"heat": 23.0}


@pytest.mark.parametrize(
    ("reason", "cause", "action"),
    [
        ("hardware_thermal", "heat", "cooling"),
        ("power_brake", "power brake", "power suppl"),
        ("power_cap", "power cap", "power limit"),
    ],
)
def test_the_reason_that_held_the_clocks_down_is_named_with_its_seconds(
    tmp_path: Path, reason: str, cause: str, action: str
) -> None:
    finding = report(tmp_path, [FakeGpu(0), FakeGpu(1, [Held(-100, 10_000, 0.6, reason)])]).findings[0]

    assert finding.class_ == "gpu_throttle"
    assert signals(finding)[f"clocks held down by {cause}"] == pytest.approx(SECONDS, rel=0.02)
    assert action in finding.action


@pytest.mark.parametrize(("ratio", "found"), [(0.86, []), (0.7, ["gpu_throttle"])])
def test_a_power_cap_on_all_ranks_is_a_finding_only_if_it_costs_much(tmp_path: Path, ratio: float, found: list[str]) -> None:
    result = report(tmp_path, [FakeGpu(rank, [Held(-100, 10_000, ratio, "power_cap")]) for rank in range(4)])

    assert problems(result) == found
    for finding in result.findings:
        if finding.class_ == "gpu_throttle":
            assert finding.ranks == "all"
            assert finding.confidence <= 0.6
            assert finding.runner_up is not None and finding.runner_up.class_ == "compute_bound"


def test_of_work_that_waits_for_memory_no_more_is_lost_than_the_others_waited(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, [FakeGpu(0), FakeGpu(1, [ALWAYS]), FakeGpu(2)], by_clock=0.4).findings

    assert (finding.class_, finding.ranks) == ("gpu_throttle", [1])
    assert finding.seconds_per_step == pytest.approx(0.4, rel=0.02)


def test_heat_on_all_ranks_is_throttling_of_all(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, [FakeGpu(rank, [ALWAYS]) for rank in range(4)]).findings

    assert (finding.class_, finding.ranks) == ("gpu_throttle", "all")
    assert finding.seconds_per_step == pytest.approx(1.0, rel=0.02)


def test_what_clocks_explain_only_a_part_of_stays_a_straggler_and_says_so(tmp_path: Path) -> None:
    result = report(tmp_path, [FakeGpu(0), FakeGpu(1, [Held(-100, 10_000, 0.9)])], extra={1: 0.6})

    assert problems(result) == ["compute_straggler"]
    assert 0 < signals(result.findings[0])["part of the late rank's excess that low clocks explain"] < 0.8


def test_low_clocks_of_a_rank_that_nobody_waits_for_cost_nothing(tmp_path: Path) -> None:
    result = report(tmp_path, [FakeGpu(0, [Held(-100, 10_000, 0.9)]), FakeGpu(1)], extra={1: 0.6})

    assert problems(result) == ["compute_straggler"]
    assert result.findings[0].ranks == [1]


def test_low_clocks_that_nothing_held_down_are_no_throttling(tmp_path: Path) -> None:
    gauges = {(GPU_CLOCK, "sm", "current"): lambda at: 0.7e9, (GPU_THROTTLED, "application_clocks"): lambda at: 1.0}
    result = report(tmp_path, [FakeGpu(rank, gauges=gauges) for rank in range(2)])

    assert problems(result) == []


def test_the_low_clock_of_an_idle_device_is_no_throttling(tmp_path: Path) -> None:
    idle: dict[Any, Any] = {
        (GPU_CLOCK, "sm", "current"): lambda at: 0.3e9 if at % 30 < 15 else 1.98e9,
        (GPU_UTILIZATION,): lambda at: 0.0 if at % 30 < 15 else 1.0,
        (GPU_THROTTLED_SECONDS, "power_cap"): lambda at: at + 100.0,
    }

    assert problems(report(tmp_path, [FakeGpu(rank, gauges=idle) for rank in range(2)])) == ["launch_bound"]


def test_a_device_that_waits_for_data_loses_only_its_computing_to_low_clocks(tmp_path: Path) -> None:
    own = {name: 0.1 * seconds for name, seconds in OWN.items()}
    result = report(tmp_path, [FakeGpu(0, [ALWAYS])], own=own, gap=1.8)

    by_class = {finding.class_: finding.seconds_per_step for finding in result.findings}
    assert by_class.get("gpu_throttle", 0.0) == pytest.approx(0.0, abs=0.1)
    assert result.ledgers[0].states["data_wait"] == pytest.approx(0.9 * result.ledgers[0].wall_seconds, rel=0.01)


def test_a_gpu_that_another_job_uses_too_is_said_and_lowers_confidence(tmp_path: Path) -> None:
    alone = report(tmp_path, [FakeGpu(0), FakeGpu(1, [ALWAYS])]).findings[0]
    shared = report(tmp_path / "b", [FakeGpu(0), FakeGpu(1, [ALWAYS], jobs=("planted", "other"))]).findings[0]

    assert shared.confidence <= alone.confidence / 2 + 0.01
    assert signals(shared)["other jobs on the device (other), which is included in its samples"] == 1


@pytest.mark.parametrize(
    ("gpus", "missing"),
    [
        ([FakeGpu(0), FakeGpu(1, counters=False, flags=False)], "throttle reasons or throttled time of its GPU (rank 1)"),
        ([FakeGpu(0), FakeGpu(1, gauges={(GPU_CLOCK, "sm", "max"): lambda at: float("nan")})], "SM clocks of its GPU"),
    ],
)
def test_a_signal_that_a_gpu_does_not_tell_is_named_with_its_ranks(tmp_path: Path, gpus: list[FakeGpu], missing: str) -> None:
    rows = {row.class_: row.missing for row in report(tmp_path, gpus).not_measured}

    assert missing in rows["gpu_throttle"]


def test_a_rank_whose_agent_wrote_no_samples_is_not_measured_and_the_others_are(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    gpus = [FakeGpu(0, [ALWAYS]), FakeGpu(1)]
    write_job(store, gpu_job(gpus, SECONDS))
    write_samples(store, gpus[1:], SECONDS)
    result = checked(analyze(from_store(store, "planted")))

    rows = {row.class_: row.missing for row in result.not_measured}
    assert rows["gpu_throttle"] == "metric samples of its GPU from the agent on node-1 (rank 0)"
    assert late_for_an_unknown_reason(result)


def test_a_class_that_was_found_is_not_listed_as_not_measured_for_the_ranks_that_were_not(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    gpus = [FakeGpu(0), FakeGpu(1, [ALWAYS])]
    write_job(store, gpu_job(gpus, SECONDS))
    write_samples(store, gpus[1:], SECONDS)
    result = checked(analyze(from_store(store, "planted")))

    assert [(finding.class_, finding.ranks) for finding in result.findings] == [("gpu_throttle", [1])]


def test_an_agent_that_was_away_for_most_of_the_job_measured_too_little_of_it(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    gpus = [FakeGpu(0), FakeGpu(1, [ALWAYS])]
    write_job(store, gpu_job(gpus, SECONDS))
    write_samples(store, gpus, SECONDS, skip=Held(90.0, 350.0, 1.0))
    result = checked(analyze(from_store(store, "planted")))

    assert late_for_an_unknown_reason(result)
    assert "for 50% of the steps" in {row.class_: row.missing for row in result.not_measured}["gpu_throttle"]


def test_a_driver_that_was_loaded_again_changes_nothing(tmp_path: Path) -> None:
    again = {(GPU_THROTTLED_SECONDS, "hardware_thermal"): lambda at: 1000.0 + at if at < 200 else at - 200}
    finding = report(tmp_path, [FakeGpu(0), FakeGpu(1, [ALWAYS], gauges=again)]).findings[0]

    assert finding.class_ == "gpu_throttle"
    # of the span in which it happened, only what the new driver counted
    assert signals(finding)["clocks held down by heat"] == pytest.approx(SECONDS, abs=16.0)


def test_a_job_on_cpu_still_says_which_samples_it_would_take(tmp_path: Path) -> None:
    from making import job

    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(job([[{"forward": 0.1}]] * 30))
    rows = {row.class_: row.missing for row in analyze(from_spool([path])).not_measured}

    assert {slug: rows[slug] for slug in gpu_losses.CLASSES} == {slug: missing_signals()[slug] for slug in gpu_losses.CLASSES}


@pytest.mark.parametrize("slug", gpu_losses.CLASSES)
def test_every_class_has_a_page_that_tells_what_metrics_show(slug: str) -> None:
    text = (RUNBOOKS / f"{slug}.md").read_text()

    for heading in ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation"):
        assert heading in text
    assert "metric samples" in text


# --- without a store: the functions themselves -----------------------------------------------------------------------------


@cache
def job_of(ranks: int) -> tuple[JobRecords, Steps]:
    """Return a job of steps of a second on GPUs that no one sampled; rank 1, if there is one, is late."""
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(gpu_job([FakeGpu(rank) for rank in range(ranks)], SECONDS, extra={1: 0.3}))
        file.flush()
        job = from_spool([Path(file.name)])
    return job, aligned(job)


def sampled(gpu: FakeGpu, every: float = 15.0) -> GpuSamples:
    moments = [-30.0 + every * number for number in range(int((SECONDS + 60) / every) + 1)]
    points = [list(gpu.points(at)) for at in moments]
    values: dict[tuple[str, ...], array[float]] = {}
    for row in points:
        for metric, labels, value in row:
            values.setdefault((metric.name, *labels[3:]), array("d")).append(value)
    return GpuSamples(array("d", [BEGIN + at for at in moments]), values, frozenset(gpu.jobs))


def judged(gpus: Sequence[FakeGpu]) -> Mapping[int, Throttled]:
    from tachoscope_analyzers.classify.gpu.throttle import throttled
    from tachoscope_analyzers.records.gpu_by_rank import rank_gpus

    job, steps = job_of(len(gpus))
    job = replace(job, gpus=Gpus({envelope(gpu.rank)["writer"]: sampled(gpu) for gpu in gpus}))
    found, missing = rank_gpus(job, steps)
    assert not missing
    results = {gpu.rank: throttled(gpu) for gpu in found}
    assert all(isinstance(one, Throttled) for one in results.values()), results
    return results  # type: ignore[return-value]  # just asserted


def lost(gpus: Sequence[FakeGpu]) -> float:
    return float(gpu_losses.lost_to_low_clocks(job_of(len(gpus))[1], judged(gpus)).sum())


WINDOWS = st.lists(
    st.builds(
        lambda start, seconds, ratio, reason: Held(start, start + seconds, ratio, reason),
        st.floats(0, 380),
        st.floats(0.5, 200),
        st.floats(0.2, 0.95),
        st.sampled_from(["hardware_thermal", "power_brake", "power_cap"]),
    ),
    max_size=4,
)


@given(first=WINDOWS, second=WINDOWS, more=WINDOWS, rank=st.integers(0, 1))
def test_more_throttling_never_costs_less(first: list[Held], second: list[Held], more: list[Held], rank: int) -> None:
    before = [FakeGpu(0, first), FakeGpu(1, second)]
    after = [replace(gpu, held=[*gpu.held, *more]) if gpu.rank == rank else gpu for gpu in before]

    assert lost(after) >= lost(before) - 1e-6


@given(held=WINDOWS)
def test_no_more_is_lost_than_clocks_were_held_down_for_nor_than_was_computed(held: list[Held]) -> None:
    result = judged([FakeGpu(0, held)])[0]
    steps = job_of(1)[1]

    assert lost([FakeGpu(0, held)]) <= min(sum(result.held_seconds.values()) + 1e-6, float(steps.own["compute"].sum()))


@pytest.mark.parametrize(("start", "end"), [(60.0, 180.0), (67.0, 179.0), (71.5, 133.0)])
def test_a_window_that_is_longer_than_a_span_costs_exactly_what_was_planted(start: float, end: float) -> None:
    assert lost([FakeGpu(0, [Held(start, end, 0.5)])]) == pytest.approx((end - start) / 2)


def test_of_two_throttled_ranks_only_the_later_one_costs(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, [FakeGpu(0, [Held(-100.0, 10_000.0, 0.9)]), FakeGpu(1, [ALWAYS])]).findings

    assert finding.ranks == [1]
    assert finding.seconds_per_step == pytest.approx(1.0, rel=0.02)
