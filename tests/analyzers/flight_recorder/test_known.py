"""Groups are put together from all ranks, though each numbers them in its own way."""

from pathlib import Path

from recorder_dumps import PlantedDump, world
from tachoscope_analyzers.flight_recorder.dump import Progress
from tachoscope_analyzers.flight_recorder.known import known_groups
from tachoscope_analyzers.flight_recorder.read import read_all


def test_members_come_from_all_ranks_and_operations_stand_by_rank_and_number(tmp_path: Path) -> None:
    dumps = world(3)
    dumps[0].enqueue("0")
    dumps[2].enqueue("0")
    group = known_groups(read_all(dump.write(tmp_path) for dump in dumps.values()))["0"]

    assert (group.ranks, group.description) == ((0, 1, 2), "default_pg")
    assert {rank: list(numbers) for rank, numbers in group.operations.items()} == {0: [6], 2: [6]}


def test_progress_without_an_operation_is_known_by_what_the_number_is_for_on_other_ranks(tmp_path: Path) -> None:
    dumps = world(2)
    dumps[0].enqueue("0")
    found = known_groups(read_all(dump.write(tmp_path) for dump in dumps.values()))

    assert found["0"].progress == {0: Progress(6, 5), 1: Progress(5, 5)}


def test_what_completed_after_a_pending_operation_is_no_progress(tmp_path: Path) -> None:
    dumps = world(2)
    dumps[0].enqueue("0")
    dumps[0].enqueue("0", done=True)
    found = known_groups(read_all(dump.write(tmp_path) for dump in dumps.values()))

    assert found["0"].progress[0] == Progress(7, 5)


def test_progress_that_counts_sends_too_is_not_compared(tmp_path: Path) -> None:
    groups = {"1": ("PIPELINE", [0, 1])}
    dumps = [PlantedDump(rank, dict(groups)) for rank in range(2)]
    dumps[0].enqueue("1")
    dumps[0].message("1", "send 0->1", 3)

    assert known_groups(read_all(dump.write(tmp_path) for dump in dumps))["1"].progress == {}
