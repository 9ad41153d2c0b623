"""Communication by parallel dimension: planted seconds come back under the dimension whose group moved them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from making import job, moved
from tachoscope_analyzers.classify.communication.parallel_dimensions import Exposed, exposed
from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.records.load import JobRecords, from_spool
from tachoscope_analyzers.records.steps import aligned
from tachoscope_core.records import records
from tachoscope_core.records.group_names import group_name

STEPS, RANKS = 40, 4
LAYOUT = {"dp": [[0, 2], [1, 3]], "tp": [[0, 1], [2, 3]]}
ROW = {"data_wait": 0.001, "forward": 0.02, "backward": 0.03, "collective": 0.03, "optimizer": 0.002}


def planted(tmp_path: Path, seconds: dict[str, dict[int, float]], *, told: bool = True) -> JobRecords:
    """Return a job of 2 x 2 ranks in which each rank is blocked for so long a step in the collectives of its group."""
    collectives = [
        moved(rank, "all_reduce", 20_000 + number, group=group, group_size=2, seconds=each * STEPS, count=STEPS, step=STEPS)
        for number, (group, by_rank) in enumerate(seconds.items())
        for rank, each in by_rank.items()
    ]
    lines = job([[ROW] * RANKS] * STEPS, collectives=collectives).splitlines()
    rows = [records.decode(line) for line in lines]
    if told:
        rows = [
            msgspec.structs.replace(row, groups={name: [one for one in all_ if row.rank in one] for name, all_ in LAYOUT.items()})
            if isinstance(row, records.JobStarted)
            else row
            for row in rows
        ]
    path = tmp_path / "00000000-0000-4000-8000-000000000000-000000.jsonl"
    path.write_bytes(b"".join(map(records.encode, rows)))
    return from_spool([path])


SECONDS = {
    "0,1": {0: 0.020, 1: 0.020},
    "2,3": {2: 0.020, 3: 0.030},
    "0,2": {0: 0.002, 2: 0.005},
    "1,3": {1: 0.003, 3: 0.003},
}


def test_each_dimension_has_the_seconds_of_its_groups_and_waiting_apart(tmp_path: Path) -> None:
    found = planted(tmp_path, SECONDS)

    tensor, data = exposed(found, aligned(found))
    assert tensor == Exposed("tp", 2, 2, pytest.approx(0.020), pytest.approx(0.0225))
    assert data == Exposed("dp", 2, 2, pytest.approx(0.0025), pytest.approx(0.00325))


def test_the_finding_of_exposed_communication_tells_them(tmp_path: Path) -> None:
    report = analyze(planted(tmp_path, SECONDS))

    (finding,) = [one for one in report.findings if one.class_ == "comm_exposed"]
    told = {one.signal.split(" ")[0]: one.value for one in finding.evidence if one.source == "collective summaries"}
    assert told["tp"] == pytest.approx(0.020) and told["dp"] == pytest.approx(0.0025)


def test_batches_are_accumulated_for_data_parallel_groups_and_not_for_those_of_each_batch(tmp_path: Path) -> None:
    def action(seconds: dict[str, dict[int, float]]) -> str:
        (found,) = (one for one in analyze(planted(tmp_path, seconds)).findings if one.class_ == "comm_exposed")
        return found.action

    of_data = {"0,1": SECONDS["1,3"], "2,3": SECONDS["1,3"], "0,2": SECONDS["0,1"], "1,3": SECONDS["0,1"]}
    swapped = {group: dict.fromkeys(map(int, group.split(",")), next(iter(rows.values()))) for group, rows in of_data.items()}

    assert action(SECONDS).startswith("most of it is collectives of tp, which belong to each batch")
    assert "no_sync()" in action(swapped)


def test_without_a_layout_or_for_other_groups_nothing_is_told(tmp_path: Path) -> None:
    found = planted(tmp_path, SECONDS, told=False)
    assert exposed(found, aligned(found)) == []
    other = planted(tmp_path, {"0,3": {0: 0.02, 3: 0.02}})
    assert exposed(other, aligned(other)) == []


def test_the_group_of_all_ranks_and_a_large_one_are_named_as_the_probe_does() -> None:
    assert group_name([0, 1], 2) == ""
    assert group_name([0, 2], 4) == "0,2"
    assert group_name(range(0, 64, 2), 128) == "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,... (32 ranks)"
