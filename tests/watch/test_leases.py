"""Leases on a store whose calls take any time and whose clock shows whole seconds: no job has two watches, and each has one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_watch.leases import Leases, Share, SharedStore, ShareMemory, boot_seconds
from test_profiles import Told

SECONDS = 20.0
JOBS = [f"job-{number}" for number in range(6)]


class World:
    """Watches over one store. Time passes in its calls, in which all the others go on; any of them may be stopped there."""

    def __init__(self, seed: int) -> None:
        self.chance, self.now = random.Random(seed), 0.0
        self.objects: dict[str, tuple[float, bytes]] = {}
        self.watches: list[Leases] = []
        self.due: dict[str, float] = {}
        self.busy: set[str] = set()
        self.had: Counter[int] = Counter()
        self.came = 0

    def come(self) -> Leases:
        watch = Leases(Slow(self), SECONDS, Told(), clock=lambda: self.now)  # type: ignore[arg-type]
        watch.watch = f"watch-{self.came}"  # of two with random names one has none of six jobs, once in 32 times
        self.came += 1
        self.watches.append(watch)
        self.due[watch.watch] = self.now
        return watch

    def call(self) -> None:
        """Take the time of a call: most are short, in some the process is stopped for long."""
        self.run(self.chance.choice([0.0, 0.0, 0.1, 0.3, 1.0]) if self.chance.random() < 0.99 else 3 * SECONDS)

    def run(self, seconds: float) -> None:
        """Let time pass; each watch renews its lease where it is due and not in a call already."""
        until = self.now + seconds
        while self.now < until:
            self.now += 0.25
            self.check()
            for watch in list(self.watches):
                if self.due[watch.watch] <= self.now and watch.watch not in self.busy and len(self.busy) < 3:
                    self.busy.add(watch.watch)
                    watch._tried()
                    self.busy.discard(watch.watch)
                    self.due[watch.watch] = self.now + watch.renewed_every

    def check(self) -> None:
        for job in JOBS:
            owners = [watch.watch for watch in self.watches if watch.has(job)]
            assert len(owners) <= 1, (self.now, job, owners)
            self.had[len(owners)] += 1


class Slow:
    """What leases use of a store, in a world."""

    url = root = "slow"
    local = False

    def __init__(self, world: World) -> None:
        self.world = world
        self.files = SimpleNamespace(cat_file=lambda path: self.world.objects[path][1])

    def write_watch(self, name: str, data: bytes) -> None:
        self.world.call()
        self.world.objects[f"slow/watches/{name}"] = (float(int(self.world.now)) + 1e9, data)
        self.world.call()

    def find(self, key: str) -> dict[str, dict[str, Any]]:
        self.world.call()
        found = {path: {"mtime": written} for path, (written, _) in self.world.objects.items()}
        contents = self.world.objects.copy()
        self.files = SimpleNamespace(cat_file=lambda path: contents[path][1])
        self.world.call()
        return found

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.world.objects.pop(path, None)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.bar(but=("0", "1", "2"))
def test_however_slow_the_store_and_whoever_comes_stops_or_is_killed_no_job_has_two_watches(seed: int) -> None:
    world = World(seed)
    for _ in range(40):
        event = world.chance.random()
        if (event < 0.5 and len(world.watches) < 4) or not world.watches:
            world.come()
        elif event < 0.7:
            world.watches.pop(world.chance.randrange(len(world.watches)))  # killed
        world.run(world.chance.choice([1.0, 5.0, 2 * SECONDS]))

    assert world.had[1] > 0.2 * sum(world.had.values()), "they do have jobs for much of the time, slow as the store is"


def quick() -> World:
    world = World(0)
    world.call = lambda: None  # type: ignore[method-assign]
    return world


def test_a_watch_alone_has_all_jobs_at_once_and_one_that_comes_its_part_after_a_lease() -> None:
    world = quick()
    first = world.come()
    world.run(1.0)
    assert all(first.has(job) for job in JOBS)

    second = world.come()
    world.run(0.8 * SECONDS)
    assert all(first.has(job) for job in JOBS), "nothing is let go before the other takes it"
    world.run(0.5 * SECONDS)
    assert 0 < sum(second.has(job) for job in JOBS) < len(JOBS)
    assert all(first.has(job) != second.has(job) for job in JOBS)


def test_jobs_of_a_watch_that_is_gone_are_had_after_a_lease_and_a_renewal_and_the_others_keep_theirs() -> None:
    world = quick()
    watches = [world.come() for _ in range(3)]
    world.run(3 * SECONDS)
    before = {job: next(watch for watch in watches if watch.has(job)) for job in JOBS}
    world.watches.remove(watches[0])
    world.run(SECONDS + SECONDS / 4 + 1.0)

    for job, owner in before.items():
        assert [watch.has(job) for watch in watches].count(True) == 1
        assert owner is watches[0] or owner.has(job)


def test_jobs_of_a_watch_that_ends_in_order_are_had_at_the_next_renewal() -> None:
    world = quick()
    first, second = world.come(), world.come()
    world.run(3 * SECONDS)
    world.watches.remove(first)
    first.close()
    world.run(SECONDS / 4 + 1.0)

    assert all(second.has(job) for job in JOBS)


def test_what_processes_of_a_watch_begin_for_a_job_of_another_reaches_no_store(tmp_path: Any) -> None:
    memory = ShareMemory()
    store = SharedStore(str(tmp_path), memory)
    with pytest.raises(TachoscopeError, match="another watch's now"):
        store.write_report("job", "watch", b"{}")

    now = boot_seconds()
    memory.put(Share(watch="a", seconds=60.0, since={"a": 1.0}, written=2.0, sent=now, answered=now))
    path = store.write_report("job", "watch", b"{}")
    memory.put(Share(watch="a", seconds=60.0, since={"a": 1.0}, written=2.0, sent=now - 46.0, answered=now - 46.0))
    with pytest.raises(TachoscopeError, match="another watch's now"):
        store.remove([path])
