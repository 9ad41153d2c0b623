"""Memory in bytes, and the events that say there is too little of it."""

from pathlib import Path

import pytest
from trees import RECORDED, collected, plant, points

from tachoscope_core.metrics.host import MAJOR_FAULTS, MEMORY_BYTES, OOM_KILLS
from tachoscope_node.collectors.memory import MemoryCollector
from tachoscope_node.common.kernel_files import MalformedError

_MEMINFO = "MemTotal: 100 kB\nMemFree: 23 kB\nCached: 5 kB\nSwapCached: 7 kB\nDirty: 2 kB\n"
_VMSTAT = "nr_free_pages 1\npgfault 9\npgmajfault 23\noom_kill 2\n"


def test_planted_memory_and_events_come_out(tmp_path: Path) -> None:
    families = collected(MemoryCollector(plant(tmp_path, {"meminfo": _MEMINFO, "vmstat": _VMSTAT})))

    memory = {labels[0]: value for labels, value in points(families, MEMORY_BYTES).items()}
    assert memory == {"total": 102400, "free": 23 * 1024, "cached": 5 * 1024, "dirty": 2048}
    assert points(families, MAJOR_FAULTS) == {(): 23}
    assert points(families, OOM_KILLS) == {(): 2}


def test_what_an_old_kernel_does_not_count_is_left_out_and_not_zero(tmp_path: Path) -> None:
    families = collected(MemoryCollector(plant(tmp_path, {"meminfo": _MEMINFO, "vmstat": "pgmajfault 1\n"})))

    assert points(families, OOM_KILLS) == {}


def test_on_a_recorded_machine_every_kind_is_there_and_no_part_is_larger_than_the_whole() -> None:
    memory = points(collected(MemoryCollector(str(RECORDED / "proc"))), MEMORY_BYTES)

    assert len(memory) == 10
    assert all(value <= memory["total",] for value in memory.values())
    assert memory["shmem",] <= memory["cached",]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("meminfo", "MemTotal: 100 kB\nDirty: lots kB\n", "meminfo:2"),
        ("meminfo", "", "meminfo:1"),
        ("vmstat", "pgmajfault \n", "vmstat:1"),
    ],
)
def test_content_that_is_not_the_kernels_is_named(tmp_path: Path, name: str, content: str, place: str) -> None:
    proc = plant(tmp_path, {"meminfo": _MEMINFO, "vmstat": _VMSTAT, name: content})

    with pytest.raises(MalformedError, match=f"{place}: cannot be read"):
        MemoryCollector(proc).collect()
