"""The stacks of another process are read while it stands still, whatever it stands in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from processes import wait_for
from tachoscope.sampling.other_process import own_locator, stacks_of
from tachoscope.sampling.unlocked_stacks import why_not
from trying import each

pytestmark = pytest.mark.skipif(bool(why_not()), reason=f"stacks cannot be read here: {why_not()}")

PROGRAM = """
import ctypes, os, signal, sys, threading, time
from tachoscope.sampling.other_process import own_locator

def stands_with_the_lock():
    ctypes.PyDLL(None).sleep(600)

def is_stopped():
    os.kill(os.getpid(), signal.SIGSTOP)

def waits_in_größe():
    threading.Lock().acquire() and time.sleep(600)

def forks():
    pid = os.fork()
    if pid == 0:
        waits_in_größe()
    print(pid, flush=True)
    time.sleep(600)

def other_thread():
    time.sleep(600)

if sys.argv[1] != "forks":
    threading.Thread(target=other_thread, name="other", daemon=True).start()
    time.sleep(0.1)
print(own_locator(), flush=True)
globals()[sys.argv[1]]()
"""


@contextmanager
def standing(how: str) -> Iterator[tuple[int, str, Callable[[], str]]]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip(), process.stdout.readline
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def functions(pid: int, locator: str) -> list[list[str]]:
    return [[frame.split()[-1] for frame in frames] for _, frames in stacks_of(pid, locator)]


@each("how", ["stands_with_the_lock", "is_stopped", "waits_in_größe"])
def test_each_thread_of_a_process_that_does_nothing_is_read_and_the_one_that_said_where_comes_first(how: str) -> None:
    with standing(how) as (pid, locator, _):
        wait_for(lambda: functions(pid, locator)[0][0] == how, seconds=60)
        first, *others = stacks_of(pid, locator)

    assert first[0] == pid and first[1][0].startswith("<string>:")
    assert [frame.split()[-1] for frame in first[1]] == [how, "<module>"]
    assert any("other_thread" in frames[0] for _, frames in others if frames)


def test_a_forked_child_is_read_by_what_its_parent_said() -> None:
    with standing("forks") as (_, locator, line):
        child = int(line())
        try:
            wait_for(lambda: functions(child, locator)[0][0] == "waits_in_größe", seconds=60)
            ((tid, _),) = stacks_of(child, locator)
            assert tid == child
        finally:
            os.kill(child, signal.SIGKILL)


def test_what_is_no_locator_and_a_process_that_is_gone_are_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with pytest.raises(OSError, match="No such process"):
        stacks_of(process.pid, own_locator())
    for wrong in ("", "00" * 50, own_locator()[:-2], own_locator() + "00", "ff" * (len(own_locator()) // 2)):
        with pytest.raises(ValueError, match="not a locator"):
            stacks_of(os.getpid(), wrong)


def test_a_forged_locator_reads_nothing_but_that_process_and_does_no_harm() -> None:
    with standing("is_stopped") as (pid, locator, _):
        whole = bytes.fromhex(locator)
        for at in range(8, len(whole)):
            forged = bytearray(whole)
            forged[at] ^= 0xFF
            try:
                stacks_of(pid, forged.hex())
            except (ValueError, OSError):
                continue
