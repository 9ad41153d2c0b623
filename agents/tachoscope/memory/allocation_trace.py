"""Begins and ends `tracemalloc` while other threads of the job allocate.

`tracemalloc.stop` frees what its hooks use. A thread that waits within a hook for the interpreter's lock then crashes the process
(https://github.com/python/cpython/issues/128679; Python 3.11 is not corrected). So the hooks are taken away first, and what they
use is freed only after every waiting thread had the lock many times.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tracemalloc
from typing import ClassVar

LEAVE_SECONDS, LEAVE_LOOKS = 10.0, 40
"""Between the removal of the hooks and `tracemalloc.stop`: least seconds, and how often this thread must have released the lock."""
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
    """Traces the allocations of this process from `start` to `end`; called by one thread."""

    def __init__(self) -> None:
        self._plain: list[_Allocator] = []
        self._hooked: list[_Allocator] = []
        self._leaves_at: float | None = None
        self._looks = 0

    @property
    def over(self) -> bool:
        """Whether nothing of the last trace is left."""
        return not self._plain

    def start(self, frames: int) -> bool:
        """Begin; return False if something else traces, or the trace could not be ended safely."""
        if not self.over or tracemalloc.is_tracing() or not _has_lock():
            return False
        plain = _allocators()
        if plain[_RAW].context:  # hooks of another tool, or of a debugging build
            return False
        ctypes.memmove(ctypes.byref(_plain_raw), ctypes.byref(plain[_RAW]), ctypes.sizeof(_Allocator))
        plain[_RAW].context = ctypes.addressof(_plain_raw)
        _set(_RAW, plain[_RAW])
        tracemalloc.start(frames)
        self._plain, self._hooked, self._leaves_at = plain, _allocators(), None
        _end_in_children(self)
        return True

    def end(self, now: float) -> None:
        """Trace no more: from now on allocations take as long as before. `leave` frees the rest later."""
        if self.over or self._leaves_at is not None:
            return
        if list(map(bytes, _allocators())) != list(map(bytes, self._hooked)):
            self._plain = []  # another tool came since, and will put back what it found: that must stay valid
            return
        for domain in (*_WITH_LOCK, _RAW):
            _set(domain, self._plain[domain])
        tracemalloc.clear_traces()
        self._leaves_at, self._looks = now + LEAVE_SECONDS, 0

    def leave(self, now: float) -> None:
        """Call `tracemalloc.stop` once it is safe; call it again and again, and give the interpreter's lock away in between."""
        if self._leaves_at is None:
            return
        self._looks += 1
        if now < self._leaves_at or self._looks < LEAVE_LOOKS:
            return
        if list(map(bytes, _allocators())) == list(map(bytes, self._plain)):
            self._free()
        else:  # the job traces by itself since then
            self._plain, self._leaves_at = [], None

    def end_in_child(self) -> None:
        """End it in a forked process, which has one thread."""
        if not self.over:
            self._free()

    def _free(self) -> None:
        tracemalloc.stop()
        plain, self._plain, self._leaves_at = self._plain, [], None
        plain[_RAW].context = None
        _set(_RAW, plain[_RAW])


def _has_lock() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _allocators() -> list[_Allocator]:
    found = [_Allocator() for _ in range(3)]
    for domain, one in enumerate(found):
        ctypes.pythonapi.PyMem_GetAllocator(ctypes.c_int(domain), ctypes.byref(one))
    return found


def _set(domain: int, allocator: _Allocator) -> None:
    ctypes.pythonapi.PyMem_SetAllocator(ctypes.c_int(domain), ctypes.byref(allocator))


_traces: list[AllocationTrace] = []


def _end_in_children(trace: AllocationTrace) -> None:
    """End the trace in forked processes, where nothing else would end it."""
    if not _traces:
        os.register_at_fork(after_in_child=_end_all)
    if trace not in _traces:
        _traces.append(trace)


def _end_all() -> None:
    for one in _traces:
        one.end_in_child()
