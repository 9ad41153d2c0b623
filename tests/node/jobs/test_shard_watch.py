"""What puts a shard on the quarantine list, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from making import envelope
from tachoscope_core.records import records
from tachoscope_core.storage import shard_quarantine
from tachoscope_core.storage.shard_quarantine import Shard, from_store
from tachoscope_core.storage.store import Store
from tachoscope_node.jobs.shard_quarantine import MANY, ShardWatch

PLAIN = "ReadError"


class Told:
    """Tells a `ShardWatch` what ranks record; each record a second after the one before."""

    def __init__(self, root: Path) -> None:
        self.lines: list[str] = []
        self.watch = ShardWatch(root, self.lines.append)
        self.now = 100.0
        self.found: list[dict[str, Any]] = []

    def failed(self, shard: str, rank: int = 0, attempt: int = 0, error: str = PLAIN) -> None:
        self._take(records.ShardFailed, rank, attempt, shard=shard, error=error)

    def read(self, shard: str, rank: int = 0, attempt: int = 0) -> None:
        self._take(records.ShardRead, rank, attempt, shard=shard, bytes=1, seconds=0.1)

    def _take(self, kind: type[records.Record], rank: int, attempt: int, **fields: Any) -> None:
        self.now += 1.0
        record = kind(**envelope(rank, job="job", attempt=attempt, time=self.now), **fields)
        self.watch.add_record(record)  # type: ignore[arg-type]
        self.found += [found.fields for found in self.watch.decide(self.now)]

    @property
    def listed(self) -> list[str]:
        return [fields["shard"] for fields in self.found]


def test_a_shard_that_fails_on_two_ranks_goes_on_the_list_once(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.failed("bad", rank=0)
    assert told.listed == []
    told.failed("bad", rank=1)
    told.failed("bad", rank=2)

    assert told.found == [{"shard": "bad", "failures": 2, "ranks": [0, 1], "attempts": [0], "error": PLAIN}]
    assert shard_quarantine.listed_names(shard_quarantine.load(shard_quarantine.path_of(tmp_path, "job"))) == {"bad"}


def test_a_shard_that_fails_in_two_attempts_of_one_rank_goes_on_the_list(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.failed("bad", attempt=0)
    told.failed("bad", attempt=1)

    assert told.found == [{"shard": "bad", "failures": 2, "ranks": [0], "attempts": [0, 1], "error": PLAIN}]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.integers(0, 1)), max_size=12))
def test_on_the_list_is_what_failed_on_two_ranks_or_attempts_and_nothing_else(failures: list[tuple[str, int, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        told = Told(Path(folder))
        for shard, rank, attempt in failures:
            told.failed(shard, rank, attempt)
    places = {shard: {(rank, attempt) for other, rank, attempt in failures if other == shard} for shard, _, _ in failures}
    assert sorted(told.listed) == sorted(shard for shard, where in places.items() if len(where) >= 2)


def test_the_same_rank_failing_again_and_again_is_not_enough(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for _ in range(10):
        told.failed("bad")
    assert told.listed == []


def test_reading_it_elsewhere_meanwhile_does_not_take_it_off(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.failed("bad", rank=0)
    told.read("bad", rank=2)
    told.failed("bad", rank=1)
    assert told.listed == ["bad"]


def test_a_connection_that_breaks_is_not_the_shards_fault(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for rank in range(4):
        told.failed("far", rank=rank, error="ConnectionResetError")
    assert told.listed == []


def test_many_shards_that_fail_while_none_is_read_tell_of_the_storage(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.read("earlier")
    shards = [f"shard-{number}" for number in range(MANY + 2)]
    for rank in (0, 1):
        for shard in shards:
            told.failed(shard, rank=rank)
    assert told.listed == []

    for number in range(len(shards)):  # the storage is back, and other shards can be read
        told.read(f"other-{number}")
    assert sorted(told.listed) == shards


def test_some_corrupt_shards_among_many_that_can_be_read_all_go_on_the_list(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for number in range(20):
        told.failed(f"bad-{number}", rank=0)
        told.read(f"good-{number}")
        told.failed(f"bad-{number}", rank=1)
    assert len(told.listed) == 20


def test_failures_before_a_restart_of_the_watcher_still_count(tmp_path: Path) -> None:
    first = Told(tmp_path)
    first.failed("bad", rank=0)
    first.watch.flush()
    second = Told(tmp_path)
    second.failed("bad", rank=1)

    assert first.listed == []
    assert second.listed == ["bad"]


def test_nodes_with_one_failure_each_put_it_on_the_list_together(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    nodes = [Told(tmp_path / f"node-{number}") for number in (0, 1)]
    for number, node in enumerate(nodes):
        node.failed("bad", rank=8 * number)
        node.watch.sync(store, f"node-{number}", node.now)
    listed = [len(node.watch.decide(node.now)) for node in nodes]

    assert listed == [0, 1], "the second to look sees both"
    nodes[1].watch.sync(store, "node-1", nodes[1].now, anyway=True)
    nodes[0].watch.sync(store, "node-0", nodes[0].now, anyway=True)
    nodes[0].watch.flush()
    assert nodes[0].watch.listed_count("job") == 1
    assert shard_quarantine.listed_names(shard_quarantine.load(shard_quarantine.path_of(tmp_path / "node-0", "job"))) == {"bad"}


def test_a_person_takes_a_shard_off_and_it_stays_off_until_it_fails_anew(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    told = Told(tmp_path)
    told.failed("bad", rank=0)
    told.failed("bad", rank=1)
    told.watch.sync(store, "node-1", told.now)
    store.write_quarantine("job", "released", shard_quarantine.encode("job", {"bad": Shard(released=told.now + 0.5)}))
    told.watch.sync(store, "node-1", told.now, anyway=True)
    assert told.watch.listed_count("job") == 0

    told.failed("bad", rank=2)
    assert told.watch.listed_count("job") == 0, "what was before does not count any more"
    told.failed("bad", rank=3)
    assert told.watch.listed_count("job") == 1


def test_a_store_that_is_away_is_said_and_made_up_for_later(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, where a directory should be")
    told = Told(tmp_path)
    told.failed("bad", rank=0)
    told.watch.sync(Store(str(tmp_path / "store")), "node-1", told.now)
    assert any("could not" in line for line in told.lines)

    (tmp_path / "store").unlink()
    told.watch.sync(Store(str(tmp_path / "store")), "node-1", told.now, anyway=True)
    assert list(from_store(Store(str(tmp_path / "store")), "job")) == ["bad"]


def test_a_job_name_that_cannot_be_is_left_alone(tmp_path: Path) -> None:
    watch = ShardWatch(tmp_path, lambda _: None)
    watch.add_record(records.ShardFailed(**envelope(job="../../etc"), shard="x", error=PLAIN))
    watch.decide(0.0)
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_shows_no_control_characters(tmp_path: Path) -> None:
    watch = ShardWatch(tmp_path, lambda _: None)
    for rank in (0, 1):
        watch.add_record(records.ShardFailed(**envelope(rank, job="job"), shard="x\n2026 forged", error="E\x1b[2J"))
    (found,) = watch.decide(0.0)
    assert found.text.isprintable()
