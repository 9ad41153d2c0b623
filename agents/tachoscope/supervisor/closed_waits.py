"""Whether processes wait for nothing but each other, so that nothing else lets them go on. Read from outside, by the kernel.

Closed is a wait for a lock of the own process, for a child, for a pipe that nobody else has open, for a file lock that one of them
holds, and a sleep that ends too late. All else is open: a socket, a device, a file, a limited wait for a lock, what other processes
share, and what cannot be read. A pipe that a process of another user has open is not seen to be: its descriptors are not readable.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time
from collections.abc import Iterable, Sequence

from tachoscope.timing import procfs

PROBE_THREADS = b"tachoscope"
"""How the names of the probe's own threads begin, which wait for a time."""
_BACKGROUND = frozenset({b"gloo_tcp_loop"})
"""Waits for sockets at all times; who needs what arrives there waits in `pt_gloo_runloop`, with a limit."""
_MOST_PROCESSES, _MOST_THREADS, _MOST_DESCRIPTORS = 256, 4096, 1 << 17
_MOST_POLLED = 64
_MOST_LETTERS = 4 << 20
_FUTEX_PRIVATE = 0x80
_FUTEX_WAITS = frozenset({0, 6, 9, 13})
"""FUTEX_WAIT, FUTEX_LOCK_PI, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2."""
_REPEATED_MILLISECONDS = 5000
"""A wait that is shorter than what is watched was repeated meanwhile: as PyTorch's loaders do, every 5 s."""
_TIMER_ABSTIME, _CLOCKS = 1, {0: time.time, 1: time.monotonic}
_SET_LOCK_WAITS = frozenset({7, 38})
"""F_SETLKW, F_OFD_SETLKW."""
_LISTENS, _OF_MULTIPROCESSING = "00010000", re.compile(r"/pymp-\w+/listener-\w+$")
"""__SO_ACCEPTCON in /proc/net/unix, and how multiprocessing names its sockets."""


def pipes_waited_for(processes: Sequence[int], sleeps_until: float) -> frozenset[str] | None:
    """Return the pipes for which threads of these processes wait, if all their waits are closed; None: one is open.

    Args:
        sleeps_until: seconds of the monotonic clock; a sleep that ends before is open.
    """
    if len(processes) >= _MOST_PROCESSES:
        return None
    pipes: set[str] = set()
    count = 0
    for pid in processes:
        try:
            threads = os.listdir(f"{procfs.PROC}/{pid}/task")
        except OSError:
            return None
        count += len(threads)
        if not threads or count > _MOST_THREADS:
            return None
        for tid in map(int, threads):
            found = _closed_wait(pid, tid, processes, sleeps_until)
            if found is None:
                return None
            pipes.update(found)
    return frozenset(pipes)


def others_have_open(pipes: frozenset[str], processes: Iterable[int]) -> bool:
    """Return whether a process that is none of these has one of the pipes open, or there are too many to look."""
    if not pipes:
        return False
    known, count = set(processes), 0
    for name in os.listdir(procfs.PROC):
        if not name.isdigit() or int(name) in known:
            continue
        with contextlib.suppress(OSError):  # it ended, or is another user's
            for descriptor in os.listdir(f"{procfs.PROC}/{name}/fd"):
                count += 1
                if count > _MOST_DESCRIPTORS or _target(int(name), int(descriptor)) in pipes:
                    return True
    return False


def may_go_on(pid: int, processes: Iterable[int], sleeps_until: float) -> bool:
    """Return whether the first thread of a process waits for a file lock that none of these holds, or for a time before."""
    call, arguments = procfs.system_call(pid, pid)
    if call == "clock_nanosleep":
        end = _sleep_end(pid, arguments)
        return end is not None and end <= sleeps_until
    return _is_lock_wait(call, arguments) and not _holds_one(processes, pid, arguments[0])


def _closed_wait(pid: int, tid: int, processes: Iterable[int], sleeps_until: float) -> tuple[str, ...] | None:
    """Return the pipes for which a thread waits if its wait is closed; None: it is open."""
    name, state = procfs.name_and_state(pid, tid)
    if name in _BACKGROUND or name.startswith(PROBE_THREADS):
        return ()
    if state != b"S":  # what stopped it may let it go on
        return None
    call, arguments = procfs.system_call(pid, tid)
    match call:
        case "futex":
            is_closed = _is_own_lock(arguments)
        case "clock_nanosleep":
            end = _sleep_end(pid, arguments)
            is_closed = end is not None and end > sleeps_until
        case "wait4" | "waitid":
            is_closed = True
        case "flock" | "fcntl":
            is_closed = _is_lock_wait(call, arguments) and _holds_one(processes, pid, arguments[0])
        case "accept" | "accept4":
            is_closed = tid != pid and _hands_out_descriptors(pid, arguments[0])
        case "read" | "readv" | "write" | "writev":
            return _pipes(pid, [arguments[0]])
        case "poll":
            return _polled_pipes(pid, arguments)
        case _:
            is_closed = False
    return () if is_closed else None


def _is_own_lock(arguments: list[int]) -> bool:
    """Return whether a futex is the process's own, and the wait without a limit."""
    operation, limit = arguments[1], arguments[3]
    return bool(operation & _FUTEX_PRIVATE) and operation & 0x7F in _FUTEX_WAITS and not limit


def _sleep_end(pid: int, arguments: list[int]) -> float | None:
    """Return when a sleep ends, by the monotonic clock; None: it is not known."""
    clock, flags, place = arguments[:3]
    if flags != _TIMER_ABSTIME or clock not in _CLOCKS or not _has_own_clock(pid):
        return None
    memory = _memory(pid, place, 16)
    if memory is None:
        return None
    seconds, nanoseconds = struct.unpack("=qq", memory)
    left: float = seconds + nanoseconds / 1e9 - _CLOCKS[clock]()
    return time.monotonic() + left


def _has_own_clock(pid: int) -> bool:
    """Return whether a process's monotonic clock is that of this process: a time namespace can move it."""
    try:
        return os.readlink(f"{procfs.PROC}/{pid}/ns/time") == os.readlink(f"{procfs.PROC}/self/ns/time")
    except OSError:
        return False


def _polled_pipes(pid: int, arguments: list[int]) -> tuple[str, ...] | None:
    place, count, limit = arguments[0], arguments[1], arguments[2] & 0xFFFFFFFF
    is_unlimited = limit >= 1 << 31
    memory = _memory(pid, place, 8 * count) if 0 < count <= _MOST_POLLED else None
    if memory is None or not (is_unlimited or limit <= _REPEATED_MILLISECONDS):
        return None
    return _pipes(pid, [descriptor for descriptor, _, _ in struct.iter_unpack("=ihh", memory)])


def _pipes(pid: int, descriptors: Iterable[int]) -> tuple[str, ...] | None:
    targets = tuple(_target(pid, descriptor) for descriptor in descriptors)
    return targets if all(target.startswith("pipe:") for target in targets) else None


def _target(pid: int, descriptor: int) -> str:
    try:
        return os.readlink(f"{procfs.PROC}/{pid}/fd/{descriptor}")
    except OSError:
        return ""


def _memory(pid: int, place: int, size: int) -> bytes | None:
    try:
        descriptor = os.open(f"{procfs.PROC}/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.pread(descriptor, size, place)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(descriptor)
    return found if len(found) == size else None


def _is_lock_wait(call: str, arguments: list[int]) -> bool:
    return call == "flock" or (call == "fcntl" and arguments[1] in _SET_LOCK_WAITS)


def _holds_one(processes: Iterable[int], pid: int, descriptor: int) -> bool:
    """Return whether one of the processes holds a lock of the file that a descriptor of `pid` is."""
    try:
        status = os.stat(f"{procfs.PROC}/{pid}/fd/{descriptor}")
        with open(f"{procfs.PROC}/locks") as table:
            rows = [line.split() for line in table.read(_MOST_LETTERS).splitlines()]
    except OSError:
        return False
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    holders = {row[4] for row in rows if len(row) > 5 and row[1] != "->" and row[5] == file}
    return bool(holders) and holders <= {str(process) for process in processes}


def _hands_out_descriptors(pid: int, descriptor: int) -> bool:
    """Return whether it is the socket at which multiprocessing hands out what was sent: a thread of each worker listens there."""
    inode = _target(pid, descriptor).removeprefix("socket:[").removesuffix("]")
    try:
        with open(f"{procfs.PROC}/{pid}/net/unix") as table:
            rows = (line.split() for line in table.read(_MOST_LETTERS).splitlines())
            return any(
                len(row) > 7 and row[6] == inode and row[3] == _LISTENS and _OF_MULTIPROCESSING.search(row[7]) for row in rows
            )
    except OSError:
        return False
