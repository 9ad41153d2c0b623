"""Processes that wait for each other alone, told from those that something outside may wake: real ones that wait in each way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from processes import wait_for
from tachoscope.supervisor.movement import Movement

BEGINS = """
import fcntl, multiprocessing, os, queue, signal, socket, subprocess, sys, tempfile, threading, time
from multiprocessing import connection, resource_sharer
lock, shared, never = threading.Lock(), multiprocessing.Semaphore(0), queue.Queue()
lock.acquire()
in_thread = lambda do, *words: threading.Thread(target=do, args=words, daemon=True).start()
reads, writes = os.pipe()

def child(do, *words):
    if not (pid := os.fork()):
        do(*words)
    return pid

def locked_by(holder):
    file = tempfile.NamedTemporaryFile()
    begin = "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.lockf(file, 2); print(flush=True); time.sleep(900)"
    start = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]])"
    words = [begin, file.name] if holder == "child" else [start, begin, file.name]
    subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE).stdout.readline()
    fcntl.lockf(file, fcntl.LOCK_EX)

def read_of_a_stranger():
    subprocess.run([sys.executable, "-c", "import subprocess, sys; subprocess.Popen(['sleep', '900'], stdout=1)"], stdout=writes)
    os.close(writes)
    os.read(reads, 1)
"""
CLOSED = {
    "a lock that it holds": "lock.acquire()",
    "a lock, and a thread of its own for it too": "in_thread(lock.acquire); lock.acquire()",
    "a lock, and multiprocessing listens": "resource_sharer.DupFd(1); lock.acquire()",
    "a queue that nobody fills": "never.get()",
    "a child that waits for a pipe that both have open": "os.waitpid(child(os.read, reads, 1), 0)",
    "a pipe that nobody reads": "[os.write(writes, bytes(65536)) for _ in range(100)]",
    "a child into whose pipe it looks again and again": "child(lock.acquire); [connection.wait([reads], 3) for _ in range(900)]",
    "a file lock that its child holds": "locked_by('child')",
    "a time after which it hangs anyway": "time.sleep(900)",
}
OPEN = {
    "a lock for at most an hour": "lock.acquire(timeout=3600)",
    "a thread that sleeps for a while": "in_thread(time.sleep, 300); lock.acquire()",
    "a thread that waits for a socket": "in_thread(socket.create_server(('', 0)).accept); lock.acquire()",
    "a thread that listens for anyone": "in_thread(socket.create_server('', family=1).accept); lock.acquire()",
    "a child that waits for a socket": "os.waitpid(child(socket.create_server(('', 0)).accept), 0)",
    "a child that computes": "os.waitpid(child(sum, iter(int, 1)), 0)",
    "what another process may give": "shared.acquire()",
    "a file lock that another process holds": "locked_by('other')",
    "a pipe that another process has open": "read_of_a_stranger()",
    "its input": "os.read(0, 1)",
    "a time that ends soon": "time.sleep(300)",
    "a child that is stopped": "os.kill(child(lock.acquire), signal.SIGSTOP); lock.acquire()",
}


def may_read() -> bool:
    try:
        with open(f"/proc/{os.getppid()}/syscall"):
            return True
    except OSError:
        return False


@contextmanager
def running(programs: dict[str, str]) -> Iterator[dict[str, int]]:
    started = {
        way: subprocess.Popen([sys.executable, "-c", BEGINS + text], stdin=subprocess.PIPE, start_new_session=True)
        for way, text in programs.items()
    }
    try:
        yield {way: process.pid for way, process in started.items()}
    finally:
        for process in started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.mark.skipif(not may_read(), reason="system calls of other processes may not be read here")
def test_only_what_nothing_outside_can_wake_waits_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tachoscope.supervisor.movement.WINDOW_SECONDS", 1.0)
    movement, until = Movement(), time.monotonic() + 600.0
    with running(CLOSED | OPEN) as pids:

        def look() -> set[str]:
            return {way for way, pid in pids.items() if movement.waits_for_itself(pid, time.monotonic(), until)}

        assert not look(), "at the first look nothing is known"
        wait_for(lambda: look() >= CLOSED.keys(), seconds=120, pause=0.3)
        assert look() == CLOSED.keys()
        locked = [pids[f"a file lock that {holder} holds"] for holder in ("its child", "another process")]
        for pid, is_still in zip(locked, (True, False), strict=True):
            still = [movement.stands_still(pid, at, until) for at in (0.0, 2.0)]  # as if 2 s had passed
            assert still == [False, is_still], "what waits for the lock of another process may go on"
        movement.forget()
        assert not look(), "a step was finished"


def test_a_process_that_is_gone_waits_for_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert not any(Movement().waits_for_itself(process.pid, at, at + 100.0) for at in (0.0, 10.0, 20.0))
