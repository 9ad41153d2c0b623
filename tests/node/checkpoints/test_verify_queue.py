"""Which checkpoint is read back when, from what the ranks say; no file is read here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from tachoscope_core.checkpoints.verification import ReadBack, Result
from tachoscope_core.records import records
from tachoscope_core.records.records import ShardSum
from tachoscope_node.checkpoints import queue as verify_queue
from tachoscope_node.checkpoints.queue import LOOK_AGAIN_SECONDS, SETTLE_SECONDS, WAIT_SECONDS, Task, VerifyQueue

START = 1.7e9
AGAIN_SECONDS = 3600.0
SOUND, CORRUPT, GONE = (
    ReadBack("sound"),
    ReadBack("corrupt", "x: bad"),
    ReadBack("unreachable", "x: not there"),
)


class Bench:
    """A queue with a clock, and ranks that say what they saved."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.rejected: Counter[str] = Counter()
        self.now = START
        self.queue = self.opened()

    def opened(self) -> VerifyQueue:
        return VerifyQueue(self.folder / "checkpoints.json", self.rejected, most_jobs=4, again_seconds=AGAIN_SECONDS)

    def say(
        self, kind: type[records.Record], rank: int = 0, *, job: str = "job", uid: int = 7, attempt: int = 0, **fields: object
    ) -> None:
        envelope = {"writer": f"{rank}", "seq": 0, "rank": rank, "local_rank": rank, "host": "n", "monotonic_ns": 0}
        self.queue.add_record(job, uid, kind(job=job, attempt=attempt, time=self.now, **envelope, **fields), self.now)  # type: ignore[arg-type]

    def start(self, ranks: int = 1, world_size: int = 1, **who: object) -> None:
        for rank in range(ranks):
            self.say(records.JobStarted, rank, world_size=world_size, pid=1, **who)

    def saved(self, name: str, step: int = 1, rank: int = 0, size: int = 10, **who: object) -> None:
        self.say(records.CheckpointSaved, rank, step=step, blocking_seconds=1.0, bytes=size, reference=name, **who)

    def manifest(self, name: str, step: int = 1, rank: int = 0, path: str = "", **who: object) -> None:
        shards = [ShardSum(path=path, bytes=10, checksum="sha256:00")]
        self.say(records.CheckpointManifest, rank, step=step, reference=name, shards=shards, **who)

    def save(self, name: str, step: int = 1, rank: int = 0, **who: object) -> None:
        self.saved(name, step, rank, **who)
        self.manifest(name, step, rank, **who)

    def due(self, after: float = 0.0) -> str | None:
        task = self.take(after)
        return task.checkpoint.reference if task is not None else None

    def take(self, after: float = 0.0) -> Task | None:
        self.now += after
        return self.queue.next(self.now)

    def read(self, verdict: ReadBack, after: float = SETTLE_SECONDS) -> bool:
        task = self.take(after)
        assert task is not None
        return self.queue.done(task, verdict, self.now)

    def verified_at(self) -> float | None:
        points = self.queue.families(["job"])[0].points
        return float(points[0][1]) if points else None  # type: ignore[arg-type]

    def all_counts(self) -> dict[str, float]:
        return {labels[1]: value for labels, value in self.queue.families(["job"])[1].points}  # type: ignore[misc]

    def counts(self) -> dict[str, float]:
        return {result: value for result, value in self.all_counts().items() if value}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_new_checkpoint_is_read_once_its_manifest_has_come(bench: Bench) -> None:
    bench.saved("/a")
    assert bench.due(after=WAIT_SECONDS) is None
    bench.manifest("/a")

    assert bench.due() is None
    assert bench.due(after=SETTLE_SECONDS) == "/a"


def test_a_checkpoint_waits_for_the_manifests_of_all_ranks_that_wrote_but_not_for_ever(bench: Bench) -> None:
    for rank in (0, 1):
        bench.saved("/a", rank=rank)
    bench.saved("/a", rank=2, size=0)
    bench.manifest("/a", rank=0)

    assert bench.due(after=SETTLE_SECONDS) is None
    bench.manifest("/a", rank=1)
    assert bench.due(after=SETTLE_SECONDS) == "/a"

    bench.saved("/b", step=2, rank=0)
    bench.saved("/b", step=2, rank=1)
    bench.manifest("/b", step=2, rank=0)
    task = bench.take(after=WAIT_SECONDS)
    assert task is not None
    assert task.expected_ranks == {0, 1}


def test_of_a_distributed_checkpoint_each_rank_of_the_world_is_expected_to_have_said_something(bench: Bench) -> None:
    bench.start(ranks=3, world_size=3)
    bench.saved("/a")
    bench.manifest("/a", path="__0_0.distcp")
    bench.saved("/a", rank=1, size=0)  # took part and had nothing to write

    task = bench.take(after=SETTLE_SECONDS)

    assert task is not None
    assert task.expected_ranks == {0, 2}
    assert task.whole


def test_of_a_job_on_several_nodes_only_what_this_nodes_ranks_wrote_is_expected(bench: Bench) -> None:
    bench.start(ranks=2, world_size=4)
    for rank in (0, 1):
        bench.saved("/a", rank=rank)
        bench.manifest("/a", rank=rank, path=f"__{rank}_0.distcp")

    task = bench.take(after=SETTLE_SECONDS)

    assert task is not None
    assert (task.expected_ranks, task.whole) == ({0, 1}, False)


def test_the_newest_two_are_read_again_and_again_and_older_ones_not(bench: Bench) -> None:
    for step, name in enumerate(("/a", "/b", "/c")):
        bench.save(name, step)
        assert bench.read(SOUND)
        bench.now += 1

    again = []
    for _ in range(4):
        again.append(bench.due(after=AGAIN_SECONDS))
        assert bench.read(SOUND, after=0)
        again.append(bench.due())
        assert bench.read(SOUND, after=0)
        assert bench.due() is None
    assert set(again) == {"/b", "/c"}


def test_a_new_checkpoint_goes_before_one_that_is_read_again(bench: Bench) -> None:
    bench.save("/a")
    bench.read(SOUND)
    bench.now += AGAIN_SECONDS
    bench.save("/b", 2)

    assert bench.due(after=SETTLE_SECONDS) == "/b"


def test_when_the_newest_is_corrupt_the_one_before_it_is_the_last_verified_one(bench: Bench) -> None:
    bench.save("/a")
    bench.read(SOUND)
    bench.now += 100
    bench.save("/b", 2)
    assert bench.verified_at() == START
    bench.read(SOUND)
    assert bench.verified_at() == pytest.approx(START + 105)

    assert bench.due(after=AGAIN_SECONDS) == "/b"
    bench.read(CORRUPT, after=0)

    assert bench.verified_at() == START
    assert bench.counts() == {"sound": 2.0, "corrupt": 1.0}


def test_what_may_be_just_written_or_removed_is_looked_at_twice_before_it_counts(bench: Bench) -> None:
    unsettled = ReadBack("corrupt", "x: missing", unsettled=True)
    bench.save("/a")
    assert not bench.read(unsettled)
    assert bench.due() is None
    assert bench.counts() == {}

    assert bench.read(unsettled, after=LOOK_AGAIN_SECONDS)
    assert bench.counts() == {"corrupt": 1.0}


def test_a_result_does_not_count_when_the_checkpoint_was_saved_anew_meanwhile(bench: Bench) -> None:
    bench.save("/last")
    task = bench.take(after=SETTLE_SECONDS)
    assert task is not None
    bench.now += 1
    bench.save("/last", 2)

    assert not bench.queue.done(task, CORRUPT, bench.now)
    assert bench.read(SOUND)
    assert bench.counts() == {"sound": 1.0}


def test_a_checkpoint_that_was_saved_over_without_a_manifest_is_not_held_against_the_old_one(bench: Bench) -> None:
    bench.save("/last")
    bench.now += 10
    bench.saved("/last")  # the same step again, at the end of the run
    assert bench.due(after=WAIT_SECONDS) is None
    bench.saved("/last", 2)
    assert bench.due(after=WAIT_SECONDS) is None


def test_one_that_is_gone_is_no_fault_and_is_looked_for_again(bench: Bench) -> None:
    bench.save("/a")
    assert bench.read(GONE)

    assert bench.verified_at() is None
    assert bench.counts() == {"unreachable": 1.0}
    assert bench.due(after=AGAIN_SECONDS) == "/a"


def test_jobs_take_turns(bench: Bench) -> None:
    for number in range(3):
        for job in ("one", "two"):
            bench.save(f"/{job}{number}", number, job=job)
    turns = []
    bench.now += SETTLE_SECONDS
    for _ in range(4):
        task = bench.take(after=1)
        assert task is not None
        turns.append(task.job)
        bench.queue.done(task, SOUND, bench.now)

    assert turns in (["one", "two"] * 2, ["two", "one"] * 2)


def test_a_result_is_at_zero_before_the_first_time_so_that_an_increase_sees_it(bench: Bench) -> None:
    before = bench.all_counts()
    bench.save("/a")

    assert before == {}
    assert bench.all_counts() == dict.fromkeys(get_args(Result), 0.0)


def test_what_is_known_survives_a_restart(bench: Bench) -> None:
    bench.save("/a")
    bench.read(SOUND)
    bench.save("/b", 2)
    bench.queue.save()

    bench.queue = bench.opened()

    assert bench.verified_at() == START
    assert bench.counts() == {"sound": 1.0}
    assert bench.due(after=SETTLE_SECONDS) == "/b"


def test_a_broken_state_file_is_no_reason_not_to_start(bench: Bench) -> None:
    (bench.folder / "checkpoints.json").write_text('{"job": 3}')

    assert bench.opened().jobs == {}


def test_a_job_is_forgotten_when_it_is_not_live_and_nothing_of_it_waits(bench: Bench) -> None:
    bench.save("/a")
    bench.queue.drop_ended_jobs([], bench.now)
    assert bench.due(after=SETTLE_SECONDS) == "/a"
    bench.read(SOUND, after=0)
    bench.queue.drop_ended_jobs(["job"], bench.now)
    assert "job" in bench.queue.jobs

    bench.queue.drop_ended_jobs([], bench.now)
    assert bench.queue.jobs == {}


def test_another_user_cannot_speak_for_a_job(bench: Bench) -> None:
    bench.save("/a", uid=7)
    bench.save("/etc/shadow", uid=8)

    assert bench.rejected["identity"] == 2
    assert bench.due(after=SETTLE_SECONDS) == "/a"
    task = bench.queue.next(bench.now)
    assert task is not None
    assert task.uid == 7


def test_records_of_the_launcher_and_the_agent_bind_no_job_to_their_user(bench: Bench) -> None:
    bench.say(records.JobStarted, records.LAUNCHER_RANK, uid=0, world_size=0, pid=1)
    bench.save("/a", uid=7)

    assert bench.due(after=SETTLE_SECONDS) == "/a"


def test_jobs_checkpoints_and_files_are_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_queue, "_BYTES_OF_FILE", 1000)
    monkeypatch.setattr(verify_queue, "MAX_BYTES", 5900)
    for number in range(20):
        bench.now += 1
        bench.save(f"/{number}", number)
    known = bench.queue.jobs["job"].known

    assert set(known) == {"/15", "/16", "/17", "/18", "/19"}
    for number in range(6):
        bench.save("/a", job=f"other{number}")
    assert len(bench.queue.jobs) == 3
    assert bench.rejected["over_limit"] >= 4
    bench.save("/a", job="of another user", uid=8)
    assert len(bench.queue.jobs) == 4
