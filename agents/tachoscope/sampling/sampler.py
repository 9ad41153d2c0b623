"""A background thread of the job: ten times a second it looks at what the training thread waits for, and every few seconds it
writes a heartbeat. It never touches torch.

Where the training thread stands still, a look tells its line. Where it runs, the look would only tell where it gives the
interpreter's lock away: there the lines come from `running_stacks`, by the thread's own CPU clock, about as many a second.

Signals of a heartbeat are sums over its window: `process_cpu_seconds`, `worker_cpu_seconds` and `worker_seconds` (loader workers:
CPU used, and number x time), `pressure_{cpu,io,memory}_seconds`, `idle_core_seconds` and `busy_core_seconds` (the host's),
`read_bytes` (system calls) and `storage_read_bytes`, `involuntary_switches`, `major_faults`; `ticks`, how often it looked,
`late_ticks` and `late_seconds`, when it could do so only later, though it had a core: another thread held the interpreter's lock;
`dropped_stacks`, of a running thread, that could not be read.

Levels at its end: `workers`, the number of loader workers, `worker_bytes`, the memory that one of them shares with nobody,
`gradient_bytes`, what `DistributedDataParallel` exchanges each step,
`resident_bytes` and `swapped_bytes` of the process, `available_bytes` of the host.
"""

from __future__ import annotations

import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tachoscope.sampling import loader_workers
from tachoscope.sampling.loop_code import LoopCode
from tachoscope.sampling.loop_stacks import LoopStacks
from tachoscope.sampling.running_stacks import RunningStacks
from tachoscope.sampling.stacks import Chain, chain_of, innermost_line, lines_of, outside_models, user_line
from tachoscope.timing import procfs
from tachoscope.timing.phases import BACKWARD, DATA_WAIT, EVALUATION
from tachoscope_core.records.records import PHASES, SHARED_PHASES

TICK_SECONDS = 0.1
HEARTBEAT_SECONDS = 5.0
FIRST_HEARTBEAT_SECONDS = 1.0
_WORKERS_PER_TICK = 4
_WORKER_CPU_EVERY_TICKS = 5

_LINES_PER_PHASE = 6
_LEARN_TIMES = 8
"""How often it is taken down from where the loop calls its models: in the first steps not every branch was taken."""
_LEARN_EVERY_TICKS = 20
_COMPUTING = ("forward", "loss", "optimizer")
_STANDING = ("sleep", "disk", "file", "pipe", "socket", "poll", "lock")
_PAUSING = ("sleep", "disk", "file", "pipe")
"""Outside of computing, what waits for a socket or a lock may wait for input that another thread makes."""

Counts = dict[str, dict[str, int]]
Emit = Callable[[float, dict[str, float], Counts, Counts, Counts], None]


class SampledSteps(Protocol):
    """What the sampler reads of the steps."""

    @property
    def timeline(self) -> Any: ...
    @property
    def without_gradients(self) -> bool: ...
    @property
    def phase(self) -> int: ...
    def phase_of(self, phase: int, *, without_gradients: bool) -> int: ...


class SampledProbe(Protocol):
    """What the sampler reads of the probe."""

    thread_ident: int
    thread_id: int

    @property
    def machine(self) -> SampledSteps: ...
    @property
    def loop_stacks(self) -> LoopStacks: ...
    def loader_workers(self) -> Sequence[int]: ...
    def flush(self) -> None: ...


class Sampler:
    """Samples until `stop`; `emit(window_seconds, signals, wait_samples, where, activity)` writes a heartbeat."""

    def __init__(self, watched: SampledProbe, emit: Emit) -> None:
        self._watched = watched
        self._emit = emit
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tachoscope-sampler", daemon=True)
        self._waits: Counter[tuple[int, str]] = Counter()
        self._where: Counter[tuple[str, str]] = Counter()
        self._activity: Counter[tuple[str, str]] = Counter()
        self._running = RunningStacks(watched.machine)
        self._code = LoopCode()
        self._learned = 0
        self._random = random.Random()  # noqa: S311  # not the job's
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
        self._ticks_before = self._dropped_before = 0

    def start(self) -> None:
        """Begin to sample; called on the training thread."""
        self._running.start()
        self._thread.start()

    def stop(self) -> None:
        """Stop, within a second at most, and write the last heartbeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)
        self._running.stop()
        self._flush()

    def _run(self) -> None:
        procfs.name_own_thread(b"tachoscope")
        due = self._began + FIRST_HEARTBEAT_SECONDS
        lateness = Lateness()
        while not self._stop.wait(lateness.wait_seconds):
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
                self._waits[self._watched.machine.phase, "unknown"] += 1
            # A tick that keeps pace with the steps would see the same moment of each.
            lateness.before_wait(TICK_SECONDS * self._random.uniform(0.5, 1.5))

    def _tick(self) -> None:
        now = time.monotonic()
        workers = self._watched.loader_workers()
        self._workers = max(self._workers, len(workers))
        self._worker_seconds += len(workers) * (now - self._last_tick)
        self._last_tick = now
        self._ticks += 1
        if workers and self._ticks % _WORKER_CPU_EVERY_TICKS == 0:
            self._read_workers()
        self._record_loop_lines()
        for taken in self._running.drain():
            phase = self._watched.machine.phase_of(taken.phase, without_gradients=taken.without_gradients)
            if phase != BACKWARD:
                self._count_sample(phase, "cpu", lines_of(taken.places))
        phase = self._watched.machine.phase
        if phase == DATA_WAIT and workers:
            for _ in range(min(_WORKERS_PER_TICK, len(workers))):
                self._round += 1
                self._waits[phase, procfs.waits_for(workers[self._round % len(workers)])] += 1
        elif phase != BACKWARD:  # where backward waits is told by its CPU time, without a sample
            self._look(phase)

    def _look(self, phase: int) -> None:
        chain = chain_of(sys._current_frames().get(self._watched.thread_ident))
        kind = procfs.thread_waits_for(self._watched.thread_id)
        self._waits[phase, kind] += 1
        if chain and (kind in _STANDING or not self._running.on):
            self._count_sample(phase, kind, chain)

    def _count_sample(self, clock_phase: int, kind: str, chain: Chain) -> None:
        phase: str = PHASES[clock_phase]
        belongs_to = phase
        if phase in SHARED_PHASES:
            role = self._code.role(chain)
            belongs_to = _PHASE_OF_ROLE.get(role, "other" if phase == "preparation" and role == "other" else phase)
            self._activity[phase, f"{belongs_to} {kind}"] += 1
        if clock_phase == EVALUATION:  # what evaluates, not what its model does
            chain = outside_models(chain)
        line = user_line(chain) or innermost_line(chain)
        self._where[belongs_to, line] += 1
        if kind in (_PAUSING if belongs_to == "other" else _STANDING if belongs_to in _COMPUTING else ()):
            self._where["pause", line] += 1

    def _record_loop_lines(self) -> None:
        """Take down from where models and backward are called, in some of the steps."""
        stacks = self._watched.loop_stacks
        if not stacks.wanted and stacks.backward and self._learned < _LEARN_TIMES:
            models, backward = stacks.taken()
            self._code.add_lines(models=models, backward=backward)
            self._learned += 1
        elif self._learned < _LEARN_TIMES and self._ticks % _LEARN_EVERY_TICKS == 0:
            stacks.take()

    def _read_workers(self) -> None:
        for pid in self._watched.loader_workers():
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
        dropped = self._running.dropped()
        signals["dropped_stacks"], self._dropped_before = max(dropped - self._dropped_before, 0), dropped
        signals["workers"] = self._workers
        if self._workers:
            signals["worker_cpu_seconds"] = self._worker_cpu_seconds
            signals["worker_seconds"] = self._worker_seconds
        window, self._began, self._base = now - self._began, now, totals
        waits = _grouped(Counter({(PHASES[phase], kind): count for (phase, kind), count in self._waits.items()}))
        self._waits = Counter()
        for line, count in loader_workers.LINES.received().items():
            self._where["data_wait", line] += count
        where, self._where = _grouped(self._where, most=_LINES_PER_PHASE), Counter()
        activity, self._activity = _grouped(self._activity), Counter()
        self._worker_seconds = self._worker_cpu_seconds = 0.0
        self._workers = 0
        self._emit(window, signals, waits, where, activity)


class Lateness:
    """How much later than asked the calling thread goes on after a sleep, though it had a core.

    A thread that wakes asks for the interpreter's lock; one that runs Python gives it up within the switch interval. What is longer
    than that is a thread that holds it in a long call of native code, or a garbage collection.
    """

    def __init__(self) -> None:
        self._run_delay = procfs.RunDelay()
        self.before_wait(TICK_SECONDS)

    def before_wait(self, seconds: float) -> None:
        """The thread is about to sleep for `seconds`."""
        self.wait_seconds = seconds
        self._slept_at, self._delay = time.monotonic(), self._run_delay.read()

    def after_wait(self) -> float:
        """Return by how many seconds it went on later than asked, less what it waited for a core and a switch."""
        without_core = (self._run_delay.read() - self._delay) / 1e9
        late = time.monotonic() - self._slept_at - self.wait_seconds - without_core - 2 * sys.getswitchinterval()
        return max(late, 0.0) if self._run_delay.measured else 0.0


_PHASE_OF_ROLE = {"input": "data_wait", "model": "forward", "result": "loss"}


def _grouped(counts: Counter[tuple[str, str]], most: int | None = None) -> Counts:
    """Group counts by their first key, the `most` frequent of each."""
    grouped: Counts = {}
    for (phase, key), count in counts.most_common():
        rows = grouped.setdefault(phase, {})
        if most is None or len(rows) < most:
            rows[key] = count
    return grouped
