"""What storing, compacting and judging a long job takes: records of simulated ranks in a directory store, as agents ship them.

python benchmarks/long_jobs.py                     # 64 ranks, 4 and 24 hours; prints
python benchmarks/long_jobs.py --hours 4 336       # two weeks: an hour of making records
python benchmarks/long_jobs.py --write             # and writes docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sections import write_section

from tachoscope_core.records import records

JOB = "long"
STEP_SECONDS = 2.0
FLUSH_STEPS = 150
"""Five minutes, the agent's default on an object store."""
_MEANS_NS = {"data_wait": 110e6, "forward": 600e6, "backward": 1190e6, "optimizer": 99e6, "other": 1e6}
FAULTS = (
    (0.2, 0.25, 5, "data_wait", 0.4),
    (0.5, 0.55, None, "data_wait", 0.3),
    (0.8, 0.85, 17, "forward", 0.4),
)
"""From and until which part of the job, on which rank (None: all), which phase is longer, by how many seconds."""
_FAILS_AT, _DONE_AGAIN, _DOWN_SECONDS = (0.4, 0.7), 60, 300.0
"""After which parts of the job it fails, how many steps it then does again, and how long after."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds that a command took, on the clock and of processors, and the most memory that it had."""

    wall_seconds: float
    cpu_seconds: float
    resident_bytes: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of the job: its first step of the whole job, how many it does, and when it began, Unix seconds."""

    number: int
    first: int
    steps: int
    begin: float


def attempts(steps: int, end: float) -> list[Attempt]:
    """Return the attempts of a job that does so many new steps until a time: two failures, after each the last steps again."""
    bounds = [0, *(round(part * steps) for part in _FAILS_AT), steps]
    found: list[Attempt] = []
    for number, (first, last) in enumerate(pairwise(bounds)):
        again = min(_DONE_AGAIN, first)
        found.append(Attempt(number, first - again, last - first + again, 0.0))
    for place in reversed(range(len(found))):
        begin = end - found[place].steps * STEP_SECONDS
        found[place] = replace(found[place], begin=begin)
        end = begin - _DOWN_SECONDS
    return found


def step_ns(chance: random.Random, rank: int, part: float) -> dict[str, int]:
    """Return the nanoseconds by phase of a step of a rank that is done after that part of the job: each step lasts as long."""
    ns = {name: round(mean * (1 + 0.02 * chance.gauss(0, 1))) for name, mean in _MEANS_NS.items()}
    for since, until, late, phase, seconds in FAULTS:
        if since <= part < until and late in (rank, None):
            ns[phase] += round(seconds * 1e9)
    ns["backward"] += round(STEP_SECONDS * 1e9) - sum(ns.values())
    return ns


def segment(rank: int, ranks: int, attempt: Attempt, first: int, last: int, all_steps: int) -> bytes:
    """Return what a rank records in some steps of an attempt, as its probe writes it: whole nanoseconds that vary a little."""
    chance = random.Random(rank * 1_000_003 + attempt.first + first)
    who: dict[str, Any] = {"job": JOB, "attempt": attempt.number, "writer": writer(rank, attempt.number)}
    who |= {"rank": rank, "local_rank": rank % 8, "host": f"node-{rank // 8}"}
    rows: list[records.Record] = []
    if first == 0:
        more = {"world_size": ranks, "pid": 1000 + rank, "cpu_threads": 1, "cpu_count": 64}
        rows.append(records.JobStarted(**who, **more, seq=0, time=attempt.begin, monotonic_ns=1))
        if attempt.first:
            place = {"time": attempt.begin + 1e-3, "monotonic_ns": 10**6}
            rows.append(records.CheckpointRestored(**who, **place, seq=1, step=attempt.first, blocking_seconds=0.0))
    for step in range(first, last):
        end = step + 1
        ns = step_ns(chance, rank, (attempt.first + step) / all_steps)
        cpu = {name: round(value * (1 - 0.02 * chance.random())) for name, value in ns.items()}
        cpu |= {"backward": round(7e8 * (1 + 0.01 * chance.random())), "data_wait": round(1e6 * chance.random())}
        now = {
            "time": attempt.begin + end * STEP_SECONDS + 1e-4 * chance.random(),
            "monotonic_ns": round(end * STEP_SECONDS * 1e9),
        }
        rows.append(
            records.StepDone(
                **who,
                **now,
                seq=2 * end,
                step=end,
                wall_seconds=sum(ns.values()) / 1e9,
                phase_seconds={name: value / 1e9 for name, value in ns.items()},
                cpu_seconds={name: value / 1e9 for name, value in cpu.items()},
                run_delay_seconds={"step": round(1e6 * chance.random()) / 1e9, "backward": 0.0},
                samples=32,
            )
        )
        if step % 2:
            seen: dict[str, Any] = {"signals": {"process_cpu_seconds": 3.9 + 0.1 * chance.random(), "ticks": 40}}
            seen |= {"wait_samples": {"forward": {"cpu": 6}, "data_wait": {"disk": 1 + ns["data_wait"] // 100_000_000}}}
            seen |= {"where": {"forward": {"train.py:40 forward": 6}}}
            rows.append(records.Heartbeat(**who, **now, seq=2 * end + 1, step=end, phase="forward", window_seconds=4.0, **seen))
    if last == attempt.steps:
        status = "completed" if attempt.number == len(_FAILS_AT) else "failed"
        rows.append(records.JobEnded(**who, **now, seq=2 * last + 2, steps=last, status=status))
    return b"".join(map(records.encode, rows))


def writer(rank: int, attempt: int) -> str:
    """Return who writes a rank's records."""
    return str(uuid.UUID(int=1_000_000 * attempt + rank + 1))


def make(root: Path, ranks: int, hours: float) -> int:
    """Write a job that ended now into a store; return the bytes of its records as JSON lines."""
    all_steps, bytes_ = round(hours * 3600 / STEP_SECONDS), 0
    for attempt in attempts(all_steps, time.time()):
        for first in range(0, attempt.steps, FLUSH_STEPS):
            last = min(first + FLUSH_STEPS, attempt.steps)
            written = attempt.begin + last * STEP_SECONDS + 1.0
            day = time.strftime("%Y-%m-%d", time.gmtime(attempt.begin + first * STEP_SECONDS))
            for rank in range(ranks):
                folder = root / f"jobs/{JOB}/records/date={day}/host=node-{rank // 8}"
                folder.mkdir(parents=True, exist_ok=True)
                content = segment(rank, ranks, attempt, first, last, all_steps)
                bytes_ += len(content)
                path = folder / f"{writer(rank, attempt.number)}-a{attempt.number}-{first * 1000:016d}.jsonl.gz"
                path.write_bytes(gzip.compress(content, 1))
                os.utime(path, (written, written))
    return bytes_


def run(*command: str) -> Measured:
    """Run a command of tachoscope in a process of its own."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "tachoscope_cli.main", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return Measured(time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10)


def stored(root: Path) -> tuple[int, int]:
    """Return how many objects a store has, and their bytes."""
    sizes = [path.stat().st_size for path in root.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def measure(root: Path, ranks: int, hours: float) -> list[str]:
    """Return rows of the table about a job of that length."""
    json_bytes = make(root, ranks, hours)
    rows = []

    def row(what: str, took: Measured) -> None:
        times = f"{took.wall_seconds:.1f} | {took.cpu_seconds:.1f} | {took.resident_bytes >> 20}"
        rows.append(f"| {hours:g} h | {what} | {times} |")
        sys.stderr.write(f"{rows[-1]}\n")

    where = ("--store", str(root))
    objects, bytes_ = stored(root)
    row(f"`analyze`, {objects:,} segments, {bytes_ / 1e6:.0f} MB", run("analyze", *where))
    row("`goodput`, the same", run("goodput", JOB, *where))
    row("`store compact`", run("store", "compact", "--at-rest", "0.001s", *where))
    objects, bytes_ = stored(root)
    row(f"`analyze`, {objects} objects, {bytes_ / 1e6:.0f} MB, {bytes_ / json_bytes:.1%} of the JSON lines", run("analyze", *where))
    row("`analyze --last 1h`", run("analyze", "--last", "1h", *where))
    row("`goodput`", run("goodput", JOB, *where))
    return rows


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--hours", type=float, nargs="+", default=[4.0, 24.0])
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(words)
    table = ["| job | command | seconds | of processors | most memory, MiB |", "|---|---|---|---|---|"]
    for hours in chosen.hours:
        with tempfile.TemporaryDirectory() as folder:
            table += measure(Path(folder), chosen.ranks, hours)
    about = (
        f"A job of {chosen.ranks} ranks, steps of {STEP_SECONDS:g} s, a segment a rank and 5 minutes. It fails twice, and has "
        "three faults, each for a twentieth of its time."
    )
    text = f"{about}\n\n" + "\n".join(table)
    sys.stdout.write(text + "\n")
    if chosen.write:
        write_section("long_jobs", text)


if __name__ == "__main__":
    main()
