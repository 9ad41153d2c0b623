"""What /proc says of a thread or process: time without a core, and what it waits for."""

from __future__ import annotations

import contextlib
import csv
import os
import platform
import time
from functools import cache
from importlib.resources import files

PROC = "/proc"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class RunDelay:
    """Nanoseconds that the calling thread was ready to run but had no core, from its schedstat (one pread, about 1 µs).

    Attributes:
        descriptor: of the open file; the compiled step machine reads it itself.
    """

    def __init__(self) -> None:
        try:
            self.descriptor = os.open(f"{PROC}/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            self.measured = self.read() >= 0
        except (OSError, IndexError, ValueError):
            self.measured = False
            self.descriptor = -1

    def read(self) -> int:
        """Return the sum so far, or 0 where the kernel keeps none (`measured` is False then)."""
        return int(os.pread(self.descriptor, 64, 0).split()[1]) if self.descriptor >= 0 else 0


def _content(path: str, size: int) -> bytes:
    """Return the beginning of a small file. A file object would double the time."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, size)
    finally:
        os.close(descriptor)


@cache
def _syscalls() -> dict[int, tuple[str, str]]:
    """Number of each waiting system call on this machine, to its name and what it waits for."""
    with (files("tachoscope") / "syscalls.csv").open() as table:
        rows = csv.DictReader(line for line in table if not line.startswith("#"))
        machine = platform.machine()
        return {int(row[machine]): (row["name"], row["waits_for"]) for row in rows if row.get(machine)}


def system_call(pid: int, tid: int) -> tuple[str, list[int]]:
    """Return the system call in which a thread waits, and its arguments; empty: in none that is known, or it cannot be read."""
    try:
        fields = _content(f"{PROC}/{pid}/task/{tid}/syscall", 256).split()
        return _syscalls()[int(fields[0])][0], [int(field, 16) for field in fields[1:7]]
    except (OSError, IndexError, KeyError, ValueError):
        return "", []


def waits_for(pid: int, tid: int | None = None) -> str:
    """Return what a thread is doing: cpu, disk, file, pipe, socket, sleep, lock, poll, other, or unknown.

    `disk` is uninterruptible sleep, which a page fault on a file gives as well.
    """
    base = f"{PROC}/{pid}/task/{tid or pid}"
    call = None
    try:
        with contextlib.suppress(OSError):  # only the state of another user's process can be read
            call = _content(f"{base}/syscall", 256)
        if call is not None and call.startswith(b"running"):
            return "cpu"
        state = _content(f"{base}/stat", 512).rsplit(b")", 1)[1].split()[0]
        if state == b"R":
            return "cpu"
        if state == b"D":
            return "disk"
        if call is None:
            return "unknown"
        fields = call.split()
        if not fields or not fields[0].isdigit():
            return "other"
        _, kind = _syscalls().get(int(fields[0]), ("", "other"))
        if kind == "read":
            return _kind_of_file(os.readlink(f"{PROC}/{pid}/fd/{int(fields[1], 16)}"))
        return kind
    except (OSError, IndexError, ValueError):
        return "unknown"


def name_and_state(pid: int, tid: int | None = None) -> tuple[bytes, bytes]:
    """Return the name of a thread, else of a process's first one, and its state; empty: it is gone."""
    try:
        name, fields = _content(f"{PROC}/{pid}/task/{tid or pid}/stat", 512).split(b"(", 1)[1].rsplit(b")", 1)
        return name, fields.split()[0]
    except (OSError, IndexError, ValueError):
        return b"", b""


def name_own_thread(name: bytes) -> None:
    """Give the calling thread the name that the kernel shows, of 15 letters at most."""
    with contextlib.suppress(OSError), open(f"{PROC}/thread-self/comm", "wb") as file:
        file.write(name[:15])


def thread_waits_for(thread_id: int) -> str:
    """Return what another thread of this process is doing, as `waits_for`.

    A thread that waits for the interpreter's lock, which the caller holds, runs: it goes on, or wants a core, once the lock is
    free. To tell it from one at a lock of its own, the caller gives the interpreter's lock away for a millisecond.
    """
    process = os.getpid()
    kind = waits_for(process, thread_id)
    if kind != "lock":
        return kind
    before = running_nanoseconds(thread_id)
    time.sleep(0.001)
    ran = running_nanoseconds(thread_id) != before
    return kind if not ran and waits_for(process, thread_id) == kind else "cpu"


def _kind_of_file(target: str) -> str:
    if target.startswith("socket:"):
        return "socket"
    return "pipe" if target.startswith("pipe:") else "file"


def running_nanoseconds(thread_id: int) -> int | None:
    """Return the CPU time of a thread of this process, or None."""
    try:
        return int(_content(f"{PROC}/self/task/{thread_id}/schedstat", 64).split()[0])
    except (OSError, IndexError, ValueError):
        return None


def cpu_seconds(pid: int) -> float | None:
    """Return user and system CPU seconds of a process with all threads, or None if it ended."""
    try:
        fields = _content(f"{PROC}/{pid}/stat", 1024).rsplit(b")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS
    except (OSError, IndexError, ValueError):
        return None


def start_time() -> float:
    """Return the Unix time at which the system started this process, to a clock tick (10 ms), or 0 where it does not say."""
    try:
        with open(f"{PROC}/self/stat", "rb") as stat:
            ticks = int(stat.read(1024).rsplit(b")", 1)[1].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / CLOCK_TICKS)
    except (OSError, IndexError, ValueError, AttributeError):
        return 0.0


def pressure_seconds(resource: str) -> float | None:
    """Return the seconds in which some task of the host waited for cpu, io or memory (PSI), or None."""
    try:
        with open(f"{PROC}/pressure/{resource}", "rb") as pressure:
            return int(pressure.readline().rsplit(b"total=", 1)[1]) / 1e6
    except (OSError, IndexError, ValueError):
        return None


def core_seconds() -> tuple[float, float] | None:
    """Return the seconds that cores of the host were idle and busy so far, each summed over cores, or None.

    Busy is what other virtual machines took as well (`steal`).
    """
    try:
        with open(f"{PROC}/stat", "rb") as stat:
            ticks = [int(field) for field in stat.readline().split()[1:9]]  # guests are part of user and nice
        idle = ticks[3] + ticks[4]
        return idle / CLOCK_TICKS, (sum(ticks) - idle) / CLOCK_TICKS
    except (OSError, IndexError, ValueError):
        return None


def bytes_read() -> tuple[float, float] | None:
    """Return bytes that this process read by system calls, and from storage, or None."""
    try:
        with open(f"{PROC}/self/io", "rb") as io:
            fields = dict(line.split(b": ") for line in io.read().splitlines())
        return float(fields[b"rchar"]), float(fields[b"read_bytes"])
    except (OSError, KeyError, ValueError):
        return None


def memory_bytes() -> dict[str, float]:
    """Return `resident_bytes` and `swapped_bytes` of this process and `available_bytes` of the host, those that can be read."""
    found = _kilobytes(f"{PROC}/self/status", {b"VmRSS": "resident_bytes", b"VmSwap": "swapped_bytes"})
    return found | _kilobytes(f"{PROC}/meminfo", {b"MemAvailable": "available_bytes"})


def _kilobytes(path: str, wanted: dict[bytes, str]) -> dict[str, float]:
    """Return the bytes of lines such as `VmRSS:   12 kB` by the names that are given; of a file in another form none."""
    found: dict[str, float] = {}
    try:
        content = b"\n" + _content(path, 8192)
        for name, ours in wanted.items():  # a search for each: to split all lines takes four times as long
            start = content.find(b"\n" + name + b":")
            if start >= 0:
                found[ours] = int(content[start + len(name) + 2 : content.index(b"kB", start)]) * 1024.0
    except (OSError, ValueError):
        return {}
    return found


def host_memory_bytes() -> tuple[int, int]:
    """Return the bytes of memory that are available on the host, and all that it has; 0 and 0 where it does not say both."""
    found = _kilobytes(f"{PROC}/meminfo", {b"MemAvailable": "available", b"MemTotal": "total"})
    return (int(found["available"]), int(found["total"])) if len(found) == 2 else (0, 0)


_KINDS = {
    b"RssAnon": "anonymous_bytes",
    b"RssFile": "file_bytes",
    b"RssShmem": "shared_bytes",
    b"VmSwap": "swapped_bytes",
}


def resident_by_kind(pid: int | str = "self") -> dict[str, int]:
    """Return the resident and swapped bytes of a process by kind, named as in `records.ProcessMemory`; none if it ended."""
    return {name: int(size) for name, size in _kilobytes(f"{PROC}/{pid}/status", _KINDS).items()}
