from pathlib import Path

import pytest

from planting import Planted
from planting_ranks import Group, PlantedJob
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions

SUMMARY_ONLY = SummaryOptions(judged=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def problems(folder: Path, wanted: SummaryOptions = SUMMARY_ONLY) -> dict[str, str]:
    table = read_job([folder], executor=InProcess(), wanted=wanted).quality
    return dict(zip(table["problem"], table["detail"], strict=True))


def test_a_sound_job_has_no_problem(folder: Path) -> None:
    PlantedJob(3, [Group("0", range(3))]).write(folder)
    assert problems(folder) == {}


def test_a_cut_file_is_named(folder: Path) -> None:
    paths = PlantedJob(2, [Group("0", range(2))]).write(folder)
    paths[0].write_bytes(paths[0].read_bytes()[:-300])
    assert set(problems(folder)) == {"cut"}


def test_traces_of_jobs_of_different_sizes_are_questioned(folder: Path) -> None:
    for rank, world in ((0, 2), (1, 3)):
        trace = Planted(rank, world)
        trace.kernel("k", 1_000, 1_000)
        trace.write(folder / f"{rank}.json")
    assert "different numbers of ranks (2 and 3)" in problems(folder)["several_world_sizes"]


def test_recordings_of_different_moments_are_said_to_be(folder: Path) -> None:
    for rank in range(2):
        trace = Planted(rank, 2)
        trace.kernel("k", 1_000 + 10**9 * rank, 1_000)
        trace.write(folder / f"{rank}.json")
    assert {"no_common_time", "nothing_in_common", "clocks_not_aligned"} <= set(problems(folder))


def test_clocks_that_only_differ_are_no_problem_since_collectives_align_them(folder: Path) -> None:
    PlantedJob(2, [Group("0", range(2))], offsets={1: 10**12}).write(folder)
    assert problems(folder) == {}


def test_the_same_file_twice_is_noticed_where_no_rank_tells_it(folder: Path) -> None:
    for name in "ab":
        trace = Planted(None)
        trace.kernel("k", 1_000, 1_000)
        trace.write(folder / f"{name}.json")
    assert "ranks 0, 1" in problems(folder)["same_content"]


def test_collectives_that_were_left_out_are_counted(folder: Path) -> None:
    PlantedJob(2, [Group("0", range(2))], steps=300).write(folder)
    assert "the first 256 of 300" in problems(folder, SummaryOptions(collectives=1, judged=False))["collectives_left_out"]


def test_ranks_that_do_something_else_are_named(folder: Path) -> None:
    traces = PlantedJob(3, [Group("0", range(3))], named=False).traces()
    odd = PlantedJob(3, [Group("0", range(3), kind="all_gather")], named=False).traces()
    for rank, trace in (traces | {2: odd[2]}).items():
        trace.write(folder / f"{rank}.json")
    assert "rank 2" in problems(folder)["not_matched"]


def test_ranks_that_are_not_here_are_named_for_a_single_file_too(folder: Path) -> None:
    paths = PlantedJob(3, [Group("0", range(3))]).write(folder)
    alone = read_job(paths[1:2], executor=InProcess(), wanted=SUMMARY_ONLY).quality
    assert alone["detail"].tolist() == ["1 of 3 ranks is here, without ranks 0, 2"]


def test_a_job_said_to_be_huge_is_counted_without_a_list_of_its_ranks(folder: Path) -> None:
    trace = Planted(3, 10**9)
    trace.kernel("k", 1_000, 1_000)
    trace.write(folder / "a.json")
    assert problems(folder)["missing_ranks"] == (
        "1 of 1000000000 ranks is here, without ranks 0, 1, 2, 4, 5, 6, 7, 8, 9, 10 and 999999989 more"
    )
