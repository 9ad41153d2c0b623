"""What `tachoscope run` sees of real processes from outside: deaths, restarts, a hang, and a SIGTERM with time to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers import records_of
from processes import wait_for
from tachoscope_core.records import records
from tachoscope_core.storage.store import Store

HURT = """
import os, signal, time, tachoscope
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
def reached(rank, number):
    return f"reached-{attempt}-{rank}-{number}"
for number in range(40):
    if rank == 1 and number == 20:
        time.sleep(0.2)  # until the steps are written
        with open(f"hurt-{attempt}", "w") as file:
            print(os.getpid(), time.time(), file=file)
        os.kill(os.getpid(), (signal.SIGKILL, signal.SIGSTOP)[attempt])
    with tachoscope.phase("data_wait"):
        time.sleep(0.02)
    with tachoscope.phase("backward"):
        open(reached(rank, number), "w").close()
        while not os.path.exists(reached(1 - rank, number)):
            time.sleep(0.005)
    tachoscope.step()
"""
"""Two ranks that wait for each other in each backward, without the seconds of importing torch in each of four processes:
watch/test_live_hang.py has a DistributedDataParallel that hangs."""


def start(*command: str, options: tuple[str, ...] = (), **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tachoscope_cli.main", "run", "--job", "job", *options, "--", sys.executable, *command],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environ,
    )


def from_outside(tmp_path: Path, kind: type[records.Record]) -> list[records.Record]:
    """Return the records of a kind that the launcher wrote, in its order."""
    store = Store(str(tmp_path / "store"))
    lines = [line for segment in store.segments("job") for line in store.read(segment).splitlines()]
    found = [record for record in map(records.decode, lines) if record.rank == records.LAUNCHER_RANK]
    assert max(found, key=lambda record: record.seq).__class__ is records.JobEnded, "the launcher's last word"
    return sorted((record for record in found if isinstance(record, kind)), key=lambda record: record.seq)


def test_a_killed_rank_its_restart_and_a_stopped_rank_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(HURT)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "train.py")
    run = start(*torchrun, TACHOSCOPE_HANG_SECONDS="8")  # the first heartbeat tells the phase after a second, or later
    assert run.stderr is not None
    hang = next(line for line in run.stderr if line.startswith("tachoscope: no step"))
    stopped, stopped_at = (tmp_path / "hurt-1").read_text().split()
    os.kill(int(stopped), signal.SIGKILL)
    rest = run.stderr.read()
    killed, killed_at = (tmp_path / "hurt-0").read_text().split()

    assert run.wait(timeout=120) != 0, rest
    assert "rank 1 hangs: its process is stopped by a signal; the others are in: backward" in hang
    assert "tachoscope: first failure: rank 1 on " in rest
    failures = from_outside(tmp_path, records.WorkerFailed)
    first, second = (next(f for f in failures if f.failed_attempt == attempt) for attempt in (0, 1))
    assert (first.failed_rank, first.failed_pid, first.reason, first.step) == (1, int(killed), "killed", 20)
    assert 0.0 <= first.gone_time - float(killed_at) < 5.0
    assert (second.failed_rank, second.failed_pid) == (1, int(stopped))
    (hung,) = from_outside(tmp_path, records.WorkerHung)
    assert (hung.failed_rank, hung.failed_writer, hung.step) == (1, second.failed_writer, 20)
    assert abs(hung.since_time - float(stopped_at)) < 5.0
    restarts = from_outside(tmp_path, records.WorkerRestarted)
    assert sorted((r.restarted_attempt, r.restarted_rank) for r in restarts) == [(1, 0), (1, 1)]
    assert {step.attempt for step in records_of(tmp_path).steps} == {0, 1}


TRAIN = """
import os, sys, time, tachoscope
while True:
    with tachoscope.phase("data_wait"):
        time.sleep(0.01)
    tachoscope.step()
    if sys.argv[1] == "asks" and tachoscope.preempted():
        time.sleep(0.5)
        open("saved", "w").close()
        sys.exit(0)
    if sys.argv[1] == "asks too late" and tachoscope.preempted():
        time.sleep(60)
    if not os.path.exists("steps"):
        open("steps", "w").close()
"""


@pytest.mark.parametrize(
    ("how", "terms", "options", "code"),
    [
        ("asks", 1, (), 0),
        ("does not ask", 1, (), 143),
        ("asks too late", 1, ("--grace", "0.5"), 143),
        pytest.param("asks too late", 2, (), 143, marks=pytest.mark.bar),
    ],
)
def test_a_command_that_asks_has_time_to_end_after_a_sigterm_and_another_gets_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, terms: int, options: tuple[str, ...], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    run = start("train.py", how, options=options)
    wait_for((tmp_path / "steps").exists)
    told = time.time()
    run.terminate()
    if terms == 2:
        wait_for(lambda: list((tmp_path / "spool").glob("run-*/notice.json")))
        run.terminate()

    assert run.wait(timeout=120) == code
    assert (tmp_path / "saved").exists() == (how == "asks")
    (notice,) = from_outside(tmp_path, records.PreemptionNotice)
    assert notice.source == "sigterm"
    assert told - 0.1 <= notice.time < told + 20.0  # the grace begins with the signal
    grace = 0.0 if how == "does not ask" else 0.5 if options else 25.0
    assert notice.deadline - notice.time == pytest.approx(grace, abs=1e-3)
    assert not list((tmp_path / "spool").glob("run-*")), "notice and question go with the run's directory"
