"""The collector over hostile and ordinary files: what it counts, what it survives, what it costs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from trees import points

from inspecting import Inspector, histograms, line
from spooling import FakeClock
from tachoscope_core.metrics.nccl import (
    BANDWIDTH_DIFFERS,
    DETAILS,
    INSPECTOR_FILES,
    LINES,
    NCCL_METRICS,
    RELEASED_BYTES,
    SKIPPED_BYTES,
)
from tachoscope_node.collectors.collector import NoDataError
from tachoscope_node.config.nccl import Nccl
from tachoscope_node.nccl.collector import NcclCollector
from tachoscope_node.nccl.files import MOST_BEHIND_BYTES
from tachoscope_node.nccl.groups import Member
from tachoscope_node.nccl.ras import RasCollector
from tachoscope_node.nccl.tail import MAX_LINE_BYTES
from tachoscope_service.metrics.family import Family

_CPU_SECONDS_PER_MEBIBYTE = 0.06
"""Four times what it took (10 to 18 ms), for slower machines."""


class Node:
    """A collector beside some ranks of one job."""

    def __init__(self, folder: Path, ranks: int = 4, **settings: Any) -> None:
        self.folder, self.clock = folder, FakeClock()
        self.log: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.members = [Member("job", rank, 0, 100 + rank, ranks, os.getuid(), {"dp": ranks}) for rank in range(ranks)]
        self.settings = Nccl(inspector=[str(folder / "inspector")], **settings)
        self.start()

    def start(self) -> None:
        self.collector = NcclCollector(
            self.settings,
            state=self.folder / "nccl.json",
            members=lambda: self.members,
            write=lambda job, kind, **fields: self.records.append(fields),
            log=self.log.append,
            clock=self.clock,
        )

    def inspector(self, rank: int) -> Inspector:
        return Inspector(self.folder / "inspector", pid=100 + rank)

    def run(self, seconds: float = 1.0) -> list[Family]:
        self.clock.now += seconds
        try:
            return self.collector.collect()
        except NoDataError as error:
            return list(error.families)


def outcomes(families: list[Family]) -> dict[str, float]:
    return {labels[0]: count for labels, count in points(families, LINES).items() if count}


def counted(families: list[Family]) -> dict[tuple[str, ...], int]:
    return {labels: sum(histogram.counts) for labels, histogram in histograms(families).items()}


def test_both_collectors_declare_all_of_nccls_part_of_the_catalogue() -> None:
    declared = {metric.name for metric in (*NcclCollector.metrics, *RasCollector.metrics)}

    assert declared == {metric.name for metric in NCCL_METRICS}


def test_a_folder_that_is_not_there_is_no_failure_and_says_where_it_looked(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(NoDataError, match="writes nothing below"):
        node.collector.collect()


def test_all_ranks_of_a_node_add_up(tmp_path: Path) -> None:
    node = Node(tmp_path, record_one_in=1)
    for rank in range(4):
        node.inspector(rank).operation("ReduceScatter", count=23, rank=rank, size=1 << 19)
    families = node.run()

    assert counted(families) == {("job", "all", "reduce_scatter", "<=16MiB"): 92}
    assert outcomes(families) == {"counted": 92}
    assert sorted((one["rank"], one["sequence"]) for one in node.records) == [(rank, n) for rank in range(4) for n in range(23)]
    assert points(families, INSPECTOR_FILES) == {(): 4}
    assert points(families, BANDWIDTH_DIFFERS) == {}


def test_garbage_is_counted_by_what_it_is_and_hides_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    inspector = node.inspector(0)
    inspector.operation(count=3)
    inspector.write(b"\xff\xfe\n{}\n[[[[\n", line(pid=100, rank=9), b"q" * (3 * MAX_LINE_BYTES) + b"\n")
    inspector.operation(count=4)
    inspector.write(b'{"header": {"id"')

    assert outcomes(node.run()) == {"counted": 7, "malformed": 3, "implausible": 1, "oversized": 1}


def test_a_process_that_nobody_knows_is_counted_under_no_job_and_has_no_records(tmp_path: Path) -> None:
    node = Node(tmp_path, record_one_in=1)
    node.members = []
    node.inspector(0).operation(count=5, name="pg7")
    families = node.run()

    assert counted(families) == {("", "pg7", "all_reduce", "<=16MiB"): 5}
    assert node.records == []
    assert sum(points(families, DETAILS).values()) == 0


def test_lines_are_read_once_also_over_a_restart_of_the_agent(tmp_path: Path) -> None:
    node = Node(tmp_path)
    inspector = node.inspector(0)
    inspector.operation(count=10)
    assert outcomes(node.run()) == {"counted": 10}
    node.start()
    inspector.operation(count=7)

    assert outcomes(node.run()) == {"counted": 7}


def test_a_state_file_that_is_broken_or_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "nccl.json").write_bytes(b"\x00garbage")
    node = Node(tmp_path)
    node.inspector(0).operation(count=3)
    assert outcomes(node.run()) == {"counted": 3}
    (tmp_path / "nccl.json").unlink()
    (tmp_path / "nccl.json").mkdir()
    node.inspector(1).operation(count=3)
    node.run(5.0)

    assert "could not write" in node.log[0]


def test_files_stay_small_while_every_operation_is_counted(tmp_path: Path) -> None:
    node = Node(tmp_path, bytes_per_second=1 << 22, rotate_bytes=1 << 20)
    inspector = node.inspector(0)
    for run in range(6):
        inspector.operation(count=4000, sequence=4000 * run)
        families = node.run()
    if node.log:
        pytest.skip("this file system cannot punch holes")

    assert outcomes(families) == {"counted": 24_000}
    assert points(families, RELEASED_BYTES)[()] > 4 << 20
    assert inspector.path.stat().st_blocks * 512 < 4 << 20


def test_more_than_may_be_read_is_left_out_and_counted_and_no_run_is_long(tmp_path: Path) -> None:
    node = Node(tmp_path, bytes_per_second=1 << 16)
    inspector = node.inspector(0)
    row = Inspector(tmp_path / "scratch", pid=100)
    row.operation()
    inspector.write(row.path.read_bytes() * (2 * MOST_BEHIND_BYTES // row.path.stat().st_size))
    families = node.run()

    assert points(families, SKIPPED_BYTES)[()] == pytest.approx(MOST_BEHIND_BYTES, rel=0.01)
    assert 0 < outcomes(families)["counted"] < 1000


def test_what_it_costs_is_little(tmp_path: Path) -> None:
    node, costs = Node(tmp_path, ranks=8, bytes_per_second=1 << 30), []
    inspectors = [node.inspector(rank) for rank in range(8)]
    for first in (0, 400, 800):
        for rank, inspector in enumerate(inspectors):
            inspector.operation(count=400, sequence=first, rank=rank, ranks=8)
        size = sum(path.stat().st_size for path in (tmp_path / "inspector").iterdir()) * 400 / (first + 400)
        start = time.thread_time()
        node.run()
        costs.append((time.thread_time() - start) / (size / (1 << 20)))

    assert min(costs) < _CPU_SECONDS_PER_MEBIBYTE  # the same work takes longer where others use the caches meanwhile
