"""CPU seconds by mode add up to the machine's time."""

import os
import time
from pathlib import Path

import pytest
from trees import RECORDED, collected, plant, points

from tachoscope_core.metrics.host import CPU_CORES, CPU_SECONDS
from tachoscope_node.collectors.cpu import CpuCollector
from tachoscope_node.common.kernel_files import MalformedError

_TICKS = os.sysconf("SC_CLK_TCK")


def stat(*ticks: int, cores: int = 1) -> dict[str, str]:
    numbers = " ".join(map(str, ticks))
    return {"stat": f"cpu  {numbers}\n" + "".join(f"cpu{core} {numbers}\n" for core in range(cores)) + "intr 5 0\nctxt 7\n"}


def test_planted_ticks_come_out_as_seconds_by_mode_without_guests_counted_twice(tmp_path: Path) -> None:
    proc = plant(tmp_path, stat(*(mode * _TICKS for mode in (23, 2, 3, 5, 7, 11, 13, 17)), 19, 1, cores=4))

    families = collected(CpuCollector(proc))

    seconds = {labels[0]: value for labels, value in points(families, CPU_SECONDS).items()}
    assert seconds == {"user": 23, "nice": 2, "system": 3, "idle": 5, "iowait": 7, "irq": 11, "softirq": 13, "steal": 17}
    assert points(families, CPU_CORES) == {(): 4}


def test_a_recorded_machine_of_two_cores() -> None:
    families = collected(CpuCollector(str(RECORDED / "proc")))

    assert points(families, CPU_CORES) == {(): 2}
    assert points(families, CPU_SECONDS)["idle",] > 0


def test_on_this_machine_a_second_passes_once_on_each_core() -> None:
    collector = CpuCollector()
    before, start = points(collected(collector), CPU_SECONDS), time.monotonic()
    time.sleep(1)
    after, wall = points(collected(collector), CPU_SECONDS), time.monotonic() - start

    passed = sum(after.values()) - sum(before.values())
    assert passed == pytest.approx(wall * (os.cpu_count() or 1), rel=0.15)


def test_a_small_step_back_is_held_so_that_no_rate_takes_it_for_a_restart(tmp_path: Path) -> None:
    collector = CpuCollector(str(tmp_path))
    seen = []
    for idle in (1000, 999, 998, 1001, 1001 - 4 * _TICKS):
        plant(tmp_path, stat(1, 1, 1, idle, 1, 1, 1, 1))
        seen.append(points(collected(collector), CPU_SECONDS)["idle",] * _TICKS)

    assert seen == [1000, 1000, 1000, 1001, 1001 - 4 * _TICKS]


@pytest.mark.parametrize("content", ["", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 seven 8\n", "intr 5\n"])
def test_content_that_is_not_the_kernels_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(MalformedError, match="stat:1: cannot be read"):
        CpuCollector(plant(tmp_path, {"stat": content})).collect()
