"""A process that does nothing is told from one that computes, reads, or waits for another machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tachoscope.supervisor.movement import WINDOW_SECONDS, Movement

WAYS = {
    "sleeps": ("import time; time.sleep(600)", True),
    "waits for a lock": ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", True),
    "computes": ("while True: pass", False),
    "has another process compute": (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])",
        False,
    ),
    "reads": ("import time\nwhile True: open('/dev/zero', 'rb').read(1 << 22); time.sleep(0.05)", False),
    "waits for a socket": ("import socket; one, other = socket.socketpair(); one.recv(1)", False),
}


@pytest.mark.parametrize("way", WAYS)
def test_only_what_neither_computes_nor_reads_nor_waits_for_a_network_stands_still(way: str) -> None:
    program, still = WAYS[way]
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        movement = Movement()
        found = []
        begin = time.monotonic()
        while time.monotonic() - begin < 3 * WINDOW_SECONDS:
            found.append(movement.stands_still(process.pid, time.monotonic()))
            time.sleep(0.3)
        assert found[-1] == still and not found[0], found
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_process_that_is_gone_is_not_said_to_stand_still() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    movement = Movement()

    assert not any(movement.stands_still(process.pid, second) for second in (0.0, 10.0, 20.0))
