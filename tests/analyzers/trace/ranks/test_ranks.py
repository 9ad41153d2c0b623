import json
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planting import Planted
from planting_ranks import Group, PlantedJob
from recorded import recorded
from tachoscope_analyzers.trace.ranks.executor import InProcess
from tachoscope_analyzers.trace.ranks.job import MOST_COLLECTIVES, JobTraces, read_job
from tachoscope_analyzers.trace.ranks.rank_summary import summarise
from tachoscope_core.errors import TachoscopeError

LATE_NS, MILLISECOND = 3_000_000, 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for traces alone: the cache lies beside it."""
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def planted(folder: Path, job: PlantedJob) -> JobTraces:
    job.write(folder)
    return read_job([folder], executor=InProcess())


def world(ranks: int, **changes: object) -> Group:
    return Group("0", range(ranks), "default_pg", **changes)  # type: ignore[arg-type]


def test_the_late_rank_and_its_delay_are_found_exactly_whatever_the_clocks_say(folder: Path) -> None:
    offsets = {0: 0, 1: 7_000_000_123, 2: -3_000_000_456, 3: 41}
    job = PlantedJob(4, [world(4)], late={2: LATE_NS}, offsets=offsets)
    found = planted(folder, job)
    assert found.clocks["offset_ns"].tolist() == [offsets[rank] for rank in range(4)]
    assert found.collectives["last_rank"].tolist() == [one.last for one in job.truth] == [2] * 6
    assert found.collectives["delay_ns"].tolist() == [one.delay for one in job.truth]
    assert found.collectives["transfer_ns"].tolist() == [300_000] * 6
    waits = found.waits.set_index("rank")["wait_ns"]
    assert waits.tolist() == [sum(one.wait(rank) for one in job.truth) for rank in range(4)]
    late = found.stragglers[found.stragglers["straggler"]]
    assert late["rank"].tolist() == [2]
    assert late["last_steps"].tolist() == late["steps"].tolist() == [6]
    assert late["shortest_collectives"].tolist() == [6]
    assert found.quality.empty


def test_nobody_is_a_straggler_when_ranks_take_turns_in_being_late(folder: Path) -> None:
    found = planted(folder, PlantedJob(4, [world(4)], steps=12, jitter=4_000_000))
    assert len(found.stragglers) > 1
    assert not found.stragglers["straggler"].any()


def test_a_wait_that_is_shorter_than_the_clocks_error_is_not_claimed(folder: Path) -> None:
    job = PlantedJob(3, [world(3)], steps=20, jitter=20_000, scatter=200_000)
    found = planted(folder, job)
    assert found.clocks["error_ns"].max() > 20_000
    assert found.collectives["delay_ns"].sum() == 0
    assert found.waits["wait_ns"].sum() == 0
    assert found.stragglers.empty


def test_wait_and_transfer_sum_to_the_duration_of_each_collective(folder: Path) -> None:
    found = planted(folder, PlantedJob(3, [world(3)], late={1: LATE_NS}, scatter=50_000))
    assert (found.waits["wait_ns"] + found.waits["transfer_ns"] == found.waits["duration_ns"]).all()
    assert found.waits["wait_ns"].sum() > 0


def test_the_straggler_is_named_in_its_own_process_group(folder: Path) -> None:
    groups = [
        Group("1", [0, 1], "tp"),
        Group("2", [2, 3], "tp"),
        Group("3", [0, 2], "dp", kind="reduce_scatter"),
        Group("4", [1, 3], "dp", kind="reduce_scatter"),
    ]
    job = PlantedJob(4, groups, late={3: LATE_NS})
    found = planted(folder, job)
    late = found.stragglers[found.stragglers["straggler"]].set_index("group")["rank"]
    assert late["2"] == 3  # its partner waits for it in their own group
    assert "1" not in late.index
    for one, row in zip(sorted(job.truth, key=lambda one: (one.group.name, one.step)), found.collectives.itertuples(), strict=True):
        assert (row.group, row.step, row.last_rank, row.delay_ns) == (one.group.name, one.step, one.last, one.delay)
    assert set(found.dimensions["group_description"]) == {"tp", "dp"}


def test_exposed_communication_by_dimension_is_that_of_the_planted_collectives(folder: Path) -> None:
    groups = [Group("1", [0, 1], "tp", transfer=700_000), Group("2", [0, 1], "pp", kind="all_to_all", transfer=100_000)]
    found = planted(folder, PlantedJob(2, groups, jitter=0))
    each = found.dimensions.set_index("group_description")["exposed_per_step_ns"]
    assert each.to_dict() == {"tp": 700_000, "pp": 100_000}


@pytest.mark.parametrize("named", [True, False], ids=["named group", "old trace"])
def test_recordings_that_begin_at_different_collectives_are_matched_all_the_same(folder: Path, named: bool) -> None:
    job = PlantedJob(3, [world(3)], steps=12, late={0: LATE_NS}, skipped={1: 2, 2: 1}, offsets={1: 10**9}, named=named)
    found = planted(folder, job)
    assert found.collectives["step"].tolist() == list(range(1, 12))
    assert found.collectives["delay_ns"].tolist()[1:] == [one.delay for one in job.truth[2:]]


def test_steps_that_ranks_number_differently_do_not_mislead_the_matching(folder: Path) -> None:
    job = PlantedJob(2, [world(2)], steps=12, late={1: LATE_NS}, first_number={1: 3}, jitter=4_000_000)
    found = planted(folder, job)
    assert found.collectives["delay_ns"].tolist() == [one.delay for one in job.truth]


def test_sequence_numbers_match_collectives_where_traces_have_them(folder: Path) -> None:
    job = PlantedJob(2, [world(2)], steps=8, numbered=True, skipped={1: 5}, offsets={1: 10**12})
    found = planted(folder, job)
    assert found.collectives["step"].tolist() == [5, 6, 7]
    assert found.clocks["offset_ns"].tolist() == [0, 10**12]


def test_ranks_come_from_the_metadata_and_never_from_the_file_name(folder: Path) -> None:
    for rank, name in ((1, "rank-0.json"), (0, "rank-1.json")):
        trace = Planted(rank, 2)
        trace.kernel("k", 1000, 1000)
        trace.write(folder / name)
    found = read_job([folder], executor=InProcess())
    assert {rank: one.path.name for rank, one in found.summaries.items()} == {0: "rank-1.json", 1: "rank-0.json"}


def test_compact_json_keeps_all_ranks_apart(folder: Path) -> None:
    for rank in range(3):
        trace = Planted(rank, 3)
        trace.kernel("k", 1000, 1000)
        compact = json.dumps(json.loads(trace.text()), separators=(",", ":"))
        (folder / f"{rank}.json").write_text(compact)
    assert list(read_job([folder], executor=InProcess()).summaries) == [0, 1, 2]


def test_two_files_of_one_rank_are_one_error_that_names_both(folder: Path) -> None:
    for name in ("first.json", "second.json"):
        trace = Planted(5, 8)
        trace.kernel("k", 1000, 1000)
        trace.write(folder / name)
    with pytest.raises(TachoscopeError, match=r"first\.json and .*second\.json are both of rank 5"):
        read_job([folder], executor=InProcess())


def test_traces_without_rank_are_numbered_by_name_and_said_to_be(folder: Path) -> None:
    for rank, name in ((None, "a.json"), (1, "b.json"), (None, "c.json")):
        trace = Planted(rank, 3)
        trace.kernel(f"kernel of {name}", 1000, 1000)
        trace.write(folder / name)
    found = read_job([folder], executor=InProcess())
    assert {rank: one.path.name for rank, one in found.summaries.items()} == {0: "a.json", 1: "b.json", 2: "c.json"}
    assert found.quality[found.quality["problem"] == "no_rank"]["rank"].tolist() == [0, 2]


def test_what_only_lies_in_the_directory_is_left_out_but_a_named_file_must_be_a_trace(folder: Path) -> None:
    PlantedJob(2, [world(2)]).write(folder)
    (folder / "config.json").write_text("{}")
    found = read_job([folder], executor=InProcess())
    assert list(found.summaries) == [0, 1]
    assert found.quality["problem"].tolist() == ["unreadable"]
    with pytest.raises(TachoscopeError, match=r"config\.json"):
        read_job([folder, folder / "config.json"], executor=InProcess())


def test_missing_ranks_are_said_to_be_missing(folder: Path) -> None:
    PlantedJob(4, [world(4)]).write(folder)
    sorted(folder.iterdir())[0].unlink()
    found = read_job([folder], executor=InProcess())
    assert {"missing_ranks", "missing_in_group"} <= set(found.quality["problem"])


@pytest.mark.parametrize("count", [0, 1, 2])
def test_traces_with_next_to_nothing_in_them_make_a_job(folder: Path, count: int) -> None:
    for rank in range(2):
        trace = Planted(rank, 2)
        for number in range(count):
            trace.kernel("k", 1000 * number, 500)
        trace.write(folder / f"{rank}.json")
    found = read_job([folder], executor=InProcess())
    assert list(found.summaries) == [0, 1]
    assert found.collectives.empty and found.stragglers.empty


@pytest.mark.bar  # memory
def test_many_ranks_leave_no_more_behind_than_few(folder: Path) -> None:
    few = planted(folder / "few", PlantedJob(8, [world(8)], steps=3))
    many = planted(folder / "many", PlantedJob(64, [world(64)], steps=3))
    sizes = [[len(pickle.dumps(one)) for one in job.summaries.values()] for job in (few, many)]
    assert max(sizes[1]) <= max(sizes[0]) + 200  # the list of the group's ranks is longer
    assert len(few.collectives) == len(many.collectives) == 3


class Counting(InProcess):
    """Notes how many collectives each rank was asked to keep."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def submit(self, fn, /, *args, **kwargs):
        self.asked.append(args[1].collectives)
        return super().submit(fn, *args, **kwargs)


@pytest.mark.bar  # memory
def test_the_more_ranks_the_fewer_collectives_each_keeps_so_that_their_sum_is_bounded(folder: Path) -> None:
    PlantedJob(64, [world(64)], steps=1).write(folder)
    counting = Counting()
    read_job([folder], executor=counting)
    assert sum(counting.asked) <= MOST_COLLECTIVES
    found = summarise(sorted(folder.iterdir())[0], type_of_wanted(folder, 0))
    assert len(found.arrivals) == 0 and found.collectives == 1


def type_of_wanted(folder: Path, collectives: int):
    from tachoscope_analyzers.trace.ranks.rank_summary import SummaryOptions

    return SummaryOptions(collectives=collectives, judged=False)


class Dropping(Executor):
    """Runs a task when its result is asked for and counts the results that are alive."""

    def __init__(self) -> None:
        self.futures: list[object] = []

    def submit(self, fn, /, *args, **kwargs):
        import weakref

        future: Future = InProcess().submit(fn, *args, **kwargs)
        self.futures.append(weakref.ref(future))
        return future


def test_finished_futures_are_dropped_as_their_results_are_merged(folder: Path) -> None:
    PlantedJob(8, [world(8)], steps=1).write(folder)
    dropping = Dropping()
    alive: list[int] = []
    read_job(
        [folder], executor=dropping, progress=lambda done, total: alive.append(sum(one() is not None for one in dropping.futures))
    )
    assert alive[-1] <= 2
    assert alive == sorted(alive, reverse=True)


@pytest.mark.parametrize("most_bytes", [0, 1 << 30], ids=["processes", "threads"])
def test_local_processes_and_threads_find_the_same_as_a_plain_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    for name in ("MOST_BYTES_FOR_THREADS", "MOST_BYTES_ON_TWO_CORES"):
        monkeypatch.setattr(f"tachoscope_analyzers.trace.ranks.job.{name}", most_bytes)
    PlantedJob(3, [world(3)], late={1: LATE_NS}).write(folder)
    here, there = read_job([folder], executor=InProcess()), read_job([folder], executor="local")
    for name in ("ranks", "clocks", "collectives", "waits", "stragglers", "dimensions", "quality"):
        pd.testing.assert_frame_equal(getattr(here, name), getattr(there, name))


def test_the_late_rank_of_the_recorded_job_is_rank_7_by_starts_and_by_durations_and_by_its_own_clock() -> None:
    folder = recorded("dlrm8/rank-0").parent
    found = read_job([folder], executor=InProcess())
    assert list(found.summaries) == list(range(8))
    late = found.stragglers.iloc[0]
    assert late["rank"] == 7 and late["straggler"] and found.stragglers["straggler"].sum() == 1
    assert (late["last_collectives"], late["collectives"]) == (5, 8)
    assert late["coverage_ratio"] > 0.9
    # Without any clock: its collectives are the shortest, in the same five, and it spends least time in them of all.
    assert late["shortest_collectives"] == 5
    assert found.ranks.set_index("rank")["communication_ns"].idxmin() == 7
    # By its own clock alone: from the end of the first collective to its arrival at the second it takes longest.
    own = {
        rank: int(one.arrivals["start_ns"][1] - one.arrivals["start_ns"][0] - one.arrivals["duration_ns"][0])
        for rank, one in found.summaries.items()
    }
    assert max(own, key=lambda rank: own[rank]) == 7
    assert found.clocks["offset_ns"].abs().max() <= 3_000  # one host, one clock


DDP = """
import sys, time, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
rank, folder, sleep = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{folder}/store")
layers = [torch.nn.Linear(512, 512) for _ in range(4)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
plan = schedule(wait=1, warmup=3, active=20)
done = lambda p: p.export_chrome_trace(f"{folder}/trace-{1 - rank}.json")
with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=done) as profiler:
    for _ in range(24):
        batch = torch.randn(128, 512)
        if rank == 1:
            time.sleep(sleep)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profiler.step()
dist.barrier()
"""


def recorded_ddp(folder: Path, sleep_seconds: float) -> JobTraces:
    pytest.importorskip("torch")
    script = folder / "ddp.py"
    script.write_text(textwrap.dedent(DDP))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script)]
    ranks = [
        subprocess.Popen([*command, str(rank), str(folder), str(sleep_seconds)], env=environment, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=180)
        assert process.returncode == 0, errors.decode()[-2000:]
    return read_job([folder / "trace-*.json"], executor=InProcess())


@pytest.mark.bar  # planted above
@pytest.mark.alone
def test_a_sleep_of_80_ms_on_one_rank_of_a_real_job_is_found(folder: Path) -> None:
    found = recorded_ddp(folder, 0.08)
    late = found.stragglers[found.stragglers["straggler"]]
    assert late["rank"].tolist() == [1]
    assert 70 * MILLISECOND <= late["waited_per_step_ns"].iloc[0] <= 110 * MILLISECOND
    assert late["last_steps"].iloc[0] >= 18
    assert not found.quality["problem"].isin(["no_rank", "nothing_in_common"]).any()


@pytest.mark.bar  # planted above
@pytest.mark.alone
def test_a_real_job_without_the_sleep_has_no_straggler(folder: Path) -> None:
    """A rank whose core others use is truly late, so a recording that the machine spoilt is made again."""
    clean = []
    for attempt in range(3):
        (folder / str(attempt)).mkdir()
        found = recorded_ddp(folder / str(attempt), 0.0)
        assert len(found.collectives) >= 20
        clean.append(not found.stragglers["straggler"].any())
        if clean[-1] and clean.count(True) > attempt / 2:
            return
    raise AssertionError("a straggler was found in most recordings of a job without one")


def test_waits_are_never_negative_and_never_longer_than_the_collective(folder: Path) -> None:
    found = planted(folder, PlantedJob(4, [world(4)], steps=10, jitter=3_000_000, scatter=2_000_000))
    assert (found.waits[["wait_ns", "transfer_ns"]].to_numpy() >= 0).all()
    assert np.isfinite(found.collectives["transfer_ns"]).all()
