"""The twelve faults, and the injector that plants each of them at its step."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.recovery.job_folder import STEPS_OF_SHARD, Planted, Run, flip_bytes

APART = 50
"""Steps between faults; slow storage lasts for four times as many."""
FIRST = 5
"""Steps after a checkpoint, so that steps are lost."""
MOST_SECONDS = 900.0
SLOW_BYTES_PER_SECOND = 128 << 10
"""A checkpoint then takes two seconds instead of some hundredths."""
QUOTA_MICROSECONDS, STRAGGLES_SECONDS = 1_000, 10.0
_LOOK_SECONDS = 0.2
_GROUPS = Path("/sys/fs/cgroup/cpu")


def _kill(run: Run) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid(1), signal.SIGKILL)


def _hang(run: Run) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid(0), signal.SIGSTOP)


def _straggle(run: Run) -> None:
    with _group() as group, contextlib.suppress(OSError):  # the process may have ended
        (group / "cgroup.procs").write_text(str(run.pid(1)))
        (group / "cpu.cfs_quota_us").write_text(str(QUOTA_MICROSECONDS))
        time.sleep(STRAGGLES_SECONDS)


@contextlib.contextmanager
def _group() -> Iterator[Path]:
    group = _GROUPS / f"tachoscope-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (_GROUPS / "cgroup.procs").write_text(pid)
        group.rmdir()


def _corrupt(run: Run) -> None:
    newest = run.newest_checkpoint()
    flip_bytes(newest)
    run.corrupt = newest.name
    _kill(run)


def _bad_shard(run: Run) -> None:
    shard = run.shard(run.highest() // STEPS_OF_SHARD + 1)
    flip_bytes(shard)
    run.bad_shard = shard.name


def _slow_begins(run: Run) -> None:
    run.storage.limit(SLOW_BYTES_PER_SECOND)


def _slow_ends(run: Run) -> None:
    run.storage.limit(0)


def _lose_node(run: Run) -> None:
    run.cluster.kill_node(run.host(1))


def _preempt(run: Run) -> None:
    run.cluster.run("sbatch", "--partition=urgent", "-N3", "--exclusive", "--wrap", "sleep 8", environment=run.environment)


SCHEDULE: tuple[tuple[str, int, Callable[[Run], None]], ...] = (
    ("killed", 1, _kill),
    ("hang", 1, _hang),
    ("straggler", 1, _straggle),
    ("corrupt checkpoint", 1, _corrupt),
    ("bad shard", 1, _bad_shard),
    ("slow storage", 1, _slow_begins),
    ("", 4, _slow_ends),
    ("killed", 1, _kill),
    ("preempted", 1, _preempt),
    ("killed", 1, _kill),
    ("hang", 1, _hang),
    ("node lost", 1, _lose_node),
    ("preempted", 1, _preempt),
)
"""Each fault, and how many times `APART` steps after the one before it is planted; without a name: the end of the one before."""
STEPS = APART * (sum(apart for _, apart, _ in SCHEDULE) + 1)


def plant(run: Run, alive: Callable[[], object], look: Callable[[], None]) -> None:
    """Plant each fault at its step, and wait for the end; `look` is called meanwhile."""
    due = FIRST
    for name, apart, fault in SCHEDULE:
        due += apart * APART
        while run.highest() < due:
            look()
            if time.time() - run.began > MOST_SECONDS or not alive():
                return
            time.sleep(_LOOK_SECONDS)
        if name:
            run.planted.append(Planted(name, time.time(), run.highest()))
            sys.stderr.write(f"{time.time() - run.began:6.1f} s: planted {name} at step {run.highest()}\n")
        fault(run)
    while alive() and time.time() - run.began < MOST_SECONDS:
        look()
        time.sleep(_LOOK_SECONDS)
