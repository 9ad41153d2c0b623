"""A hang is told while it lasts, over all hosts, with the rank that the others wait for; a long pause with a reason is none."""

import gzip
from pathlib import Path

import msgspec
import pytest

from tachoscope_core.storage.node_status import HangStatus, NodeStatus
from tachoscope_watch.hang import Hang, finding, hang_of
from tachoscope_watch.ledgers import JobLedgers
from tachoscope_watch.live_jobs import NodeReader, live_jobs
from watched_jobs import PlantedJob, standing, well

WAITING = dict.fromkeys(range(4), "backward")


def judged(job: PlantedJob) -> Hang | None:
    return hang_of(NodeReader(job.store).live_jobs(job.now)[job.name])


@pytest.mark.parametrize("culprit", [0, 1, 3])
@pytest.mark.parametrize("phase", ["forward", "data_wait", "other"])
def test_a_rank_that_is_elsewhere_while_the_others_wait_is_named(tmp_path: Path, culprit: int, phase: str) -> None:
    found = judged(standing(tmp_path, "job", phases=WAITING | {culprit: phase}))

    assert found is not None and found.rank == culprit and found.waiting == 3
    assert 59 < found.seconds < 63
    assert finding(found, "job").ranks == [culprit]


@pytest.mark.parametrize("culprit", [0, 2])
def test_a_rank_that_is_silent_while_the_others_wait_is_named(tmp_path: Path, culprit: int) -> None:
    found = judged(standing(tmp_path, "job", phases=WAITING, silent=(culprit,)))

    assert found is not None and found.rank == culprit
    assert "wrote nothing" in found.why


def test_where_all_wait_for_each_other_nobody_is_blamed(tmp_path: Path) -> None:
    found = judged(standing(tmp_path, "job", phases=WAITING))

    assert found is not None and found.rank is None
    assert finding(found, "job").ranks == "all" and finding(found, "job").confidence == 0.5


PAUSES = [
    ("a checkpoint of all ranks", dict.fromkeys(range(4), "checkpoint"), 300),
    ("a checkpoint of rank 0, for which the others wait", WAITING | {0: "checkpoint"}, 120),
    ("an evaluation of all ranks", dict.fromkeys(range(4), "evaluation"), 200),
    ("an evaluation of rank 2, for which the others wait", WAITING | {2: "evaluation"}, 100),
    ("all ranks compile in forward", dict.fromkeys(range(4), "forward"), 200),
    ("all ranks load data", dict.fromkeys(range(4), "data_wait"), 60),
    ("between two epochs", dict.fromkeys(range(4), "other"), 200),
    ("garbage collection and what is between steps", {0: "gc", 1: "other", 2: "", 3: "other"}, 90),
    ("a wait that is short of the limit", WAITING, 25),
    ("a step that takes a while", WAITING | {1: "forward"}, 20),
]


@pytest.mark.parametrize(("phases", "seconds"), [(phases, seconds) for _, phases, seconds in PAUSES], ids=[p[0] for p in PAUSES])
def test_a_long_clean_pause_is_no_hang(tmp_path: Path, phases: dict[int, str], seconds: float) -> None:
    assert judged(standing(tmp_path, "job", phases=phases, seconds=seconds)) is None


def test_a_job_that_goes_on_does_not_hang(tmp_path: Path) -> None:
    assert judged(well(tmp_path, "job")) is None


def test_before_the_first_step_there_is_no_hang(tmp_path: Path) -> None:
    job = PlantedJob(tmp_path, "job")
    job.start(job.now - 100)
    job.beats(job.now - 95, job.now, "collective")
    job.ship()

    assert judged(job) is None


def test_a_job_of_which_nothing_comes_any_more_is_gone_and_not_hung(tmp_path: Path) -> None:
    job = standing(tmp_path, "job", phases=WAITING, silent=(0, 1, 2, 3))

    assert judged(job) is None


def test_the_word_of_a_node_that_sees_all_ranks_counts_before_the_limit_and_only_until_the_next_step(tmp_path: Path) -> None:
    job = standing(tmp_path, "job", seconds=14.0, phases=WAITING)
    (live,) = NodeReader(job.store).live_jobs(job.now).values()
    last = max(rank.status.step_time for rank in live.ranks)

    def told(since: float) -> Hang | None:
        return hang_of(msgspec.structs.replace(live, hang=HangStatus(since, 2, "it stands still", all_seen=True)))

    assert judged(job) is None
    found = told(last)
    assert found is not None and (found.rank, found.why) == (2, "it stands still")
    assert told(last - 10.0) is None


def test_a_node_that_writes_is_believed_also_where_all_ranks_are_silent_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    job = standing(tmp_path, "job", phases=WAITING, silent=(0, 1, 2, 3))
    nodes = [msgspec.json.decode(gzip.decompress(path.read_bytes()), type=NodeStatus) for path in tmp_path.glob("nodes/*.json.gz")]
    parts = [part for node in nodes for part in node.jobs]
    since = max(rank.step_time for part in parts for rank in part.ranks)
    word = HangStatus(since, 0, "its process is stopped by a signal", all_seen=True)
    said = [msgspec.structs.replace(node, jobs=[msgspec.structs.replace(part, hang=word) for part in node.jobs]) for node in nodes]

    def found(now: float) -> Hang | None:
        return hang_of(live_jobs(said, now, JobLedgers(job.store, print))["job"])

    assert (hang := found(job.now)) is not None and hang.rank == 0
    assert found(job.now + 60.0) is None


def test_a_job_that_paused_twice_may_pause_again(tmp_path: Path) -> None:
    job = standing(tmp_path, "job", seconds=60.0, phases=WAITING)
    (live,) = NodeReader(job.store).live_jobs(job.now).values()

    assert hang_of(live) is not None
    assert hang_of(msgspec.structs.replace(live, hang_limit_seconds=80.0)) is None
