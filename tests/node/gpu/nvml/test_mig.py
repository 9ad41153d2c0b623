"""Instances of a GPU."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from fake_nvml import Driver
from tachoscope_node.gpu.nvml import mig
from tachoscope_node.gpu.reading import Gpu

PARENT = Gpu(0, "GPU-parent", model="H100", pci_bus_id="00000000:1B:00.0", driver_version="550.90.07")


def instances(driver: Driver) -> list[Gpu]:
    with driver.in_process():
        pynvml.nvmlInit()
        return [instance.gpu for instance in mig.instances(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0), PARENT)]


def test_instances_carry_their_own_id_and_what_they_share_with_the_gpu(tmp_path: Path) -> None:
    found = instances(Driver(tmp_path, "h100_mig"))

    assert found[0] == Gpu(
        0, "MIG-8a100000-0000-5000-8000-000000000002", "2", "GPU-parent", "H100", "00000000:1B:00.0", "550.90.07", "3g.40gb"
    )
    assert [(gpu.mig, gpu.mig_profile) for gpu in found] == [("2", "3g.40gb"), ("5", "2g.20gb"), ("13", "1g.10gb")]


def test_a_profile_that_the_name_does_not_tell_is_made_from_the_instances_size(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "h100_mig")
    driver.set({f"gpu.0.mig.{instance}.profile": "none" for instance in (2, 5, 13)})

    assert [gpu.mig_profile for gpu in instances(driver)] == ["3g.40gb", "2g.20gb", "1g.10gb"]


@pytest.mark.parametrize(("profile", "on"), [("h100_mig", True), ("h100x8", False), ("laptop", False), ("old_driver", False)])
def test_mig_is_on_only_where_the_driver_says_so(tmp_path: Path, profile: str, on: bool) -> None:
    with Driver(tmp_path, profile).in_process():
        pynvml.nvmlInit()

        assert mig.is_on(pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)) == on
