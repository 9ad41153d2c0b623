"""Readings as families."""

from __future__ import annotations

from trees import points

from tachoscope_core.metrics import gpu as names
from tachoscope_node.gpu.metrics import METRICS, families
from tachoscope_node.gpu.reading import Gpu, Reading

FULL = Gpu(0, "GPU-a", model="H100", pci_bus_id="00000000:1B:00.0", driver_version="550.90.07")
PART = Gpu(0, "MIG-b", "7", "GPU-a", "H100", "00000000:1B:00.0", "550.90.07", "1g.10gb")
VALUES = {names.GPU_POWER.name: {("usage",): 613.1}, names.GPU_ENERGY.name: {(): 23.0}}


def test_labels_are_the_gpus_then_those_of_the_metric() -> None:
    found = families([Reading(FULL, values=VALUES), Reading(PART, values={names.GPU_ACTIVE.name: {("sm",): 0.5}})], 1)

    assert points(found, names.GPU_POWER) == {("0", "GPU-a", "", "usage"): 613.1}
    assert points(found, names.GPU_ENERGY) == {("0", "GPU-a", ""): 23.0}
    assert points(found, names.GPU_ACTIVE) == {("0", "MIG-b", "7", "sm"): 0.5}
    assert points(found, names.GPU_INFO) == {
        ("0", "GPU-a", "", "H100", "00000000:1B:00.0", "550.90.07", ""): 1.0,
        ("0", "MIG-b", "7", "H100", "00000000:1B:00.0", "550.90.07", "1g.10gb"): 1.0,
    }
    assert all(len(labels) == len(family.metric.labels) for family in found for labels, _ in family.points)
    assert {family.metric for family in found} <= set(METRICS)


def test_of_a_gpu_that_is_down_nothing_is_shown_but_that() -> None:
    found = families([Reading(FULL, up=False, fault="lost", values=VALUES), Reading(PART)], 2)

    assert points(found, names.GPU_UP) == {FULL.labels: 0.0, PART.labels: 1.0}
    assert points(found, names.GPU_POWER) == {}
    assert points(found, names.GPUS) == {("expected",): 2.0, ("seen",): 0.0}


def test_no_family_is_empty() -> None:
    assert all(family.points for family in families([Reading(FULL, values=VALUES)], 1))
