"""A background thread of the job: ten times a second it looks at what the training thread waits for, and every few seconds it
writes a heartbeat. It never touches torch.

Signals of a heartbeat are sums over its window: `process_cpu_seconds`, `worker_cpu_seconds` and `worker_seconds` (loader workers:
CPU used, and number x time), `pressure_{cpu,io,memory}_seconds`, `idle_core_seconds` and `busy_core_seconds` (the host's),
`read_bytes` (system calls) and `storage_read_bytes`, `involuntary_switches`, `major_faults`; `ticks`, how often it looked,
`late_ticks` and `late_seconds`, when it could do so only later, though it had a core: another thread held the interpreter's lock.

Levels at its end: `workers`, the number of loader workers, `gradient_bytes`, what `DistributedDataParallel` exchanges each step,
`resident_bytes` and `swapped_bytes` of the process, `available_bytes` of the host.
"""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Protocol

from tachoscope import procfs
from tachoscope.timeline import BACKWARD, DATA_WAIT
from tachoscope_core.records import PHASES

TICK_SECONDS = 0.1
HEARTBEAT_SECONDS = 5.0
FIRST_HEARTBEAT_SECONDS = 1.0
_WORKERS_PER_TICK = 4
_WORKER_CPU_EVERY_TICKS = 5

_LINES_PER_PHASE = 3

Counts = dict[str, dict[str, int]]
Emit = Callable[[float, dict[str, float], Counts, Counts], None]


class Watched(Protocol):
    """What the sampler reads of the probe."""

    @property
    def phase(self) -> int: ...
    @property
    def thread_ident(self) -> int: ...
    @property
    def thread_id(self) -> int: ...
    def loader_workers(self) -> Sequence[int] | None: ...
    def flush(self) -> None: ...


class Sampler:
    """Samples until `stop`; `emit(window_seconds, signals, wait_samples, where)` writes a heartbeat."""

    def __init__(self, watched: Watched, emit: Emit) -> None:
        self._watched = watched
        self._emit = emit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tachoscope-sampler", daemon=True)
        self._waits: Counter[tuple[int, str]] = Counter()
        self._where: Counter[tuple[int, str]] = Counter()
        self._worker_seconds = 0.0
        self._workers = 0
        self._round = 0
        self._ticks = 0
        self._last_tick = self._began = time.monotonic()
        self._base = self._totals()
        self._worker_cpu: dict[int, float] = {}
        self._worker_cpu_seconds = 0.0
        self._late_ticks = 0
        self._late_seconds = 0.0
        self._ticks_before = 0

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Stop and write the last heartbeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        self._flush()

    def _run(self) -> None:
        due = self._began + FIRST_HEARTBEAT_SECONDS
        lateness = Lateness()
        while not self._stop.wait(TICK_SECONDS):
            try:
                late = lateness.after_wait()
                self._late_ticks += late > 0
                self._late_seconds += late
                self._watched.flush()
                self._tick()
                if time.monotonic() >= due:
                    self._flush()
                    due = time.monotonic() + HEARTBEAT_SECONDS
            except Exception:  # an observer must not make noise in the job
                self._waits[self._watched.phase, "unknown"] += 1
            lateness.before_wait()

    def _tick(self) -> None:
        now = time.monotonic()
        workers = self._watched.loader_workers() or ()
        self._workers = max(self._workers, len(workers))
        self._worker_seconds += len(workers) * (now - self._last_tick)
        self._last_tick = now
        self._ticks += 1
        if workers and self._ticks % _WORKER_CPU_EVERY_TICKS == 0:
            self._read_workers()
        phase = self._watched.phase
        if phase == DATA_WAIT and workers:
            for _ in range(min(_WORKERS_PER_TICK, len(workers))):
                self._round += 1
                self._waits[phase, procfs.waits_for(workers[self._round % len(workers)])] += 1
        elif phase != BACKWARD:  # where backward waits is told by its CPU time, without a sample
            self._waits[phase, procfs.waits_for(os.getpid(), self._watched.thread_id)] += 1
            frame = sys._current_frames().get(self._watched.thread_ident)
            if frame is not None:
                self._where[phase, user_line(frame)] += 1

    def _read_workers(self) -> None:
        for pid in self._watched.loader_workers() or ():
            cpu = procfs.cpu_seconds(pid)
            if cpu is not None:
                self._worker_cpu_seconds += max(0.0, cpu - self._worker_cpu.get(pid, 0.0))
                self._worker_cpu[pid] = cpu

    def _totals(self) -> dict[str, float]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        read = procfs.bytes_read()
        cores = procfs.core_seconds()
        totals: dict[str, float | None] = {
            "process_cpu_seconds": usage.ru_utime + usage.ru_stime,
            "involuntary_switches": usage.ru_nivcsw,
            "major_faults": usage.ru_majflt,
            "pressure_cpu_seconds": procfs.pressure_seconds("cpu"),
            "pressure_io_seconds": procfs.pressure_seconds("io"),
            "pressure_memory_seconds": procfs.pressure_seconds("memory"),
            "idle_core_seconds": cores[0] if cores else None,
            "busy_core_seconds": cores[1] if cores else None,
            "read_bytes": read[0] if read else None,
            "storage_read_bytes": read[1] if read else None,
        }
        return {name: value for name, value in totals.items() if value is not None}

    def _flush(self) -> None:
        self._read_workers()
        now, totals = time.monotonic(), self._totals()
        signals = {name: value - self._base[name] for name, value in totals.items() if name in self._base}
        signals |= procfs.memory_bytes()
        signals["ticks"] = self._ticks - self._ticks_before
        signals["late_ticks"], signals["late_seconds"] = self._late_ticks, self._late_seconds
        self._ticks_before, self._late_ticks, self._late_seconds = self._ticks, 0, 0.0
        signals["workers"] = self._workers
        if self._workers:
            signals["worker_cpu_seconds"] = self._worker_cpu_seconds
            signals["worker_seconds"] = self._worker_seconds
        window, self._began, self._base = now - self._began, now, totals
        waits, self._waits = _by_phase(self._waits), Counter()
        where, self._where = _by_phase(self._where, most=_LINES_PER_PHASE), Counter()
        self._worker_seconds = self._worker_cpu_seconds = 0.0
        self._workers = 0
        self._emit(window, signals, waits, where)


class Lateness:
    """How much later than asked the calling thread goes on after a sleep, though it had a core.

    A thread that wakes asks for the interpreter's lock; one that runs Python gives it up within the switch interval. What is longer
    than that is a thread that holds it in a long call of native code, or a garbage collection.
    """

    def __init__(self) -> None:
        self._run_delay = procfs.RunDelay()
        self.before_wait()

    def before_wait(self) -> None:
        """The thread is about to sleep for `TICK_SECONDS`."""
        self._slept_at, self._delay = time.monotonic(), self._run_delay.read()

    def after_wait(self) -> float:
        """Return by how many seconds it went on later than after `TICK_SECONDS`, less what it waited for a core and a switch."""
        without_core = (self._run_delay.read() - self._delay) / 1e9
        late = time.monotonic() - self._slept_at - TICK_SECONDS - without_core - 2 * sys.getswitchinterval()
        return max(late, 0.0) if self._run_delay.measured else 0.0


def _by_phase(counts: Counter[tuple[int, str]], most: int | None = None) -> Counts:
    """Group counts by the name of their phase, the `most` frequent of each."""
    grouped: Counts = {}
    for (phase, key), count in counts.most_common():
        rows = grouped.setdefault(PHASES[phase], {})
        if most is None or len(rows) < most:
            rows[key] = count
    return grouped


_LIBRARY = tuple(
    {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        os.path.dirname(__file__),
    }
)


def user_line(frame: FrameType) -> str:
    """Return `file:line function` of the innermost frame that is not in the standard library or an installed package."""
    innermost = frame
    current: FrameType | None = frame
    while current is not None:
        code = current.f_code
        if not code.co_filename.startswith((*_LIBRARY, "<")):
            return f"{os.path.basename(code.co_filename)}:{current.f_lineno} {code.co_name}"
        current = current.f_back
    code = innermost.f_code
    return f"{os.path.basename(code.co_filename)}:{innermost.f_lineno} {code.co_name}"
