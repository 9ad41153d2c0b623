"""What the kernel says of real processes and threads that do a known thing."""

import mmap
import os
import platform
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tachoscope.timing import procfs
from trying import each

pytestmark = pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="system call numbers are known for these")


def settled(pid: int, tid: int | None, expected: str) -> str:
    """Ask until the thread is where it is going, at most five seconds."""
    end = time.monotonic() + 5
    while (kind := procfs.waits_for(pid, tid)) != expected and time.monotonic() < end:
        time.sleep(0.01)
    return kind


@each(
    ("code", "expected"),
    [
        ("import time; time.sleep(60)", "sleep"),
        ("import sys; sys.stdin.buffer.raw.read(1)", "pipe"),
        ("import socket; a, b = socket.socketpair(); a.recv(1)", "socket"),
        ("import os, socket; a, b = socket.socketpair(); os.read(a.fileno(), 1)", "socket"),
        ("import threading; l = threading.Lock(); l.acquire(); l.acquire()", "lock"),
        ("import select; select.poll().poll(60000)", "poll"),
        ("while True: pass", "cpu"),
    ],
)
def test_what_a_process_waits_for_is_told_apart(code: str, expected: str) -> None:
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        try:
            assert settled(process.pid, None, expected) == expected
        finally:
            process.kill()


def test_another_thread_of_this_process_is_seen_by_its_id() -> None:
    ready, ids = threading.Event(), []
    left, right = socket.socketpair()

    def wait() -> None:
        ids.append(threading.get_native_id())
        ready.set()
        left.recv(1)

    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    try:
        assert settled(os.getpid(), ids[0], "socket") == "socket"
    finally:
        right.send(b"x")
        thread.join()


def test_a_process_that_is_gone_is_unknown_not_idle() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert procfs.waits_for(process.pid) == "unknown"
    assert procfs.cpu_seconds(process.pid) is None


@pytest.mark.parametrize("read", [lambda: procfs.core_seconds(), lambda: procfs.pressure_seconds("cpu"), procfs.bytes_read])
def test_counters_never_run_backwards(read: Callable[[], float]) -> None:
    first, second = read(), read()
    if first is None:
        pytest.skip("this kernel does not keep it")

    assert second >= first


def test_absent_counters_are_none_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "PROC", "/nonexistent")

    assert procfs.pressure_seconds("cpu") is None
    assert procfs.core_seconds() is None
    assert procfs.bytes_read() is None
    assert not procfs.RunDelay().measured
    assert procfs.RunDelay().read() == 0


def test_waiting_for_a_core_grows_when_two_threads_share_one() -> None:
    if not procfs.RunDelay().measured:
        pytest.skip("this kernel keeps no schedstat")
    cores = os.sched_getaffinity(0)
    spinner = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        with spinner.stdout:
            spinner.stdout.readline()  # until then it waits for its modules, not for the core
        os.sched_setaffinity(0, {min(cores)})
        os.sched_setaffinity(spinner.pid, {min(cores)})
        delay = procfs.RunDelay()
        before, deadline = delay.read(), time.monotonic() + 60
        while delay.read() - before < 0.1e9 and time.monotonic() < deadline:
            pass
        assert delay.read() - before >= 0.1e9
    finally:
        os.sched_setaffinity(0, cores)
        spinner.kill()
        spinner.wait()


def test_the_start_of_a_process_is_known_to_a_clock_tick() -> None:
    code = (
        "import time; from tachoscope.timing.procfs import start_time;now = time.time(); time.sleep(0.2); print(start_time(), now)"
    )
    before = time.time()
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    started, running = map(float, told.stdout.split())

    tick = 1.5 / procfs.CLOCK_TICKS
    assert before - tick <= started <= running + tick


def test_memory_of_process_and_host_is_read_in_bytes() -> None:
    before = procfs.memory_bytes()
    kept = mmap.mmap(-1, 50 << 20)  # memory of its own, not what this process had and freed
    kept.write(b"x" * len(kept))
    grown = procfs.memory_bytes()

    assert grown["resident_bytes"] - before["resident_bytes"] == pytest.approx(len(kept), rel=0.1)
    assert grown["swapped_bytes"] >= 0
    assert 0 < grown["available_bytes"] < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
