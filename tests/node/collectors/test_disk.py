"""Disks in bytes and seconds; what is not a disk, and what is counted at one already, is left out."""

from pathlib import Path

import pytest
from trees import RECORDED, collected, plant, points

from tachoscope_core.metrics.host import DISK_BYTES, DISK_IO_SECONDS, DISK_OPERATION_SECONDS, DISK_OPERATIONS
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.collectors.disk import DiskCollector
from tachoscope_node.common.kernel_files import MalformedError
from tachoscope_node.config.device_filter import DeviceFilter

_NVME = " 259 0 nvme0n1 11 2 23 4000 13 6 29 8000 1 5000 12000 0 0 0 0 0 0\n"
_OLD = "   8 0 sda 1 0 8 1 1 0 8 1 0 1 2\n"
_PARTITION = " 259 1 nvme0n1p1 11 2 23 4 13 6 29 8 1 5 12 0 0 0 0 0 0\n"


def test_planted_sectors_are_512_bytes_and_milliseconds_become_seconds(tmp_path: Path) -> None:
    families = collected(DiskCollector(plant(tmp_path, {"diskstats": _NVME + _PARTITION})))

    read, write = ("nvme0n1", "read"), ("nvme0n1", "write")
    assert points(families, DISK_BYTES) == {read: 23 * 512, write: 29 * 512}
    assert points(families, DISK_OPERATIONS) == {read: 11, write: 13}
    assert points(families, DISK_OPERATION_SECONDS) == {read: 4, write: 8}
    assert points(families, DISK_IO_SECONDS) == {("nvme0n1",): 5}


def test_kernels_before_4_18_have_fewer_columns(tmp_path: Path) -> None:
    assert points(collected(DiskCollector(plant(tmp_path, {"diskstats": _OLD}))), DISK_BYTES)["sda", "read"] == 8 * 512


def test_a_recorded_machine_has_one_disk_beside_eight_loops_and_a_zram() -> None:
    families = collected(DiskCollector(str(RECORDED / "proc")))

    assert set(points(families, DISK_IO_SECONDS)) == {("vda",)}


def test_a_disk_that_disappears_disappears(tmp_path: Path) -> None:
    collector = DiskCollector(plant(tmp_path, {"diskstats": _NVME + _OLD}))
    assert len(points(collected(collector), DISK_IO_SECONDS)) == 2

    plant(tmp_path, {"diskstats": _OLD})

    assert set(points(collected(collector), DISK_IO_SECONDS)) == {("sda",)}


def test_a_filter_of_ones_own_replaces_the_default(tmp_path: Path) -> None:
    proc = plant(tmp_path, {"diskstats": _NVME + _PARTITION + _OLD})

    assert set(points(collected(DiskCollector(proc, DeviceFilter(include=r".*p\d+"))), DISK_IO_SECONDS)) == {("nvme0n1p1",)}


def test_no_disk_is_no_data_and_not_a_failure(tmp_path: Path) -> None:
    with pytest.raises(NoDataError, match="no disk of .*diskstats passes the filter"):
        DiskCollector(plant(tmp_path, {"diskstats": "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n"})).collect()


@pytest.mark.parametrize("line", ["8 0", "8 0 sdb 1 2 3", "8 0 sdb 1 2 3 4 5 6 seven 8 9 10 11"])
def test_a_line_that_is_not_the_kernels_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(MalformedError, match=f"diskstats:2: cannot be read: '{line}'"):
        DiskCollector(plant(tmp_path, {"diskstats": _NVME + line + "\n"})).collect()
