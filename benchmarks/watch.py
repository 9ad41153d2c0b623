"""What a cycle of the watch, and a look for hangs alone, takes over many simulated jobs, and whether its memory stays flat.

Each cycle adds a minute of records and ledger rows of all ranks to a directory store, an object a rank (`flush: {seconds: 60}` in
the agent's configuration), and then looks at all jobs as `tachoscope watch` does. One job's records are made, and written under all
names. In each cycle some jobs, `--changing`, begin to do something else: one of their ranks waits for its input, or no longer. They
are judged then and in the two cycles after; the others as their reports grow old. With `--changing 1` all are due in all cycles;
those for which there is no time are put off to the next one.

    python benchmarks/watch.py                                  # 200 jobs of 64 ranks, 3 cycles; prints
    python benchmarks/watch.py --changing 1                     # all jobs are judged in each cycle
    python benchmarks/watch.py --jobs 20 --cycles 100           # memory
    python benchmarks/watch.py --write                          # and writes docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import random
import resource
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil
from sections import write_section

from tachoscope_core.records import records
from tachoscope_core.storage.ledger_rows import WINDOW_SECONDS, RankRows
from tachoscope_core.storage.node_status import JobStatus, NodeStatus, RankStatus, write
from tachoscope_core.storage.store import Store
from tachoscope_watch.cycle import JUDGE_SECONDS, Failed, JobLooks, executor
from tachoscope_watch.hang import hang_of
from tachoscope_watch.live_jobs import NodeReader

STEP_SECONDS = 2.0
MINUTE = 60.0
_JOB, _WRITER = "simulated-0000", "00000000-0000-4000-8000-000000000000"
_HOST_RANKS = 8
_GOLDEN = 0.618034


@dataclass(frozen=True, slots=True)
class Measured:
    """Of a cycle: seconds, those of a look for hangs alone after it, jobs judged, and the memory of all processes at its end.

    Attributes:
        cpu_seconds: of all processes in the cycle. put_off: jobs that were due and not judged. oldest_seconds: age of the oldest
            report at the begin of the cycle.
    """

    seconds: float
    cpu_seconds: float
    glance_seconds: float
    judged: int
    put_off: int
    oldest_seconds: float
    resident_bytes: int


def minute(number: int, rank: int, ranks: int, now: float, *, late: bool) -> bytes:
    """Return what a rank records in a minute that ends at `now`; `late`: rank 5 waits for its input."""
    chance = random.Random(number * ranks + rank)
    first, seq, lines = round(number * MINUTE / STEP_SECONDS), number * 1000, []

    def add(kind: type[records.Record], at: float, **fields: object) -> None:
        nonlocal seq
        seq += 1
        envelope = {"job": _JOB, "attempt": 0, "writer": _WRITER, "seq": seq, "rank": rank, "local_rank": rank % _HOST_RANKS}
        place = {"host": f"node-{rank // _HOST_RANKS}", "time": at, "monotonic_ns": round((at - now + 1e6 + number * MINUTE) * 1e9)}
        lines.append(records.encode(kind(**envelope, **place, **fields)))

    if number == 0:
        add(records.JobStarted, now - MINUTE, world_size=ranks, pid=1000 + rank, cpu_threads=1, cpu_count=64)
    for step in range(round(MINUTE / STEP_SECONDS)):
        data = 0.1 + 0.01 * chance.random() + (0.5 if rank == 5 and late else 0.0)
        phases = {"data_wait": data, "forward": 0.6, "backward": STEP_SECONDS - 0.7 - data, "optimizer": 0.1}
        cpu = phases | {"backward": 0.7, "data_wait": 0.0}
        add(
            records.StepDone,
            now - MINUTE + (step + 1) * STEP_SECONDS,
            step=first + step + 1,
            wall_seconds=STEP_SECONDS,
            phase_seconds=phases,
            cpu_seconds=cpu,
            run_delay_seconds={"step": 0.0, "backward": 0.0},
            backward_calls=1,
        )
    for beat in range(12):
        add(
            records.Heartbeat,
            now - MINUTE + beat * 5.0,
            step=first,
            phase="forward",
            window_seconds=5.0,
            signals={"cpu_seconds": 4.0},
        )
    return b"".join(lines)


def is_late(job: int, number: int, changing: float) -> bool:
    """Return whether a rank of a job is late in a cycle; in each cycle `changing` of all jobs become so, or no longer are."""
    turns = math.floor(number * changing + job * _GOLDEN % 1.0)
    return turns % 2 == 1


def write_minute(root: Path, number: int, jobs: int, ranks: int, now: float, changing: float = 0.0) -> None:
    """Put a minute of all jobs into the store."""
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    say_what_runs(Store(str(root)), number, jobs, ranks, now, changing)
    both = {late: [minute(number, rank, ranks, now, late=late) for rank in range(ranks)] for late in (False, True)}
    for job in range(jobs):
        lines = both[is_late(job, number, changing)]
        name = f"simulated-{job:04d}"
        for rank, text in enumerate(lines):
            who = writer(job, rank)
            host = root / f"jobs/{name}/records/date={day}/host=node-{rank // _HOST_RANKS}"
            host.mkdir(parents=True, exist_ok=True)
            data = text.replace(_JOB.encode(), name.encode()).replace(_WRITER.encode(), who.encode())
            path = host / f"{who}-a0-{number * 100_000:016d}.jsonl.gz"
            path.write_bytes(gzip.compress(data, 1))
            os.utime(path, (now, now))


def rows_of(rank: int, now: float, *, late: bool) -> RankRows:
    """Return the ledger rows of a rank of the last two minutes, by the phases that `minute` writes."""
    last, count = int(now // WINDOW_SECONDS), 12
    data = 30 if rank == 5 and late else 5
    tenths = {"compute": 70, "data_wait": data, "communication": 25 * (not late), "straggler_wait": 25 * (late and rank != 5)}
    steps = round(WINDOW_SECONDS / STEP_SECONDS)
    columns = {state: [seconds] * count for state, seconds in tenths.items() if seconds}
    windows = list(range(last - count, last))
    return RankRows(rank, 0, windows, [steps] * count, [round(STEP_SECONDS * 1000)] * count, columns)


def say_what_runs(store: Store, number: int, jobs: int, ranks: int, now: float, changing: float) -> None:
    """Write the object of each node, as the agents do: a node has eight ranks of one job."""
    step = round((number + 1) * MINUTE / STEP_SECONDS)
    for job in range(jobs):
        for node in range(-(-ranks // _HOST_RANKS)):
            own = range(node * _HOST_RANKS, min((node + 1) * _HOST_RANKS, ranks))
            status = [RankStatus(rank, writer(job, rank), 1000 + rank, step, now, STEP_SECONDS, "forward", now) for rank in own]
            rows = [rows_of(rank, now, late=is_late(job, number, changing)) for rank in own]
            seconds = {"compute": 7.0 * step, "data_wait": 0.5 * step, "communication": 2.5 * step}
            part = JobStatus(f"simulated-{job:04d}", None, 0, ranks, "", status, 1, seconds, len(own), rows)
            name = f"job-{job}-node-{node}"
            write(store, NodeStatus(name, now, 30.0, 60.0, [part]))
            os.utime(f"{store.root}/nodes/{name}.json.gz", (now, now))


def writer(job: int, rank: int) -> str:
    """Return who writes a rank's records."""
    return str(uuid.UUID(int=(job << 16) + rank + 1))


def measure(root: Path, jobs: int, ranks: int, cycles: int, workers: int, changing: float) -> list[Measured]:
    """Return what each cycle took; the records' clock goes a minute ahead from one to the next, until now."""
    found = []
    begin = time.time() - cycles * MINUTE
    nodes, looks = NodeReader(Store(str(root))), JobLooks(str(root), budget=JUDGE_SECONDS)
    with executor(workers) as pool:
        for number in range(cycles):
            now = begin + number * MINUTE
            write_minute(root, number, jobs, ranks, now, changing)
            cpu, began = cpu_seconds(), time.perf_counter()
            found_now = looks.cycle(now, pool, nodes.live_jobs(now))
            views = [view for view in found_now if not isinstance(view, Failed)]
            assert len(views) == jobs and all(view.report or view.put_off for view in views), "each job is judged or put off"
            judged, put_off = sum(view.judged == now for view in views), sum(view.put_off > 0 for view in views)
            oldest = max(now - (view.judged or begin) for view in views)
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
            began = time.perf_counter()
            assert not any(map(hang_of, nodes.live_jobs(now).values())), "none of the jobs hangs"
            glance_seconds = time.perf_counter() - began
            me = psutil.Process()
            resident = sum(one.memory_info().rss for one in [me, *me.children(recursive=True)])
            found.append(Measured(seconds, cpu, glance_seconds, judged, put_off, oldest, resident))
            took = f"{seconds:.1f} s, {cpu:.1f} s of CPU, hangs alone {glance_seconds:.1f} s"
            told = f"{judged} judged, {put_off} put off, the oldest report {oldest:.0f} s old"
            sys.stderr.write(f"cycle {number + 1}: {took}, {told}, {resident >> 20} MiB\n")
    return found


def cpu_seconds() -> float:
    """Return what this process and its children have computed so far."""
    me = psutil.Process()
    times = [one.cpu_times() for one in [me, *me.children(recursive=True)]]
    return sum(one.user + one.system for one in times)


def main() -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--changing", type=float, default=0.1, help="part of the jobs that turn in a cycle")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), chosen.jobs, chosen.ranks, chosen.cycles, chosen.workers, chosen.changing)
    rows = [
        "| cycle | seconds | CPU seconds | hangs alone, seconds | judged | put off | oldest report, s | memory of all, MiB |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {number + 1} | {one.seconds:.1f} | {one.cpu_seconds:.1f} | {one.glance_seconds:.1f} "
            f"| {one.judged} | {one.put_off} | {one.oldest_seconds:.0f} | {one.resident_bytes >> 20} |"
            for number, one in enumerate(found)
            if number in {0, 1, 2, len(found) // 2, len(found) - 1}
        ),
    ]
    about = f"{chosen.jobs} jobs of {chosen.ranks} ranks, steps of {STEP_SECONDS:g} s, {chosen.workers} processes"
    table = f"{about}; {chosen.changing:.0%} of the jobs change in each cycle.\n\n" + "\n".join(rows)
    sys.stdout.write(table + "\n")
    if chosen.write:
        write_section("watch", table)


if __name__ == "__main__":
    main()
