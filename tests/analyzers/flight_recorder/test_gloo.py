"""Real gloo jobs that stand still: their recorders' dumps name the rank that was made to."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tachoscope_analyzers.flight_recorder.read import dumps_in, read_all
from tachoscope_analyzers.flight_recorder.verdict import verdict

RANKS, CULPRIT = 4, 1
SCRIPT = Path(__file__).with_name("hanging_gloo.py")


def wait_for(folder: Path, pattern: str, count: int) -> None:
    for _ in range(3000):
        if len(list(folder.glob(pattern))) >= count:
            return
        time.sleep(0.1)
    raise AssertionError(f"{pattern} came {len(list(folder.glob(pattern)))} times, not {count}")


@contextmanager
def hanging_job(folder: Path, how: str, there: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = os.environ | {"TORCH_FR_BUFFER_SIZE": "200", "TORCH_NCCL_TRACE_BUFFER_SIZE": "200", "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([sys.executable, SCRIPT, folder, str(rank), str(RANKS), how], env=environment, stderr=subprocess.DEVNULL)
        for rank in range(RANKS)
    ]
    try:
        wait_for(folder, "through_*", RANKS)
        wait_for(folder, "there_*", there)
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@pytest.mark.parametrize(
    ("how", "stuck"),
    [
        ("skipped", {CULPRIT: "host-stuck"}),
        pytest.param("size", {0: "host-stuck", CULPRIT: "size mismatch"}, marks=pytest.mark.bar),  # rank 0 is made to stay away
        pytest.param("larger", {CULPRIT: "size mismatch"}, marks=pytest.mark.bar),
        pytest.param("smaller", {CULPRIT: "size mismatch"}, marks=pytest.mark.bar),
        pytest.param("order", {CULPRIT: "order mismatch"}, marks=pytest.mark.bar),
        pytest.param("lock", {CULPRIT: "no dump"}, marks=pytest.mark.bar),
        pytest.param("none", {}, marks=pytest.mark.bar),  # planted in the other files
    ],
)
@pytest.mark.bar  # recorded dumps are judged in test_report
def test_the_rank_that_keeps_a_real_job_is_named_by_the_dumps_of_its_ranks(tmp_path: Path, how: str, stuck: dict[int, str]) -> None:
    with hanging_job(tmp_path, how, there=RANKS if how in ("larger", "smaller", "order", "none") else RANKS - 1):
        (tmp_path / "go").touch()
        wait_for(tmp_path, "nccl_trace_rank_*", RANKS - (how == "lock"))

    found = verdict(read_all(dumps_in([str(tmp_path)])))
    assert {one.rank: one.kind.value for one in found.stuck} == stuck


@pytest.mark.bar  # as "lock" above
def test_a_stopped_process_is_named_though_it_can_write_no_dump(tmp_path: Path) -> None:
    with hanging_job(tmp_path, "skipped", there=RANKS - 1) as processes:
        processes[CULPRIT].send_signal(signal.SIGSTOP)
        (tmp_path / "go").touch()
        wait_for(tmp_path, "nccl_trace_rank_*", RANKS - 1)

    (one,) = verdict(read_all(dumps_in([str(tmp_path)]))).stuck
    assert (one.rank, one.kind.value, one.waiting) == (CULPRIT, "no dump", RANKS - 1)
