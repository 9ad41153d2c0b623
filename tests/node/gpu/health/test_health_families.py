"""What the verdicts look like as metrics and on the page: the same states, named faults, and no lie by omission."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_readings import Lines, lost, points, reading, uuid
from tachoscope_core.metrics import gpu as names
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.collectors.frame import Frame
from tachoscope_node.gpu.health.collector import LAST_XIDS, GpuHealthCollector
from tachoscope_node.gpu.reading import Reading
from tachoscope_node.gpu.xid.counter import Boot, XidCounter


class Node:
    """The collector with readings, clocks and errors to be planted."""

    def __init__(self, *readings: Reading, expected: int = 0) -> None:
        self.readings, self.expected, self.now = readings, expected, 1_000_000.0
        self.said = Lines()
        self.counter = XidCounter(None, Boot("boot-1", 0.0), Lines().log)
        clock = {"clock": lambda: self.now, "unix_clock": lambda: self.now}
        self.collector = GpuHealthCollector(
            lambda: self.readings, self.counter, lambda: self.expected, self.said.log, start_seconds=0.0, **clock
        )


def test_one_state_is_one_for_each_gpu_and_for_the_node() -> None:
    node = Node(reading(index=0), lost(1), reading(index=2, fine=False))
    families = node.collector.collect()
    states = {labels[1:]: value for labels, value in points(families, names.GPU_HEALTH).items()}
    assert states == {
        (uuid(index), state): float(state == found)
        for index, found in enumerate(("healthy", "unhealthy", "unknown"))
        for state in names.GPU_HEALTH_STATES
    }
    assert {labels for labels, value in points(families, names.NODE_HEALTH).items() if value} == {("unhealthy",)}
    assert points(families, names.GPU_HEALTH_REASON) == {
        ("1", uuid(1), "lost", "reboot_node"): 1.0,
        ("2", uuid(2), "not_measured", "none"): 1.0,
    }


def test_an_error_is_named_by_the_reason_and_by_its_series() -> None:
    node = Node(reading())
    node.counter.know(uuid(0), "0", node.now, None)
    node.counter.count_error(uuid(0), 79, node.now, "nvml")
    families = node.collector.collect()
    assert points(families, names.GPU_HEALTH_REASON) == {("0", uuid(0), "xid_79", "reboot_node"): 1.0}
    assert points(families, names.GPU_XID_ERRORS) == {("0", uuid(0), "79"): 1.0}
    assert points(families, names.GPU_XID_LAST_SEEN) == {("0", uuid(0), "79"): node.now}


def test_the_page_has_value_threshold_action_and_beginning_of_each_reason_and_the_text_of_each_error() -> None:
    node = Node(reading((names.GPU_RETIRED_PAGES, ("corrected",), 64.0)), lost(1), expected=2)
    node.counter.count_error(uuid(0), 13, node.now - 5, "kernel_log", "pid=77, name=python3")
    node.collector.collect()
    page = json.loads(json.dumps(node.collector.page("node-1")))

    assert (page["node"], page["state"], page["time"]) == ("node-1", "unhealthy", node.now)
    assert [(reason["reason"], reason["since"]) for reason in page["reasons"]] == [("gpus_missing", node.now)]
    gpu = page["gpus"][0]
    assert (gpu["gpu"], gpu["uuid"], gpu["model"], gpu["state"]) == (0, uuid(0), "H100", "degraded")
    assert gpu["reasons"] == [
        {
            "reason": "retired_pages",
            "text": "retired pages: 64 pages >= 63",
            "value": 64.0,
            "comparison": ">=",
            "threshold": 63.0,
            "severity": "degraded",
            "action": "inspect_hardware",
            "since": node.now,
            "held": False,
        }
    ]
    assert page["gpus"][1]["state"] == "unhealthy"
    (xid,) = page["xids"]
    assert (xid["xid"], xid["name"], xid["action"], xid["count"]) == ("13", "graphics engine exception", "check_application", 1)
    assert xid["detail"] == "pid=77, name=python3"
    assert xid["source"].startswith("https://docs.nvidia.com/")


def test_the_page_before_anything_was_read_says_unknown() -> None:
    page = Node().collector.page("node-1")
    assert (page["state"], page["gpus"]) == ("unknown", [])
    assert page["reasons"][0]["text"] == "no GPU was read"


def test_the_page_shows_the_last_errors_only() -> None:
    node = Node(reading())
    for number in range(LAST_XIDS + 20):
        node.counter.count_error(uuid(0), 1000 + number, node.now + number, "nvml")
    node.collector.collect()
    assert [xid["xid"] for xid in node.collector.page("node-1")["xids"]] == [str(1051 - number) for number in range(LAST_XIDS)]


def test_a_node_without_a_gpu_has_no_data_and_one_that_lacks_its_gpus_has() -> None:
    with pytest.raises(NoDataError):
        Node().collector.collect()
    families = Node(expected=8).collector.collect()
    assert points(families, names.NODE_HEALTH)[("unhealthy",)] == 1
    assert points(families, names.GPU_HEALTH_REASON) == {("", "", "gpus_missing", "inspect_hardware"): 1.0}


def test_what_gpus_there_are_is_said_once_they_are_found() -> None:
    node = Node()
    with pytest.raises(NoDataError):
        node.collector.collect()
    found = [replace(each, gpu=replace(each.gpu, driver_version="550.90")) for each in (reading(), reading(index=1), lost(2))]
    node.readings = tuple(found)
    for _ in range(3):
        node.collector.collect()
    assert [line for line in node.said.lines if "found" in line] == ["2 GPUs found (H100), driver 550.90"]


def test_errors_of_a_node_whose_driver_does_not_start_are_shown() -> None:
    node = Node()
    node.counter.count_error("PCI:0000:9b:00", 143, node.now, "kernel_log")
    assert points(node.collector.collect(), names.GPU_XID_ERRORS) == {("", "PCI:0000:9b:00", "143"): 1.0}


@given(st.lists(st.sampled_from(["fine", "lost", "silent", "empty"]), max_size=8))
def test_the_metrics_and_the_page_say_the_same(kinds: list[str]) -> None:
    made = {
        "fine": lambda index: reading(index=index),
        "lost": lost,
        "silent": lambda index: reading(index=index, fine=False, up=False, fault="no_answer"),
        "empty": lambda index: reading(index=index, fine=False),
    }
    node = Node(*(made[kind](index) for index, kind in enumerate(kinds)), expected=1)
    families, page = node.collector.collect(), node.collector.page("node-1")
    shown = {labels[1]: labels[2] for labels, value in points(families, names.GPU_HEALTH).items() if value}
    assert shown == {gpu["uuid"]: gpu["state"] for gpu in page["gpus"]}
    assert [labels[0] for labels, value in points(families, names.NODE_HEALTH).items() if value] == [page["state"]]
    assert ("healthy" in shown.values()) == ("fine" in kinds)
    assert page["state"] != "healthy" or set(kinds) == {"fine"}


def test_the_collector_runs_in_the_agents_frame() -> None:
    node, outcomes = Node(reading()), list[str]()
    frame = Frame([node.collector], outcomes.append)
    frame.tick(1.0)
    frame.close()
    assert outcomes == []
    assert points(frame.families(), names.GPU_HEALTH)[("0", uuid(0), "healthy")] == 1
