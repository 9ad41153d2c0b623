"""A filter includes or excludes by the whole name, never both."""

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_node.config.device_filter import DISKS, INTERFACES, DeviceFilter
from trying import each


def test_include_keeps_only_what_matches_as_a_whole() -> None:
    devices = DeviceFilter(include="nvme0n1|sd.")

    assert [name for name in ("nvme0n1", "nvme0n1p1", "sda", "sda1", "vda") if devices.keeps(name)] == ["nvme0n1", "sda"]


def test_exclude_keeps_all_but_what_matches_as_a_whole() -> None:
    assert [name for name in ("lo", "lo0", "eth0") if DeviceFilter(exclude="lo").keeps(name)] == ["lo0", "eth0"]


def test_without_either_all_devices_are_kept() -> None:
    assert DeviceFilter().keeps("anything")


def test_both_at_once_are_refused() -> None:
    with pytest.raises(TachoscopeError, match=r"both include 'eth.' and exclude 'lo' \(give one of them\)"):
        DeviceFilter(include="eth.", exclude="lo")


def test_what_is_no_regular_expression_is_refused_with_its_fault() -> None:
    with pytest.raises(TachoscopeError, match=r"exclude '\(' of a device filter is not a regular expression: missing \)"):
        DeviceFilter(exclude="(")


@each("name", ["loop0", "ram15", "zram0", "dm-3", "sda1", "vda15", "xvda1", "nvme0n1p2", "mmcblk0p1", "sr0", "fd0"])
def test_no_disk_by_default_are_memory_mappings_and_partitions(name: str) -> None:
    assert not DISKS.keeps(name)


@each("name", ["sda", "vda", "xvdb", "nvme0n1", "nvme10n2", "mmcblk0", "md0", "md127", "nbd0", "rbd1"])
def test_disks_by_default(name: str) -> None:
    assert DISKS.keeps(name)


@each("name", ["lo", "veth1a2b", "cali0123", "docker0", "docker_gwbridge", "br-0a1b"])
def test_what_only_carries_a_hosts_own_traffic_is_no_interface_by_default(name: str) -> None:
    assert not INTERFACES.keeps(name)


@each("name", ["eth0", "eno1", "enp1s0f0np0", "ib0", "bond0", "br0", "lo1", "wlan0"])
def test_interfaces_by_default(name: str) -> None:
    assert INTERFACES.keeps(name)
