"""Pressure comes as the kernel's own totals; a kernel without it is not a failure."""

import errno
from pathlib import Path

import pytest
from trees import RECORDED, collected, plant, points

from tachoscope_core.metrics.host import PRESSURE_SECONDS
from tachoscope_node.collectors import pressure
from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.collectors.pressure import PressureCollector
from tachoscope_node.common.kernel_files import MalformedError

_SOME = "some avg10=1.00 avg60=0.00 avg300=0.00 total={}\n"
_FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total={}\n"


def test_planted_microseconds_come_out_as_seconds_and_full_of_the_cpu_is_not_told(tmp_path: Path) -> None:
    files = {
        "pressure/cpu": _SOME.format(23_000_000) + _FULL.format(0),
        "pressure/memory": _SOME.format(5) + _FULL.format(3),
        "pressure/io": _SOME.format(7_500_000) + _FULL.format(2_000_000),
    }

    assert points(collected(PressureCollector(plant(tmp_path, files))), PRESSURE_SECONDS) == {
        ("cpu", "some"): 23,
        ("memory", "some"): 5e-6,
        ("memory", "full"): 3e-6,
        ("io", "some"): 7.5,
        ("io", "full"): 2,
    }


def test_kernels_before_5_13_have_no_full_line_for_the_cpu(tmp_path: Path) -> None:
    files = {f"pressure/{resource}": _SOME.format(1) for resource in ("cpu", "memory", "io")}

    assert len(points(collected(PressureCollector(plant(tmp_path, files))), PRESSURE_SECONDS)) == 3


def test_full_is_never_longer_than_some_on_a_recorded_machine() -> None:
    found = points(collected(PressureCollector(str(RECORDED / "proc"))), PRESSURE_SECONDS)

    assert all(found[resource, "full"] <= found[resource, "some"] for resource in ("memory", "io"))


def test_a_kernel_without_pressure_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="boot it with psi=1"):
        PressureCollector(str(tmp_path)).collect()


def test_a_kernel_with_pressure_switched_off_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    def switched_off(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(pressure, "rows", switched_off)
    with pytest.raises(NotSupportedError):
        PressureCollector().collect()


def test_content_that_is_not_the_kernels_is_named(tmp_path: Path) -> None:
    proc = plant(tmp_path, {"pressure/cpu": _SOME.format(1) + "full avg10=0.00 total=much\n"})

    with pytest.raises(MalformedError, match="pressure/cpu:2: cannot be read: 'full avg10=0.00 total=much'"):
        PressureCollector(proc).collect()
