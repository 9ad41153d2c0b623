import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from planting_ranks import Group, PlantedJob
from tachoscope_analyzers.trace.ranks.executor import InProcess, executor_for, usable_cores
from tachoscope_analyzers.trace.ranks.job import read_job
from tachoscope_core.errors import TachoscopeError

BIN = Path(sys.executable).parent


def process_of(_: object) -> int:
    return os.getpid()


def test_a_single_task_stays_in_this_process() -> None:
    with executor_for("local", 1) as executor:
        assert list(executor.map(process_of, [0])) == [os.getpid()]


@pytest.mark.bar
def test_several_tasks_run_in_processes_of_their_own() -> None:
    with executor_for("local", 2) as executor:
        assert os.getpid() not in set(executor.map(process_of, range(4)))


def test_several_tasks_may_run_in_threads_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    before = sys.getswitchinterval()
    both = threading.Barrier(2, timeout=60)  # passed only by two at once
    with executor_for("local", 2, in_threads=True) as executor:
        assert list(executor.map(lambda _: (both.wait() >= 0, os.getpid()), range(4))) == [(True, os.getpid())] * 4
    assert sys.getswitchinterval() == before


def test_an_error_in_this_process_comes_out_of_the_future() -> None:
    future = InProcess().submit(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        future.result()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "250000 100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu.max": "max 100000"}, 8),
        ({}, 8),
    ],
)
def test_a_container_uses_no_more_cores_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)

    assert usable_cores(tmp_path) == cores


@pytest.mark.parametrize("address", ["ray://here:1", "cluster", ""])
def test_an_executor_that_is_not_known_is_one_clear_error(address: str) -> None:
    with pytest.raises(TachoscopeError, match=r"use local or dask://host:port"), executor_for(address, 2):
        pass


def test_a_scheduler_that_does_not_answer_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tachoscope_analyzers.trace.ranks.executor.CONNECT_SECONDS", 1)
    with (
        pytest.raises(TachoscopeError, match=r"no Dask scheduler answers at 127\.0\.0\.1:1\b"),
        executor_for("dask://127.0.0.1:1", 2),
    ):
        pass


@contextmanager
def dask_cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start a scheduler and workers, each a process of its own, and give the address."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    options = ["--host", "127.0.0.1", "--no-dashboard"]
    processes = [subprocess.Popen([BIN / "dask", "scheduler", *options, "--port", "0", "--scheduler-file", file], **quiet)]
    try:
        while not (file.is_file() and file.read_text().strip()):
            assert processes[0].poll() is None, "the scheduler died"
            time.sleep(0.05)
        worker = [BIN / "dask", "worker", *options, "--nworkers", "1", "--nthreads", "1", "--scheduler-file", file]
        processes += [subprocess.Popen([*worker, "--local-directory", folder], **quiet) for _ in range(workers)]
        yield json.loads(file.read_text())["address"].removeprefix("tcp://")
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("distributed")
    with dask_cluster(tmp_path_factory.mktemp("cluster"), workers=2) as address:
        yield address


def test_a_dask_cluster_of_separate_processes_finds_the_same_as_this_process(tmp_path: Path, cluster: str) -> None:
    distributed = pytest.importorskip("distributed")
    job = tmp_path / "job"
    PlantedJob(4, [Group("0", range(4), "default_pg")], late={2: 3_000_000}).write(job)
    with distributed.Client(f"tcp://{cluster}", set_as_default=False) as client:
        client.wait_for_workers(2, timeout=300)
        ran_in = set(client.run(os.getpid).values())
    found = read_job([job], executor=f"dask://{cluster}")
    assert len(ran_in) == 2 and os.getpid() not in ran_in
    here = read_job([job], executor=InProcess())
    for name in ("ranks", "clocks", "collectives", "waits", "stragglers", "dimensions", "quality"):
        pd.testing.assert_frame_equal(getattr(here, name), getattr(found, name))
    assert found.stragglers.loc[found.stragglers["straggler"], "rank"].tolist() == [2]


def test_an_error_on_a_cluster_names_the_file(tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachoscope_analyzers.trace.ranks.executor.WORKER_SECONDS", 300)  # workers may still be starting
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text("this is not a trace")
    with pytest.raises(TachoscopeError, match=r"(one|two)\.json"):
        read_job([tmp_path / "one.json", tmp_path / "two.json"], executor=f"dask://{cluster}")


def test_a_scheduler_without_workers_is_one_clear_error_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tachoscope_analyzers.trace.ranks.executor.WORKER_SECONDS", 1)
    with (
        dask_cluster(tmp_path, workers=0) as address,
        pytest.raises(TachoscopeError, match=rf"{address} had no available worker .*dask worker"),
        executor_for(f"dask://{address}", 2),
    ):
        pass
