"""Tracing that ends beside threads which allocate without the interpreter's lock, in a process of its own: a failure is a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest

BESIDE_THREADS = """
import ctypes, sys, threading, time, tracemalloc
from tachoscope.memory import allocation_trace as module
from tachoscope.memory.allocation_trace import AllocationTrace

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
module.LEAVE_SECONDS, module.LEAVE_LOOKS = 0.0, 2
trace = AllocationTrace()
for _ in range(25):
    assert trace.start(10)
    time.sleep(0.001)
    trace.end(0.0)
    while not trace.over:
        time.sleep(0)
        trace.leave(0.0)
    assert not tracemalloc.is_tracing()
over.set()
for thread in threads:
    thread.join()
print("alive")
"""
OF_OTHERS = """
import os, time, tracemalloc
from tachoscope.memory import allocation_trace as module
from tachoscope.memory.allocation_trace import AllocationTrace

module.LEAVE_SECONDS, module.LEAVE_LOOKS = 0.0, 1
trace = AllocationTrace()
assert trace.start(10)
child = os.fork()
if not child:
    os._exit(tracemalloc.is_tracing())
assert os.waitpid(child, 0)[1] == 0, "a forked process does not go on with it"
trace.end(0.0)
kept = bytearray(1000)
assert tracemalloc.get_object_traceback(kept) is None, "nothing is traced after the end"
tracemalloc.stop()  # as a job may
tracemalloc.start()
trace.leave(0.0)
kept = bytearray(1000)
assert tracemalloc.get_object_traceback(kept) is not None, "what the job began by itself goes on"
assert trace.over and not trace.start(10)
print("alive")
"""


@pytest.mark.parametrize("script", [BESIDE_THREADS, OF_OTHERS], ids=["beside threads", "of others"])
def test_a_trace_ends_without_a_crash_and_leaves_alone_what_is_not_its_own(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
