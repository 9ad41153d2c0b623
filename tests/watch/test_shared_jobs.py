"""Real watches that share the jobs of a store: what they tell together while one is killed, comes, or is stopped for a while."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from processes import free_port, s3_environment, s3_server, wait_for
from tachoscope_core.storage.compacted import compacted_sets
from tachoscope_core.storage.store import Store
from test_watch import Watching, get, watching
from watched_jobs import PlantedJob, well

LEASE_SECONDS = {"directory": 5.0, "s3": 20.0}
EVERY_SECONDS = {"directory": 1.0, "s3": 5.0}
"""The S3 server of the tests answers one request after the other."""
COMPACT_SECONDS = {"directory": 15.0, "s3": 5.0}
"""Each compaction is a process, which takes half a second of a processor to begin; the first when there are two watches."""
CYCLE_SECONDS = 10.0
"""A cycle of a machine that does much else: in itself it takes a fraction of this."""
WAIT_SECONDS = 240.0
PAUSE_SECONDS = 0.4
"""Between two looks at all pages of all watches, which the watches answer beside their work."""
LIVE = [f"live-{number}" for number in range(8)]
ENDED = [f"ended-{number}" for number in range(6)]


def plant(folder: Path) -> None:
    for name in LIVE:
        well(folder, name, ranks=2)
    for name in ENDED:
        job = PlantedJob(folder, name, ranks=1, now=time.time() - 2 * 86400)
        job.start(job.now - 11)
        job.steps(job.now - 10, job.now)
        job.ship(job.now)


@contextlib.contextmanager
def planted_store(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the URL of a store with jobs."""
    plant(folder / "planted")
    if kind == "directory":
        yield str(folder / "planted")
        return
    port = free_port()
    for name, value in s3_environment(port).items():
        monkeypatch.setenv(name, value)
    with s3_server(port):
        files = fsspec.filesystem("s3", endpoint_url=f"http://127.0.0.1:{port}", skip_instance_cache=True)
        files.put(f"{folder}/planted/", "bucket/store/", recursive=True)
        yield "s3://bucket/store"


class Watches:
    """Watches of a store, and what each look at all of their pages showed."""

    def __init__(self, kind: str, store: str, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.lease_seconds, self.every_seconds = LEASE_SECONDS[kind], EVERY_SECONDS[kind]
        self.compact_seconds = COMPACT_SECONDS[kind]
        self.running: dict[str, Watching] = {}
        self.ended = contextlib.ExitStack()
        self.logs: list[str] = []

    def come(self) -> str:
        options = ("--store", self.store, "--lease", str(self.lease_seconds), "--over", "1000")
        options += ("--every", str(self.every_seconds), "--compact-every", str(self.compact_seconds))
        process, url = self.ended.enter_context(watching(self.folder / "unused", *options))
        self.running[url] = process
        return url

    def send(self, url: str, number: signal.Signals) -> None:
        self.running[url].send_signal(number)

    def end(self, url: str, number: signal.Signals) -> None:
        """Have a watch end; keep its log."""
        process = self.running.pop(url)
        process.send_signal(number)
        self.logs.append(process.stderr.read())

    def exported(self, stopped: str = "") -> Counter[str]:
        """Return how many watches tell of each job in their metrics; none of more than one."""
        pages = [get(f"{url}/metrics").decode() for url in self.running if url != stopped]
        told = Counter(job for page in pages for job in exported_jobs(page))
        assert not told or max(told.values()) == 1, told
        return Counter({job: told[job] for job in told if job in LIVE})

    def listed(self, stopped: str = "") -> None:
        """Check that each watch lists all jobs, whoever's they are."""
        for url in self.running:
            if url != stopped:
                assert live_jobs(url) == LIVE
                assert json.loads(get(f"{url}/v1/jobs/{LIVE[0]}"))["report"] is not None

    def until_shared(self, reached: Callable[[Counter[str]], Any], stopped: str = "") -> float:
        """Wait until all jobs are told, in a way; return after how long. Meanwhile none is told twice, and all are listed."""
        began = time.monotonic()

        def shared() -> bool:
            told = self.exported(stopped)
            self.listed(stopped)
            return set(told) == set(LIVE) and bool(reached(told))

        wait_for(shared, WAIT_SECONDS, PAUSE_SECONDS)
        return time.monotonic() - began

    def all_share(self, stopped: str = "") -> float:
        """Wait until each watch has its part of the jobs."""
        urls = [url for url in self.running if url != stopped]
        return self.until_shared(lambda _: {share(get(f"{url}/metrics").decode()) for url in urls} == {1 / len(urls)}, stopped)


def live_jobs(url: str) -> list[str]:
    """Return which of the jobs a watch lists. Others, just put into an object store, look as if they had just recorded."""
    return [line["job"] for line in json.loads(get(f"{url}/v1/jobs"))["jobs"] if line["job"] in LIVE]


def samples(page: str, name: str) -> list[Any]:
    return [one for family in text_string_to_metric_families(page) if family.name == name for one in family.samples]


def exported_jobs(page: str) -> list[str]:
    return [one.labels["training_job"] for one in samples(page, "tachoscope_compute_share_ratio")]


def share(page: str) -> float:
    (one,) = samples(page, "tachoscope_watch_share_ratio")
    return float(one.value)


@pytest.mark.parametrize("kind", ["directory", pytest.param("s3", marks=pytest.mark.bar)])
@pytest.mark.timeout(1200)
def test_each_job_is_told_by_one_watch_whichever_is_killed_comes_or_is_stopped(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with planted_store(kind, tmp_path, monkeypatch) as store:
        watches = Watches(kind, store, tmp_path)
        with watches.ended:
            first = watches.come()
            wait_for(lambda: set(watches.exported()) == set(LIVE), WAIT_SECONDS, PAUSE_SECONDS)
            second = watches.come()
            if kind == "s3":
                watches.come()
            wait_for(lambda: live_jobs(second) == LIVE, WAIT_SECONDS, PAUSE_SECONDS)
            watches.all_share()

            watches.end(second, signal.SIGKILL)
            after = watches.until_shared(lambda _: True)
            print(f"{kind}: jobs of a killed watch are told by others after {after:.1f} s")
            assert after < 1.25 * watches.lease_seconds + watches.every_seconds + CYCLE_SECONDS

            watches.come()
            watches.all_share()
            watches.send(first, signal.SIGSTOP)
            after = watches.until_shared(lambda _: True, stopped=first)
            print(f"{kind}: those of a stopped one after {after:.1f} s")
            watches.send(first, signal.SIGCONT)
            told = [watches.exported() for _ in range(20)]
            assert all(set(one) == set(LIVE) for one in told), "it has none, and takes none from the others, before a lease is over"
            watches.all_share()
            wait_for(lambda: all(compacted_sets(Store(store), job) for job in ENDED), WAIT_SECONDS, PAUSE_SECONDS)
            for url in list(watches.running):
                watches.end(url, signal.SIGTERM)

        assert all(len(compacted_sets(Store(store), job)) == 1 for job in ENDED)
        assert not any(list(Store(store).segments(job)) for job in ENDED)
        lines = [line for log in watches.logs for line in log.splitlines() if " segments of " in line]
        again = sum(int(line.split("compacted ")[1].split()[0]) for line in lines) - len(ENDED)
        assert again <= 0, lines  # a watch that is killed may not have told of what it did
