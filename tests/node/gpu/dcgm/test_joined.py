"""NVML and a dcgm-exporter as one collector: the real collector of NVML on a fake driver, and a fake exporter over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_script import patience
from trees import points

from fake_nvml import Driver
from gpu.fake_dcgm_exporter import FakeDcgmExporter, Line, fake_dcgm_exporter, page
from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_ENERGY, GPU_POWER, GPU_UP, GPUS
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import Collector, NoDataError, NotSupportedError, PartialError
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.gpu.dcgm import collector as dcgm
from tachoscope_node.gpu.dcgm.collector import DcgmCollector
from tachoscope_node.gpu.dcgm.combined_collector import JoinedCollector
from tachoscope_node.gpu.nvml.collector import GpuCollector
from tachoscope_service.metrics.family import Labels


class Node:
    """Both collectors in one frame. GPU 0 of the driver is the exporter's too."""

    def __init__(self, driver: Driver, exporter: FakeDcgmExporter, *, required: bool = False) -> None:
        self.driver, self.exporter = driver, exporter
        self.log: list[str] = []
        self.now = 0.0
        self.dcgm = DcgmCollector(exporter.url, clock=self.clock)
        self.nvml = GpuCollector(log=self.log.append, required=required, clock=self.clock)
        self.joined = JoinedCollector(self.nvml, self.dcgm, required=required, log=self.log.append)
        collectors: list[Collector] = [self.dcgm, self.joined]
        self.frame = Frame(collectors, self.log.append, deadline_seconds=60.0)

    def clock(self) -> float:
        return self.now

    def tick(self) -> None:
        self.now += 20.0
        self.frame.tick(self.now)

    def points(self, metric: Metric, *labels: str) -> dict[Labels, float]:
        """Return the values by UUID, of the series with these labels after those of the GPU."""
        return {key[1:2]: value for key, value in points(self.frame.families(), metric).items() if key[3:] == labels}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path, "h100x8")
    made.set({"driver.gpus": 2})
    with made.in_process(), patience():
        yield made


@pytest.fixture
def node(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(dcgm, "ANSWER_SECONDS", 60.0)  # on a crowded machine even this one takes its time
    with fake_dcgm_exporter() as exporter:
        node = Node(driver, exporter)
        node.exporter.page = exporter_page(driver)
        yield node
        node.frame.close()
        node.joined.close()


def exporter_page(driver: Driver, **values: float) -> str:
    """Return a page of a GPU that is the driver's first one."""
    text = page([Line(0, {"DCGM_FI_DEV_POWER_USAGE": 11.5, "DCGM_FI_PROF_PIPE_FP16_ACTIVE": 0.25, **values})])
    return text.replace("GPU-00000000-0000-0000-0000-000000000000", uuid(driver, 0))


def uuid(driver: Driver, gpu: int) -> str:
    found = driver.value(gpu, "uuid")
    assert found is not None
    return found


def test_the_driver_is_believed_and_the_exporter_fills_what_it_lacks(node: Node) -> None:
    node.driver.set_gpu(0, power_mw=300_000, gpm_supported=0)
    node.tick()

    first, second = uuid(node.driver, 0), uuid(node.driver, 1)
    assert node.points(GPU_POWER, "usage")[first,] == 300.0
    assert node.points(GPU_ACTIVE, "fp16")[first,] == 0.25
    assert node.points(GPU_UP) == {(first,): 1.0, (second,): 1.0}
    assert node.joined.readings()[0].value(GPU_ACTIVE, "fp16") == 0.25


def test_an_exporter_that_ends_takes_only_its_own_values_along(node: Node) -> None:
    node.driver.set_gpu(0, power_mw=300_000, gpm_supported=0)
    node.tick()
    node.exporter.fault = "error"
    node.tick()

    assert node.points(GPU_POWER, "usage")[uuid(node.driver, 0),] == 300.0
    assert (uuid(node.driver, 0),) not in node.points(GPU_ACTIVE, "fp16")


def test_a_gpu_that_the_driver_has_lost_is_down_though_the_exporter_remembers_it(node: Node) -> None:
    node.tick()
    node.driver.set_gpu(0, lost=1)
    node.tick()

    assert node.points(GPU_UP) == {(uuid(node.driver, 0),): 0.0, (uuid(node.driver, 1),): 1.0}
    assert (uuid(node.driver, 0),) not in node.points(GPU_POWER, "usage")


def test_the_exporter_of_another_node_is_not_believed_and_one_line_says_so(node: Node) -> None:
    node.exporter.page = page(Line(gpu, {"DCGM_FI_DEV_POWER_USAGE": 11.5}) for gpu in range(8))
    for _ in range(3):
        node.tick()

    assert set(node.points(GPU_UP)) == {(uuid(node.driver, gpu),) for gpu in range(2)}
    assert points(node.frame.families(), GPUS) == {("expected",): 2.0, ("seen",): 2.0}
    assert sum("none of this node's GPUs" in line for line in node.log) == 1


def test_a_driver_that_stops_leaves_the_exporter_to_tell_and_one_line_says_so(node: Node) -> None:
    node.tick()
    node.driver.set({"driver.init_error": 9, "driver.error.nvmlDeviceGetCount_v2": 1})
    for _ in range(4):
        node.tick()

    up = node.points(GPU_UP)
    assert up == {(uuid(node.driver, 0),): 1.0, (uuid(node.driver, 1),): 0.0}  # the exporter never told of the second
    assert node.points(GPU_POWER, "usage") == {(uuid(node.driver, 0),): 11.5}
    assert points(node.frame.families(), GPUS) == {("expected",): 2.0, ("seen",): 1.0}
    assert sum("the dcgm-exporter alone reports" in line for line in node.log) == 1

    node.driver.clear("driver.init_error")
    node.driver.clear("driver.error.nvmlDeviceGetCount_v2")
    node.tick()
    assert node.points(GPU_UP) == {(uuid(node.driver, 0),): 1.0, (uuid(node.driver, 1),): 1.0}


def test_without_a_driver_the_exporter_tells_alone_and_there_is_no_data_until_it_does() -> None:
    def no_library() -> object:
        raise NotSupportedError("no libnvidia-ml.so.1")

    with fake_dcgm_exporter() as exporter:
        dcgm = DcgmCollector(exporter.url)
        joined = JoinedCollector(GpuCollector(load=no_library), dcgm)
        with pytest.raises(NoDataError, match="no libnvidia-ml.so.1; and no dcgm-exporter reports"):
            joined.collect()

        exporter.page = page([Line(3, {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 5000})])
        dcgm.collect()
        families = joined.collect()

        assert list(points(families, GPU_ENERGY).values()) == [5.0]
        assert points(families, GPUS) == {("expected",): 1.0, ("seen",): 1.0}
        joined.close()


def test_nvml_that_is_required_fails_whatever_the_exporter_says() -> None:
    with fake_dcgm_exporter(page([Line(3, {"DCGM_FI_DEV_GPU_UTIL": 5})])) as exporter:
        dcgm = DcgmCollector(exporter.url)
        dcgm.collect()

        def broken() -> object:
            raise OSError("the library is broken")

        joined = JoinedCollector(GpuCollector(load=broken, required=True), dcgm, required=True)
        with pytest.raises(PartialError, match="broken"):
            joined.collect()
        assert joined.readings() == ()
        joined.close()
