"""A loader worker that is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tachoscope.supervisor.loader_workers import stopped_worker
from tachoscope.supervisor.movement import WINDOW_SECONDS, Movement

NAMED = "import ctypes, sys, time; ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0); print(flush=True); time.sleep(600)"


def started(name: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", NAMED, name], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_stopped_loader_worker_is_found_and_no_other_process() -> None:
    worker, other = started("pt_data_worker"), started("compiler")
    try:
        os.kill(other.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, other.pid, os.WSTOPPED)
        assert stopped_worker([worker.pid, other.pid]) == "", "what is no loader worker may be stopped as long as it likes"

        os.kill(worker.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        assert stopped_worker([other.pid, worker.pid]) == f"its loader worker {worker.pid} is stopped"
    finally:
        for process in (worker, other):
            process.kill()
            process.communicate()
    assert stopped_worker([worker.pid]) == ""


def test_it_is_said_once_it_was_so_for_the_whole_window_and_no_longer_after_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "its loader worker 7 is stopped"
    monkeypatch.setattr("tachoscope.supervisor.movement.stopped_worker", lambda processes: why)
    movement = Movement()

    assert [movement.stopped_worker(1, at) for at in (0.0, WINDOW_SECONDS - 0.1, WINDOW_SECONDS)] == ["", "", why]
    movement.forget()
    assert movement.stopped_worker(1, WINDOW_SECONDS + 1.0) == ""
