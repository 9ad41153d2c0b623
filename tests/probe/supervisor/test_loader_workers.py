"""A loader worker that cannot go on is told from one that may: real processes that wait in each way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from processes import wait_for
from tachoscope.supervisor.loader_workers import stuck_worker
from tachoscope.supervisor.movement import WINDOW_SECONDS, Movement

WORKER = """
import ctypes, multiprocessing, queue, socket, sys, threading, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
lock, shared = threading.Lock(), multiprocessing.Semaphore(0)
lock.acquire()
print(flush=True)
"""
IDLE_THREAD = "threading.Thread(target=lock.acquire, daemon=True).start()\n"
WAYS = {
    "a lock that it holds": ("lock.acquire()", True),
    "a lock, and a thread of its own for it too": (f"{IDLE_THREAD}lock.acquire()", True),
    "a lock, and multiprocessing listens": (
        "from multiprocessing import resource_sharer; resource_sharer.DupFd(1); lock.acquire()",
        True,
    ),
    "a lock, and a server of its own listens": (
        "s = socket.create_server(('', 0)); threading.Thread(target=s.accept).start(); lock.acquire()",
        False,
    ),
    "a lock for at most an hour": ("lock.acquire(timeout=3600)", False),
    "a thread that sleeps, as in a download": ("t = threading.Thread(target=time.sleep, args=(600,)); t.start(); t.join()", False),
    "a thread that waits for a socket": (
        "t = threading.Thread(target=socket.socketpair()[0].recv, args=(1,)); t.start(); t.join()",
        False,
    ),
    "what another process may give": ("shared.acquire()", False),
    "time": ("time.sleep(600)", False),
}


def started(text: str, name: str = "pt_data_worker") -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WORKER + text, name], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def stopped(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def may_read() -> bool:
    try:
        with open(f"/proc/{os.getppid()}/syscall"):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not may_read(), reason="system calls of other processes may not be read here")
def test_a_worker_whose_threads_all_wait_for_each_other_is_deadlocked_and_no_other() -> None:
    workers = {way: started(text) for way, (text, _) in WAYS.items()}
    other = started("lock.acquire()", name="compiler")
    try:
        wait_for(lambda: all(stuck_worker([workers[way].pid]) for way, (_, stuck) in WAYS.items() if stuck), seconds=60)
        found = {way for way, worker in workers.items() if stuck_worker([worker.pid])}

        assert found == {way for way, (_, stuck) in WAYS.items() if stuck}
        assert not stuck_worker([other.pid]), "what is no loader worker may wait for a signal as long as it likes"
        time_worker = workers["time"]
        os.kill(time_worker.pid, signal.SIGSTOP)
        wait_for(lambda: stuck_worker([time_worker.pid]) == f"its loader worker {time_worker.pid} is stopped", seconds=60)
    finally:
        stopped(*workers.values(), other)
    assert not stuck_worker([worker.pid for worker in workers.values()])


def test_it_is_said_once_it_was_so_for_the_whole_window_and_no_longer_after_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "its loader worker 7 is stopped"
    monkeypatch.setattr("tachoscope.supervisor.movement.stuck_worker", lambda processes: why)
    movement = Movement()

    assert [movement.stuck_worker(1, at) for at in (0.0, WINDOW_SECONDS - 0.1, WINDOW_SECONDS)] == ["", "", why]
    movement.forget()
    assert movement.stuck_worker(1, WINDOW_SECONDS + 1.0) == ""
