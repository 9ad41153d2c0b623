"""Devices that are used badly: too large, wrong precision; look-alikes and devices that do not tell are not called so."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpu_making import FakeGpu, Held, gpu_job, use, write_job, write_samples
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_POWER, GPU_UTILIZATION
from tachoscope_core.metrics.metric import Metric
from tachoscope_core.report.report import Finding, Report
from tachoscope_core.storage.store import Store

Gauges = dict[tuple[Metric, *tuple[str, ...]], Callable[[float], float]]
SECONDS = 300.0
HEALTHY = use(sm=0.92, sm_occupancy=0.4, tensor=0.55, fp32=0.1, dram=0.5, graphics=1.0)
TOO_LARGE = HEALTHY | use(sm=0.2, tensor=0.1, sm_occupancy=0.05)
FLOAT32 = HEALTHY | use(sm=0.95, tensor=0.0, fp32=0.8)
MEMORY_BOUND = HEALTHY | use(sm=0.95, tensor=0.01, fp32=0.2, dram=0.78)


def report(tmp_path: Path, gauges: Sequence[Gauges], **options: Any) -> Report:
    held = options.pop("held", [])
    gpus = [FakeGpu(rank, held, gauges=mine) for rank, mine in enumerate(gauges)]
    store = Store(str(tmp_path / "store"))
    write_job(store, gpu_job(gpus, SECONDS, **options))
    write_samples(store, gpus, SECONDS)
    result = analyze(from_store(store, "planted"))
    for ledger in result.ledgers:
        assert sum(ledger.states.values()) == pytest.approx(ledger.wall_seconds, rel=0.01)
    assert sum(finding.seconds_per_step for finding in result.findings) <= result.step_seconds.mean * (1 + 1e-6)
    return result


def problems(result: Report) -> list[str]:
    return [finding.class_ for finding in result.findings if finding.class_ != "compute_bound"]


def missing(result: Report) -> dict[str, str]:
    return {row.class_: row.missing for row in result.not_measured}


def signals(finding: Finding) -> dict[str, float]:
    return {row.signal: row.value for row in finding.evidence}


@pytest.mark.parametrize("ranks", [1, 3])
def test_kernels_all_the_time_on_few_multiprocessors_is_a_device_that_is_too_large(tmp_path: Path, ranks: int) -> None:
    (finding,) = report(tmp_path, [TOO_LARGE] * ranks).findings

    assert (finding.class_, finding.ranks) == ("underfilled", "all")
    assert finding.seconds_per_step == pytest.approx(1.0 - 0.2 / 0.8, rel=0.01)
    assert finding.confidence <= 0.8
    assert signals(finding)["multiprocessors active while computing, at most"] == pytest.approx(0.2)
    assert signals(finding)["warps of those that fit"] == pytest.approx(0.05)


@pytest.mark.parametrize("gauges", [HEALTHY, MEMORY_BOUND, HEALTHY | use(sm=0.6), HEALTHY | use(sm_occupancy=0.1)])
def test_a_device_that_is_used_well_or_in_a_way_that_metrics_cannot_judge_has_nothing(tmp_path: Path, gauges: Gauges) -> None:
    result = report(tmp_path, [gauges] * 2)

    assert problems(result) == []
    assert not {"underfilled", "compute_inefficient"} & missing(result).keys()


@pytest.mark.parametrize(("waiting", "found"), [(0.0, True), (4.0, False)])
def test_a_job_that_waits_is_no_device_that_is_too_large(tmp_path: Path, waiting: float, found: bool) -> None:
    result = report(tmp_path, [HEALTHY | use(sm=0.2)] * 2, gap=waiting)

    assert ("underfilled" in problems(result)) is found


def test_a_device_that_idles_between_kernels_is_not_called_too_large(tmp_path: Path) -> None:
    result = report(tmp_path, [TOO_LARGE | {(GPU_UTILIZATION,): lambda at: 0.4}] * 2)

    assert problems(result) == []
    assert "launch_bound" in missing(result)["underfilled"]


def test_a_spell_without_kernels_as_while_code_is_compiled_does_not_make_the_other_steps_launch_bound(tmp_path: Path) -> None:
    compiling = {(GPU_UTILIZATION,): lambda at: 0.0 if 100.0 <= at < 150.0 else 0.95}

    assert "launch_bound" not in problems(report(tmp_path, [HEALTHY | compiling] * 2))


def test_without_sm_activity_low_power_is_a_less_certain_sign(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, [{(GPU_POWER, "usage"): lambda at: 140.0}]).findings

    assert finding.class_ == "underfilled"
    assert finding.confidence <= 0.4
    assert finding.seconds_per_step == pytest.approx(1.0 - 0.2 / 0.8, rel=0.01)


@pytest.mark.parametrize("held", [[], [Held(-100, 10_000, 0.5)]])
def test_without_sm_activity_other_power_or_that_of_a_throttled_device_says_nothing(tmp_path: Path, held: list[Held]) -> None:
    result = report(tmp_path, [{(GPU_POWER, "usage"): lambda at: 140.0 if held else 500.0}], held=held)

    assert "underfilled" not in problems(result)
    assert "GPM" in missing(result)["underfilled"]
    assert "GPM" in missing(result)["compute_inefficient"]


def test_float32_arithmetic_beside_idle_tensor_cores_is_inefficient_and_says_what_is_not_known(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, [FLOAT32] * 2).findings

    assert (finding.class_, finding.ranks) == ("compute_inefficient", "all")
    assert finding.seconds_per_step == pytest.approx(0.8 * 0.75, rel=0.01)
    assert finding.confidence <= 0.6
    assert finding.runner_up is not None and finding.runner_up.class_ == "compute_bound"
    assert any("only a profiler trace tells" in row.source for row in finding.evidence)
    assert "set_float32_matmul_precision" in finding.action


@pytest.mark.parametrize("unit", ["tensor", "fp32"])
def test_without_one_of_its_signals_inefficiency_is_not_measured(tmp_path: Path, unit: str) -> None:
    gauges = {key: value for key, value in FLOAT32.items() if key != (GPU_ACTIVE, unit)}
    result = report(tmp_path, [gauges, FLOAT32])

    assert "rank 0" in missing(result).get("compute_inefficient", "rank 0")
    assert problems(report(tmp_path / "one", [gauges])) == []
    assert "float32 pipe" in missing(report(tmp_path / "one", [gauges]))["compute_inefficient"]


def test_a_second_lost_to_low_clocks_is_not_lost_to_a_large_device_too(tmp_path: Path) -> None:
    result = report(tmp_path, [TOO_LARGE] * 2, held=[Held(-100, 10_000, 0.5)])

    lost = {finding.class_: finding.seconds_per_step for finding in result.findings}
    assert lost["gpu_throttle"] == pytest.approx(1.0, rel=0.02)
    assert lost["underfilled"] == pytest.approx((2.0 - lost["gpu_throttle"]) * 0.75, rel=0.02)


def test_a_mig_instance_is_judged_by_its_own_activity_and_never_by_the_power_of_its_gpu(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    for number, gauges in enumerate((TOO_LARGE, {(GPU_POWER, "usage"): lambda at: 100.0})):
        gpu = FakeGpu(0, mig="3", gauges=gauges)  # type: ignore[arg-type]  # gauges of several forms
        store = Store(str(tmp_path / str(number)))
        write_job(store, gpu_job([gpu], SECONDS))
        write_samples(store, [gpu], SECONDS)
        result = analyze(from_store(store, "planted"))

        assert problems(result) == (["underfilled"] if number == 0 else [])
        assert ("underfilled" in missing(result)) is (number == 1)
