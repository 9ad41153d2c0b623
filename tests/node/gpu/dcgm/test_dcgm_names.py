"""Under dcgm-exporter's names stands what the agent itself says: the same values, in DCGM's units, with DCGM's labels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from nvml_script import patience
from prometheus_client.parser import text_string_to_metric_families

from fake_nvml import Driver
from gpu.fake_dcgm_exporter import Line, page, recorded, uuid
from tachoscope_core.metrics.catalogue import BY_NAME
from tachoscope_core.metrics.dcgm import DCGM_BY_NAME, DCGM_LABELS, DCGM_METRICS, DCGM_UNITS
from tachoscope_core.metrics.gpu import GPU_METRICS, GPU_WORKLOAD, GPU_XID_ERRORS, GPU_XID_LAST_SEEN
from tachoscope_node.gpu.dcgm import compat_names as dcgm_names
from tachoscope_node.gpu.dcgm.fields import FIELDS
from tachoscope_node.gpu.dcgm.parser import read
from tachoscope_node.gpu.metrics import families
from tachoscope_node.gpu.nvml.collector import GpuCollector
from tachoscope_service.metrics.family import Family
from tachoscope_service.metrics.prometheus_text import render

STARTED = 1000.0
Sample = tuple[dict[str, str], float]


def samples(text: str) -> dict[str, list[Sample]]:
    """Return the samples of a page by name, each with the labels that are not empty, as Prometheus keeps them."""
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if value}
            name = sample.name if sample.name in DCGM_BY_NAME else sample.name.removesuffix("_total")  # the parser adds it
            found.setdefault(name, []).append((labels, sample.value))
    return found


def under_dcgm_names(ours: Sequence[Family]) -> dict[str, list[Sample]]:
    return samples(render(dcgm_names.families(ours, "node-1", STARTED)).decode())


def from_page(text: str, *more: Family) -> dict[str, list[Sample]]:
    return under_dcgm_names([*families(read(text).readings, 0), *more])


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path, "h100x8")
    with made.in_process(), patience():
        yield made


def test_what_a_dcgm_exporter_said_comes_back_as_it_said_it() -> None:
    for name in ("l4", "rtx4000_pod"):
        said = samples(recorded(name))
        again = from_page(recorded(name))

        assert {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"} <= again.keys()
        for field, values in again.items():
            ((labels, value),) = values
            ((said_labels, said_value),) = said[field]
            assert value == pytest.approx(said_value)
            shared = said_labels.keys() & labels.keys() - {"Hostname"}
            assert shared >= {"gpu", "UUID", "pci_bus_id", "device", "modelName", "DCGM_FI_DRIVER_VERSION"}
            assert {key: labels[key] for key in shared} == {key: said_labels[key] for key in shared}
            assert labels["Hostname"] == labels["hostname"] == "node-1"


def test_a_value_of_the_whole_gpu_is_there_once_and_sums_are_right() -> None:
    again = from_page(recorded("a30_mig"))

    assert sum(value for _, value in again["DCGM_FI_DEV_POWER_USAGE"]) == 71.25 + 60.5
    assert not any("GPU_I_ID" in labels for labels, _ in again["DCGM_FI_DEV_POWER_USAGE"])
    keys = ("UUID", "GPU_I_PROFILE", "GPU_I_ID")
    used = {tuple(labels[key][-6:] for key in keys): value for labels, value in again["DCGM_FI_DEV_FB_USED"]}
    assert used == {(f"00000{gpu}", "1g.6gb", mig): 100.0 * int(mig) for gpu in "23" for mig in "3456"}


def test_what_the_driver_says_arrives_in_dcgms_units(driver: Driver) -> None:
    driver.set_gpu(
        3,
        utilization_gpu=97,
        power_mw=654_321,
        energy_mj=123_456_789,
        clock_sm_mhz=1755,
        temperature=61,
        memory_used=40 * 1024**3,
        throttle_reasons=0x24,
        throttle_ns__power_cap=5_000_000,
        gpm__5=41.5,
        gpm__60=1500.0,
        gpm__61=500.0,
    )
    times = itertools.count(0.0, 0.3)  # GPM gives means between two looks
    collector = GpuCollector(clock=lambda: next(times))
    collector.collect()
    again = under_dcgm_names(collector.collect())
    collector.close()

    def of(name: str) -> float:
        (value,) = [value for labels, value in again[name] if labels["gpu"] == "3"]
        return value

    assert of("DCGM_FI_DEV_GPU_UTIL") == pytest.approx(97)
    assert of("DCGM_FI_DEV_POWER_USAGE") == 654.321
    assert of("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") == pytest.approx(123_456_789)
    assert of("DCGM_FI_DEV_SM_CLOCK") == 1755
    assert of("DCGM_FI_DEV_GPU_TEMP") == 61
    assert of("DCGM_FI_DEV_FB_USED") == 40 * 1024
    assert of("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS") == 0x24
    assert of("DCGM_FI_DEV_POWER_VIOLATION") == pytest.approx(5_000_000)
    assert of("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE") == pytest.approx(0.415)
    assert of("DCGM_FI_PROF_NVLINK_RX_BYTES") == 1500 * 1024**2
    assert of("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL") == pytest.approx(2000 * 1024 / 1000)  # DCGM takes 1000 KiB for a MiB
    for name in DCGM_BY_NAME:
        assert len(again.get(name, [])) in (0, 8)


def test_a_gpu_that_is_down_has_nothing_under_these_names(driver: Driver) -> None:
    collector = GpuCollector()
    collector.collect()
    driver.set_gpu(3, lost=1)
    again = under_dcgm_names(collector.collect())
    collector.close()

    assert {labels["gpu"] for labels, _ in again["DCGM_FI_DEV_GPU_TEMP"]} == set("01245678") - {"8"}


def workload(gpu: int, pod: str, rank: str = "") -> tuple[tuple[str, ...], float]:
    return (str(gpu), uuid(gpu), "", "ml", pod, "main" if pod else "", "job" if rank else "", rank), 1.0


def test_the_pod_of_a_gpu_is_known_where_there_is_just_one() -> None:
    text = page(Line(gpu, {"DCGM_FI_DEV_GPU_TEMP": 40}) for gpu in range(4))
    owners = Family(
        GPU_WORKLOAD, [workload(0, "a", "0"), workload(0, "a", "1"), workload(1, "a"), workload(1, "b"), workload(2, "", "2")]
    )

    again = from_page(text, owners)["DCGM_FI_DEV_GPU_TEMP"]

    keys = ("pod", "namespace", "container")
    pods = {labels["gpu"]: {key: labels[key] for key in keys if key in labels} for labels, _ in again}
    assert pods == {"0": {"pod": "a", "namespace": "ml", "container": "main"}, "1": {}, "2": {}, "3": {}}


def test_the_last_xid_since_the_agent_started_is_the_value() -> None:
    text = page(Line(gpu, {"DCGM_FI_DEV_GPU_TEMP": 40}) for gpu in range(3))
    times = {(0, "31"): 1500.0, (0, "79"): 1400.0, (1, "79"): 900.0, (2, "other"): 1500.0}
    errors = Family(GPU_XID_ERRORS, [((str(gpu), uuid(gpu), xid), 1.0) for gpu, xid in times])
    last = Family(GPU_XID_LAST_SEEN, [((str(gpu), uuid(gpu), xid), time) for (gpu, xid), time in times.items()])

    again = {
        labels["gpu"]: (value, labels["err_code"]) for labels, value in from_page(text, errors, last)["DCGM_FI_DEV_XID_ERRORS"]
    }

    assert again == {"0": (31.0, "31"), "1": (0.0, "0"), "2": (0.0, "0")}
    assert "DCGM_FI_DEV_XID_ERRORS" not in from_page(text)  # where nobody looks for them, none is not 0


def test_the_foreign_catalogue_is_none_of_ours_and_has_a_field_for_each_name() -> None:
    given = {field.field for field in FIELDS} | {"DCGM_FI_DEV_XID_ERRORS"}

    assert DCGM_BY_NAME.keys() == given == DCGM_UNITS.keys()
    assert len(DCGM_METRICS) == len(given)
    assert not DCGM_BY_NAME.keys() & BY_NAME.keys()
    for metric in DCGM_METRICS:
        assert metric.labels[: len(DCGM_LABELS)] == DCGM_LABELS


def test_each_name_is_given_at_most_once_with_the_labels_of_the_catalogue() -> None:
    ours = [Family(metric, []) for metric in GPU_METRICS]
    assert dcgm_names.families(ours, "node-1", STARTED) == []

    every = page([Line(0, {field.field: 1 for field in FIELDS if not field.sum})])
    again = dcgm_names.families(families(read(every).readings, 0), "node-1", STARTED)

    names = [family.metric.name for family in again]
    assert len(names) == len(set(names))
    for family in again:
        assert DCGM_BY_NAME[family.metric.name] is family.metric
        assert all(len(labels) == len(family.metric.labels) for labels, _ in family.points)
    # The one that is read only where a better one of the same meaning is missing, and the one that nobody looks for here.
    assert DCGM_BY_NAME.keys() - set(names) == {"DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_XID_ERRORS"}
