"""Tracing that ends beside threads which allocate without the interpreter's lock, in a process of its own: a failure is a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

IS_TRACED = """
import tracemalloc
from tachoscope.memory.allocation_trace import TRACE

def is_traced():
    before = tracemalloc.get_traced_memory()[0]
    kept = bytearray(1 << 20)
    return tracemalloc.get_traced_memory()[0] - before > 1 << 19
"""
BESIDE_THREADS = """
import ctypes, sys, threading, time

without_lock = ctypes.CDLL(None)
allocate, free = without_lock.PyMem_RawMalloc, without_lock.PyMem_RawFree
allocate.restype, allocate.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
over = threading.Event()
def work():
    while not over.is_set():
        free(allocate(100))
threads = [threading.Thread(target=work) for _ in range(2)]
sys.setswitchinterval(1e-4)
for thread in threads:
    thread.start()
for _ in range(50):
    assert TRACE.start(10)
    time.sleep(0.001)
    assert is_traced()
    TRACE.end()
    assert not is_traced()
over.set()
for thread in threads:
    thread.join()
print("alive")
"""
OF_OTHERS = """
import os

def in_child(look):
    child = os.fork()
    if not child:
        os._exit(bool(look()))
    return os.waitpid(child, 0)[1] != 0

assert TRACE.start(10) and is_traced()
assert not in_child(is_traced), "a forked process does not go on with it"
assert not in_child(lambda: TRACE.start(10)), "where it was forked from a thread may have held the lock"
TRACE.end()
assert in_child(lambda: TRACE.start(10) and is_traced()), "a worker that was forked later has a trace of its own"
tracemalloc.stop()  # as a job may
tracemalloc.start()
assert is_traced() and not TRACE.start(10), "what the job began goes on"
TRACE.end()
assert is_traced()
print("alive")
"""


@pytest.mark.parametrize("script", [BESIDE_THREADS, OF_OTHERS], ids=["beside threads", "of others"])
def test_a_trace_ends_without_a_crash_and_leaves_alone_what_is_not_its_own(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", IS_TRACED + script], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
