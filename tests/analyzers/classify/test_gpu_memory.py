"""Memory that is full: what shows that it costs, and what a full memory alone does not say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_making import FakeGpu, gpu_job, memory, use, write_job, write_samples
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import from_store
from tachoscope_core.metrics.gpu import GPU_LINK_RATE, GPU_PCIE_BYTES, GPU_UTILIZATION
from tachoscope_core.report.report import Report
from tachoscope_core.storage.store import Store

SECONDS = 300.0
LINK = 31.5
"""GB/s of PCIe 4.0 x16 in one direction."""


def report(tmp_path: Path, gauges: dict[Any, Any], ranks: int = 1) -> Report:
    gpus = [FakeGpu(rank, gauges=gauges) for rank in range(ranks)]
    store = Store(str(tmp_path / "store"))
    write_job(store, gpu_job(gpus, SECONDS))
    write_samples(store, gpus, SECONDS)
    return analyze(from_store(store, "planted"))


def problems(result: Report) -> list[str]:
    return [finding.class_ for finding in result.findings if finding.class_ != "compute_bound"]


def full(at: float) -> float:
    return 0.985


@pytest.mark.parametrize("ranks", [1, 2])
def test_gigabytes_over_the_bus_while_memory_is_full_are_pages_that_move(tmp_path: Path, ranks: int) -> None:
    (finding,) = report(tmp_path, memory(full, lambda at: 12.0), ranks).findings

    signals = {row.signal: row.value for row in finding.evidence}
    assert finding.class_ == "memory_thrash"
    assert finding.seconds_per_step == pytest.approx(12.0 / LINK, rel=0.02)
    assert finding.confidence <= (0.6 if ranks == 1 else 0.4)
    assert signals["device memory used over total, while it is full"] == pytest.approx(0.985)
    assert signals["bytes over PCIe, both directions, while memory is full"] == pytest.approx(12e9)
    assert signals["rate of the PCIe link, one direction"] == pytest.approx(LINK * 1e9, rel=0.01)


def test_where_the_driver_counts_no_bytes_the_rate_that_it_measured_is_taken(tmp_path: Path) -> None:
    gauges = memory(full) | {(GPU_LINK_RATE, "pcie", way): lambda at: 12e9 for way in ("receive", "transmit")}
    gauges = {key: value for key, value in gauges.items() if key[0] != GPU_PCIE_BYTES}

    assert problems(report(tmp_path, gauges)) == ["memory_thrash"]


@pytest.mark.parametrize(("used", "rate"), [(0.90, 12.0), (0.90, 0.1)])
def test_memory_that_is_not_full_rules_it_out_whatever_crosses_the_bus(tmp_path: Path, used: float, rate: float) -> None:
    result = report(tmp_path, memory(lambda at: used, lambda at: rate))

    assert problems(result) == []
    assert "memory_thrash" not in {row.class_ for row in result.not_measured}


def test_only_what_crosses_the_bus_while_memory_is_full_counts(tmp_path: Path) -> None:
    (finding,) = report(tmp_path, memory(lambda at: 0.985 if at >= 150 else 0.5, lambda at: 25.0)).findings

    assert finding.class_ == "memory_thrash"
    assert finding.seconds_per_step == pytest.approx(25.0 / LINK / 2, rel=0.05)


def test_a_second_lost_to_full_memory_is_not_lost_to_a_large_device_too(tmp_path: Path) -> None:
    lost = {
        finding.class_: finding.seconds_per_step
        for finding in report(tmp_path, memory(full, lambda at: LINK / 2) | use(sm=0.2)).findings
    }

    assert lost["memory_thrash"] == pytest.approx(0.5, rel=0.02)
    assert lost["underfilled"] == pytest.approx(0.5 * (1.0 - 0.2 / 0.8), rel=0.02)


def test_memory_that_is_full_and_costs_nothing_that_is_seen_is_neither_fine_nor_a_fault(tmp_path: Path) -> None:
    result = report(tmp_path, memory(full, lambda at: 0.5))

    assert problems(result) == []
    assert "caching allocator" in {row.class_: row.missing for row in result.not_measured}["memory_thrash"]


@pytest.mark.parametrize(
    ("running", "found"),
    [
        (lambda at: 0.5 if at >= 150 else 1.0, ["memory_thrash"]),
        (lambda at: 0.9 if at >= 150 else 1.0, []),
        (lambda at: 0.5, ["launch_bound"]),
    ],
)
def test_kernels_that_run_less_once_memory_is_full_lose_the_difference(
    tmp_path: Path, running: Callable[[float], float], found: list[str]
) -> None:
    gauges = memory(lambda at: 0.99 if at >= 150 else 0.8) | {(GPU_UTILIZATION,): running}
    result = report(tmp_path, gauges)

    assert problems(result) == found
    if found == ["memory_thrash"]:
        assert result.findings[0].seconds_per_step == pytest.approx(0.5 * 0.5, rel=0.1)


def test_without_the_devices_memory_it_is_not_measured(tmp_path: Path) -> None:
    result = report(tmp_path, {})

    assert "device memory" in {row.class_: row.missing for row in result.not_measured}["memory_thrash"]
