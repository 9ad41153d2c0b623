"""A simulated long job: its attempts, its faults, and what its ranks record, as agents ship it into a directory store."""

from __future__ import annotations

import gzip
import os
import random
import time
import uuid
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tachoscope_core.records import records

JOB = "long"
STEP_SECONDS = 2.0
_FLUSH_SECONDS = 300.0
"""The agent's default on an object store."""
_BEAT_SECONDS = 4.0
MEANS_NS = {"data_wait": 110e6, "forward": 600e6, "backward": 1190e6, "optimizer": 99e6, "other": 1e6}
FAULTS = (
    (0.2, 0.25, 5, "data_wait", 0.4),
    (0.5, 0.55, None, "data_wait", 0.3),
    (0.8, 0.85, 17, "forward", 0.4),
)
"""From and until which part of the job, on which rank (None: all), which phase is longer, by how many seconds."""
_FAILS_AT, _DONE_AGAIN, _DOWN_SECONDS = (0.4, 0.7), 60, 300.0
"""After which parts of the job it fails, how many steps it then does again, and how long after."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt: its first step of the whole job, how many it does, when it began, Unix seconds, and how long a step takes."""

    number: int
    first: int
    steps: int
    begin: float
    step_seconds: float


def steps_of(hours: float, step_seconds: float = STEP_SECONDS) -> int:
    """Return how many steps a rank does in some hours."""
    return round(hours * 3600 / step_seconds)


def flush_steps(step_seconds: float) -> int:
    """Return how many steps of a rank a segment holds."""
    return round(_FLUSH_SECONDS / step_seconds)


def beat_steps(step_seconds: float) -> int:
    """Return how many steps of a rank there are from one heartbeat to the next."""
    return max(round(_BEAT_SECONDS / step_seconds), 1)


def attempts(hours: float, step_seconds: float, end: float) -> list[Attempt]:
    """Return the attempts of a job that does new steps until a time: two failures, after each the last steps again."""
    steps = steps_of(hours, step_seconds)
    bounds = [0, *(round(part * steps) for part in _FAILS_AT), steps]
    found: list[Attempt] = []
    for number, (first, last) in enumerate(pairwise(bounds)):
        again = min(_DONE_AGAIN, first)
        found.append(Attempt(number, first - again, last - first + again, 0.0, step_seconds))
    for place in reversed(range(len(found))):
        begin = end - found[place].steps * step_seconds
        found[place] = replace(found[place], begin=begin)
        end = begin - _DOWN_SECONDS
    return found


def step_ns(chance: random.Random, rank: int, part: float, step_seconds: float) -> dict[str, int]:
    """Return the nanoseconds by phase of a step of a rank that is done after that part of the job: each step lasts as long."""
    ns = {name: round(mean * (1 + 0.02 * chance.gauss(0, 1))) for name, mean in MEANS_NS.items()}
    for since, until, late, phase, seconds in FAULTS:
        if since <= part < until and late in (rank, None):
            ns[phase] += round(seconds * 1e9)
    ns["backward"] += round(step_seconds * 1e9) - sum(ns.values())
    return ns


def segment(rank: int, ranks: int, attempt: Attempt, first: int, last: int, all_steps: int) -> bytes:
    """Return what a rank records in some steps of an attempt, as its probe writes it: whole nanoseconds that vary a little."""
    chance = random.Random(rank * 1_000_003 + attempt.first + first)
    who = who_writes(rank, attempt)
    rows: list[records.Record] = beginning(rank, ranks, attempt) if first == 0 else []
    beats = beat_steps(attempt.step_seconds)
    window = beats * attempt.step_seconds
    for step in range(first, last):
        end = step + 1
        ns = step_ns(chance, rank, (attempt.first + step) / all_steps, attempt.step_seconds)
        cpu = {name: round(value * (1 - 0.02 * chance.random())) for name, value in ns.items()}
        cpu |= {"backward": round(7e8 * (1 + 0.01 * chance.random())), "data_wait": round(1e6 * chance.random())}
        now = {
            "time": attempt.begin + end * attempt.step_seconds + 1e-4 * chance.random(),
            "monotonic_ns": round(end * attempt.step_seconds * 1e9),
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
        if end % beats == 0:
            seen: dict[str, Any] = {"signals": {"process_cpu_seconds": 3.9 + 0.1 * chance.random(), "ticks": 40}}
            seen |= {"wait_samples": {"forward": {"cpu": 6}, "data_wait": {"disk": 1 + ns["data_wait"] // 100_000_000}}}
            seen |= {"where": {"forward": {"train.py:40 forward": 6}}}
            rows.append(records.Heartbeat(**who, **now, seq=2 * end + 1, step=end, phase="forward", window_seconds=window, **seen))
    if last == attempt.steps:
        rows.append(end_of(rank, attempt))
    return b"".join(map(records.encode, rows))


def who_writes(rank: int, attempt: Attempt) -> dict[str, Any]:
    """Return the fields that tell whose a record of a rank is."""
    return {
        "job": JOB,
        "attempt": attempt.number,
        "writer": writer(rank, attempt.number),
        "rank": rank,
        "local_rank": rank % 8,
        "host": f"node-{rank // 8}",
    }


def beginning(rank: int, ranks: int, attempt: Attempt) -> list[records.Record]:
    """Return what a rank records before the first step of an attempt."""
    who = who_writes(rank, attempt)
    more = {"world_size": ranks, "pid": 1000 + rank, "cpu_threads": 1, "cpu_count": 64}
    rows: list[records.Record] = [records.JobStarted(**who, **more, seq=0, time=attempt.begin, monotonic_ns=1)]
    if attempt.first:
        place = {"time": attempt.begin + 1e-3, "monotonic_ns": 10**6}
        rows.append(records.CheckpointRestored(**who, **place, seq=1, step=attempt.first, blocking_seconds=0.0))
    return rows


def end_of(rank: int, attempt: Attempt) -> records.JobEnded:
    """Return what a rank records after the last step of an attempt."""
    seconds, status = attempt.steps * attempt.step_seconds, "completed" if attempt.number == len(_FAILS_AT) else "failed"
    now = {"time": attempt.begin + seconds + 1e-4, "monotonic_ns": round(seconds * 1e9)}
    return records.JobEnded(**who_writes(rank, attempt), **now, seq=2 * attempt.steps + 2, steps=attempt.steps, status=status)


def writer(rank: int, attempt: int) -> str:
    """Return who writes a rank's records."""
    return str(uuid.UUID(int=1_000_000 * attempt + rank + 1))


def make(root: Path, ranks: int, hours: float, step_seconds: float = STEP_SECONDS) -> int:
    """Write a job that ended now into a store; return the bytes of its records as JSON lines."""
    all_steps, a_segment, bytes_ = steps_of(hours, step_seconds), flush_steps(step_seconds), 0
    for attempt in attempts(hours, step_seconds, time.time()):
        for first in range(0, attempt.steps, a_segment):
            last = min(first + a_segment, attempt.steps)
            written = attempt.begin + last * attempt.step_seconds + 1.0
            day = time.strftime("%Y-%m-%d", time.gmtime(attempt.begin + first * attempt.step_seconds))
            for rank in range(ranks):
                folder = root / f"jobs/{JOB}/records/date={day}/host=node-{rank // 8}"
                folder.mkdir(parents=True, exist_ok=True)
                content = segment(rank, ranks, attempt, first, last, all_steps)
                bytes_ += len(content)
                path = folder / f"{writer(rank, attempt.number)}-a{attempt.number}-{first * 1000:016d}.jsonl.gz"
                path.write_bytes(gzip.compress(content, 1))
                os.utime(path, (written, written))
    return bytes_
