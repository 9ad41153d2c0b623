"""Begins and ends `tracemalloc` while other threads of the job allocate.

`tracemalloc.stop` frees what its hooks use. A thread that is still within a hook then crashes the process, however long ago it came
there (https://github.com/python/cpython/issues/128679; Python 3.11 is not corrected). So it is never called: the hooks are taken
away, and what they use stays. `tracemalloc.is_tracing()` stays true, and a job that starts tracemalloc later gets no traces.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tracemalloc
from typing import ClassVar

_RAW, *_WITH_LOCK = range(3)
"""The domains of PyMem_SetAllocator. Only functions of the first are called without the interpreter's lock."""


class _Allocator(ctypes.Structure):
    """PyMemAllocatorEx, see https://docs.python.org/3/c-api/memory.html."""

    _fields_: ClassVar = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


_plain_raw = _Allocator()
"""The raw allocator without hooks, whose functions ignore their context. Its address is made that context: a thread that reads
context and function while both are exchanged may combine an old one with a new one, and a hook finds a valid allocator there."""
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_plain_raw))  # it outlives this module, as the threads do


class AllocationTrace:
    """Traces the allocations of this process from `start` to `end`, several times; called by one thread.

    Use `TRACE`, the one of the process: a forked loader worker has that of its parent, and begins its own time with it.
    """

    def __init__(self) -> None:
        self._plain: list[_Allocator] = []
        self._hooked: list[_Allocator] = []
        self._is_on = self._is_locked = False

    def start(self, frames: int) -> bool:
        """Begin; return False if something else traces, or the trace could not be ended safely."""
        if self._is_on or self._is_locked or not _has_lock():
            return False
        if not (self._begin_again() if self._plain else self._begin(frames)):
            return False
        self._is_on = True
        return True

    def _begin(self, frames: int) -> bool:
        plain = _allocators()
        if tracemalloc.is_tracing() or plain[_RAW].context:  # hooks of another tool, or of a debugging build
            return False
        ctypes.memmove(ctypes.byref(_plain_raw), ctypes.byref(plain[_RAW]), ctypes.sizeof(_Allocator))
        plain[_RAW].context = ctypes.addressof(_plain_raw)
        _set(_RAW, plain[_RAW])
        tracemalloc.start(frames)
        self._plain, self._hooked = plain, _allocators()
        os.register_at_fork(after_in_child=self._end_in_child)
        return True

    def _begin_again(self) -> bool:
        if not tracemalloc.is_tracing() or not _are_set(self._plain):
            return False
        for domain in (_RAW, *_WITH_LOCK):
            _set(domain, self._hooked[domain])
        return True

    def end(self) -> None:
        """Trace no more: from now on allocations take as long as before."""
        if self._take_hooks_away():
            tracemalloc.clear_traces()

    def _take_hooks_away(self) -> bool:
        was_on, self._is_on = self._is_on, False
        if not was_on or not _are_set(self._hooked):  # another tool came since, and will put back what it found
            return False
        for domain in (*_WITH_LOCK, _RAW):
            _set(domain, self._plain[domain])
        return True

    def _end_in_child(self) -> None:
        """End it in a forked process, where nothing else would."""
        # A thread that is not there may have held the lock of the traces: nothing that takes it is called in this process.
        self._is_locked = self._take_hooks_away() or self._is_locked


TRACE = AllocationTrace()


def _has_lock() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _allocators() -> list[_Allocator]:
    found = [_Allocator() for _ in range(3)]
    for domain, one in enumerate(found):
        ctypes.pythonapi.PyMem_GetAllocator(ctypes.c_int(domain), ctypes.byref(one))
    return found


def _are_set(wanted: list[_Allocator]) -> bool:
    return list(map(bytes, _allocators())) == list(map(bytes, wanted))


def _set(domain: int, allocator: _Allocator) -> None:
    ctypes.pythonapi.PyMem_SetAllocator(ctypes.c_int(domain), ctypes.byref(allocator))
