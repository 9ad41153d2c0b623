"""All collectors together, on this very machine."""

import os
import statistics
import time
from pathlib import Path

import pytest
from trees import RECORDED, plant, points

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics.agent import COLLECTOR_STATUS
from tachoscope_core.metrics.host import CPU_CORES, CPU_SECONDS, DISK_IO_SECONDS, HOST_METRICS, MEMORY_BYTES
from tachoscope_node.collectors.all import host_collectors
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.config.device_filter import DEFAULT_FILTERS, DeviceFilter

_CPU_SECONDS_PER_RUN = 0.005
"""Five times what one run took (0.4 to 1 ms), for slower machines; at every 5 s it is a tenth of the agent's 1 % of a core."""


def ranks() -> dict[tuple[str, str], int]:
    return {("train", str(rank)): os.getpid() for rank in range(8)}


def test_together_they_declare_the_hosts_part_of_the_catalogue() -> None:
    declared = [metric for collector in host_collectors("/proc", "/sys", ranks, {}) for metric in collector.metrics]

    assert sorted(metric.name for metric in declared) == sorted(metric.name for metric in HOST_METRICS)


def test_on_this_machine_none_fails_and_what_they_say_holds() -> None:
    log: list[str] = []
    frame = Frame(host_collectors("/proc", "/sys", ranks, {}), log.append)
    frame.tick(time.monotonic())
    families = frame.families()
    frame.close()

    status = points(families, COLLECTOR_STATUS)
    assert [labels for labels, value in status.items() if labels[1] == "failed" and value] == [], log
    assert all(status[name, "ok"] for name in ("cpu", "memory", "network"))
    cores = points(families, CPU_CORES)[()]
    uptime = time.monotonic()  # as /proc/uptime, but without the time that a laptop slept
    assert cores == os.cpu_count()
    assert sum(points(families, CPU_SECONDS).values()) == pytest.approx(cores * uptime, rel=0.1)
    assert points(families, MEMORY_BYTES)["total",] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_run_of_all_costs_little() -> None:
    frame = Frame(host_collectors("/proc", "/sys", ranks, {}), lambda _: None)
    frame.tick(0.0)
    costs = []
    for run in range(1, 24):
        start = time.process_time()
        frame.tick(run * 5.0)
        costs.append(time.process_time() - start)
    frame.close()

    assert statistics.median(costs) < _CPU_SECONDS_PER_RUN  # what threads that other tests left do now and then is in some of them


def test_a_spoilt_file_fails_its_collector_alone_and_its_sentence_names_file_and_line(tmp_path: Path) -> None:
    recorded = {str(path.relative_to(RECORDED)): path.read_text() for path in RECORDED.rglob("*") if path.is_file()}
    root = plant(tmp_path, recorded | {"proc/diskstats": "8 0 sda what\n"})
    log: list[str] = []
    frame = Frame(host_collectors(f"{root}/proc", f"{root}/sys", dict, {}), log.append)

    frame.tick(0.0)
    status = points(frame.families(), COLLECTOR_STATUS)
    frame.close()

    outcomes = {labels[0]: labels[1] for labels, value in status.items() if value}
    assert outcomes.pop("clock") in ("ok", "not_supported")
    assert outcomes == {
        "cpu": "ok",
        "pressure": "ok",
        "memory": "ok",
        "disk": "failed",
        "network": "ok",
        "infiniband": "not_supported",
        "cgroup": "no_data",
    }
    assert f"collector disk: failed: MalformedError: {root}/proc/diskstats:1: cannot be read: '8 0 sda what'" in log
    assert points(frame.families(), DISK_IO_SECONDS) == {}


def test_each_filter_reaches_its_collector() -> None:
    nothing = DeviceFilter(include="nothing")
    frame = Frame(host_collectors(str(RECORDED / "proc"), "/sys", ranks, {"disk": nothing}), lambda _: None)
    frame.tick(0.0)
    frame.close()

    assert points(frame.families(), COLLECTOR_STATUS)["disk", "no_data"] == 1
    assert set(DEFAULT_FILTERS) == {"disk", "network", "infiniband"}


def test_a_filter_for_what_has_no_devices_is_refused() -> None:
    with pytest.raises(TachoscopeError, match=r"no device filter exists for 'cpu' \(give one for disk, network, infiniband\)"):
        host_collectors("/proc", "/sys", ranks, {"cpu": DeviceFilter()})
