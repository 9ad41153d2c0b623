"""A process that does nothing is told from one that computes, reads, or waits for another machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from processes import wait_for
from tachoscope.supervisor.movement import Movement

STILL = {
    "sleeps": "import time; time.sleep(600)",
    "waits for a lock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
}
COMPUTES = "import time\nwhile True: sum(range(200_000)); time.sleep(0.05)"
READS = "import time\nwhile True: open('/dev/zero', 'rb').read(1 << 22); time.sleep(0.05)"
MOVES = {
    "computes": COMPUTES,
    "has another process compute": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {COMPUTES!r}])",
    "reads": READS,
    "has another process read": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {READS!r}])",
    "waits for a socket": "import socket; one, other = socket.socketpair(); one.recv(1)",
    "sleeps for a while": "import time; time.sleep(300)",
}


@contextmanager
def running(programs: dict[str, str]) -> Iterator[dict[str, int]]:
    started = {name: subprocess.Popen([sys.executable, "-c", text], start_new_session=True) for name, text in programs.items()}
    try:
        yield {name: process.pid for name, process in started.items()}
    finally:
        for process in started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_only_what_neither_computes_nor_reads_nor_waits_for_a_network_or_a_while_stands_still() -> None:
    movement, until = Movement(), time.monotonic() + 590.0
    with running(STILL | MOVES) as pids:

        def look() -> set[str]:
            return {name for name, pid in pids.items() if movement.stands_still(pid, time.monotonic(), until)}

        assert not look(), "at the first look nothing is known"
        wait_for(lambda: look() >= STILL.keys(), seconds=120, pause=0.3)
        assert look() == STILL.keys()


def test_a_process_that_is_gone_is_not_said_to_stand_still() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    movement = Movement()

    assert not any(movement.stands_still(process.pid, second, 30.0) for second in (0.0, 10.0, 20.0))
