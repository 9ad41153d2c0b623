"""A long job as `store compact` leaves it, written as columns at once: two weeks of 64 ranks take minutes, and not hours.

The numbers are those of `job.make`, but for those that are drawn by chance. Hours are not judged: their intervals are the planted
faults.
"""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
from benchmarks.long_jobs.job import (
    FAULTS,
    JOB,
    MEANS_NS,
    Attempt,
    attempts,
    beat_steps,
    beginning,
    end_of,
    flush_steps,
    steps_of,
    writer,
)

from tachoscope_analyzers.compaction.days import MOST_STEPS
from tachoscope_analyzers.records.beat_parquet import BeatWriter
from tachoscope_analyzers.records.beat_table import BeatTable
from tachoscope_analyzers.records.step_parquet import StepWriter
from tachoscope_analyzers.records.step_table import StepTable
from tachoscope_core.records import records
from tachoscope_core.report.report import IntervalFinding, JudgedInterval
from tachoscope_core.storage.compacted import FORM, CompactedList, CompactedWriter
from tachoscope_core.storage.store import Store

_GROUP_ROWS = 38_400
"""They are some 30 MB of JSON lines, after which compaction ends a row group."""
_STEP_JSON_BYTES = 760

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def write_sets(root: Path, ranks: int, hours: float, step_seconds: float) -> int:
    """Write a job that ended now into a store, at least a set a day; return how many steps its ranks did."""
    store, all_steps, count = Store(str(root)), steps_of(hours, step_seconds), 0
    set_steps = min(steps_of(24.0, step_seconds), MOST_STEPS // ranks)
    for attempt in attempts(hours, step_seconds, time.time()):
        for first in range(0, attempt.steps, set_steps):
            last = min(first + set_steps, attempt.steps)
            _write_set(store, ranks, attempt, range(first, last), all_steps)
            count += ranks * (last - first)
    return count


def _write_set(store: Store, ranks: int, attempt: Attempt, steps: range, all_steps: int) -> None:
    step_file: StepWriter | None = None
    beat_file: BeatWriter | None = None
    group_steps = _GROUP_ROWS // ranks
    for first in range(steps.start, steps.stop, group_steps):
        group = range(first, min(first + group_steps, steps.stop))
        ns = _nanoseconds(ranks, attempt, group, all_steps)
        table, beats = _steps(ranks, attempt, group, ns), _beats(ranks, attempt, group, ns["data_wait"])
        step_file, beat_file = step_file or StepWriter(table), beat_file or BeatWriter(beats)
        assert step_file.exactly_stored(table).all() and beat_file.exactly_stored(beats).all()
        step_file.add(table)
        beat_file.add(beats)
    assert step_file is not None and beat_file is not None
    lines = [row for rank in range(ranks) for row in (beginning(rank, ranks, attempt) if not steps.start else [])]
    lines += [end_of(rank, attempt) for rank in range(ranks) if steps.stop == attempt.steps]
    begin, until = (attempt.begin + one * attempt.step_seconds for one in (steps.start, steps.stop))
    holds = CompactedList(
        form=FORM,
        steps=ranks * len(steps),
        heartbeats=beat_file.rows,
        measured=0,
        line_objects=int(bool(lines)),
        begin=begin,
        end=until,
        written=until + 1.0,
        json_bytes=ranks * len(steps) * _STEP_JSON_BYTES,
        writers=[
            CompactedWriter(f"node-{rank // 8}", writer(rank, attempt.number), attempt.number, _offsets(steps, attempt))
            for rank in range(ranks)
        ],
        steps_begin=begin,
        steps_end=until,
        intervals=_intervals(attempt, steps, all_steps),
    )
    day = time.strftime("%Y-%m-%d", time.gmtime(begin))
    name = f"date={day}/{int(until):010d}_{attempt.number:016x}"
    store.write_compacted(JOB, f"{name}.steps.parquet", step_file.end())
    store.write_compacted(JOB, f"{name}.heartbeats.parquet", beat_file.end())
    if lines:
        store.write_compacted(JOB, f"{name}-0.jsonl.gz", gzip.compress(b"".join(map(records.encode, lines))))
    store.write_compacted(JOB, f"{name}.json.gz", gzip.compress(msgspec.json.encode(holds)))


def _intervals(attempt: Attempt, steps: range, all_steps: int) -> list[JudgedInterval]:
    """Return the hours of a set with the faults that cover them."""
    found = []
    for first in range(steps.start, steps.stop, steps_of(1.0, attempt.step_seconds)):
        last = min(first + steps_of(1.0, attempt.step_seconds), steps.stop)
        part = (attempt.first + (first + last) / 2) / all_steps
        faults = [
            IntervalFinding(
                class_="compute_straggler" if phase == "forward" else "input_workers" if late is None else "input_straggler",
                severity="warning",
                seconds_per_step=seconds,
                share=seconds / attempt.step_seconds,
                ranks="all" if late is None else [late],
            )
            for since, until, late, phase, seconds in FAULTS
            if since <= part < until
        ]
        found.append(
            JudgedInterval(
                start=attempt.begin + first * attempt.step_seconds,
                end=attempt.begin + last * attempt.step_seconds,
                attempt=attempt.number,
                steps=last - first,
                step_seconds=attempt.step_seconds,
                compute_share=0.95 - sum(one.share for one in faults),
                findings=faults,
            )
        )
    return found


def _offsets(steps: range, attempt: Attempt) -> list[int]:
    """Return where the segments of a rank began that a set replaces, as numbers of the size that offsets have."""
    return [first * 1000 for first in range(steps.start, steps.stop, flush_steps(attempt.step_seconds))]


def _nanoseconds(ranks: int, attempt: Attempt, steps: range, all_steps: int) -> dict[str, Ints]:
    """Return the nanoseconds of steps by phase, shape (ranks, steps): see `job.step_ns`."""
    chance = np.random.default_rng((attempt.number, steps.start))
    shape = (ranks, len(steps))
    ns = {name: np.rint(mean * (1 + 0.02 * chance.normal(size=shape))).astype(np.int64) for name, mean in MEANS_NS.items()}
    part = (attempt.first + np.arange(steps.start, steps.stop)) / all_steps
    for since, until, late, phase, seconds in FAULTS:
        during = (since <= part) & (part < until)
        ns[phase][slice(None) if late is None else slice(late, late + 1), during] += round(seconds * 1e9)
    ns["backward"] += round(attempt.step_seconds * 1e9) - sum(ns.values())
    return ns


def _of_processes(ranks: int, attempt: Attempt, count: int) -> dict[str, npt.NDArray[np.int32]]:
    """Return the columns that tell whose `count` rows of each rank are, one rank after the other."""
    rank = np.repeat(np.arange(ranks, dtype=np.int32), count)
    number = np.full(rank.size, attempt.number, np.int32)
    return {"writer": rank, "host": rank // 8, "attempt": number, "rank": rank, "local_rank": rank % 8}


def _names(ranks: int, attempt: Attempt) -> dict[str, tuple[str, ...]]:
    hosts = tuple(f"node-{number}" for number in range((ranks + 7) // 8))
    return {"writer": tuple(writer(rank, attempt.number) for rank in range(ranks)), "host": hosts}


def _steps(ranks: int, attempt: Attempt, steps: range, ns: dict[str, Ints]) -> StepTable:
    chance = np.random.default_rng((attempt.number, steps.start, 1))
    numbers = np.tile(np.arange(steps.start, steps.stop, dtype=np.int64) + 1, ranks)

    def drawn() -> Floats:
        return chance.random(numbers.size)

    flat = {name: values.ravel() for name, values in ns.items()}
    cpu = {name: np.rint(values * (1 - 0.02 * drawn())) for name, values in flat.items()}
    cpu |= {"backward": np.rint(7e8 * (1 + 0.01 * drawn())), "data_wait": np.rint(1e6 * drawn())}
    names, zeros = _names(ranks, attempt), np.zeros(numbers.size, np.int64)
    columns = {
        **_of_processes(ranks, attempt, len(steps)),
        "seq": 2 * numbers,
        "time": attempt.begin + numbers * attempt.step_seconds + 1e-4 * drawn(),
        "monotonic_ns": np.rint(numbers * attempt.step_seconds * 1e9).astype(np.int64),
        "step": numbers,
        "wall_seconds": sum(flat.values()) / 1e9,
        "samples": zeros + 32,
        "tokens": zeros,
        "backward_calls": zeros,
        "elements": zeros,
        **{f"{name}_seconds": values / 1e9 for name, values in flat.items()},
        **{f"{name}_cpu_seconds": values / 1e9 for name, values in cpu.items()},
        "step_delay_seconds": np.rint(1e6 * drawn()) / 1e9,
        "backward_delay_seconds": np.zeros(numbers.size),
    }
    return StepTable(JOB, names["writer"], names["host"], columns)


def _beats(ranks: int, attempt: Attempt, steps: range, data_wait_ns: Ints) -> BeatTable[bytes]:
    """Return the heartbeats of some steps."""
    beats, chance = beat_steps(attempt.step_seconds), np.random.default_rng((attempt.number, steps.start, 2))
    every = np.arange(steps.start, steps.stop, dtype=np.int64)
    with_beat = (every + 1) % beats == 0
    numbers = np.tile(every[with_beat] + 1, ranks)
    disk = 1 + data_wait_ns[:, with_beat].ravel() // 100_000_000
    most = int(disk.max())
    names, zeros = _names(ranks, attempt) | {"phase": ("forward",)}, np.zeros(numbers.size, np.int32)
    columns = {
        **_of_processes(ranks, attempt, int(with_beat.sum())),
        "phase": zeros,
        "seen": disk.astype(np.int32),
        "seq": 2 * numbers + 1,
        "time": attempt.begin + numbers * attempt.step_seconds + 1e-4 * chance.random(numbers.size),
        "monotonic_ns": np.rint(numbers * attempt.step_seconds * 1e9).astype(np.int64),
        "step": numbers,
        "window_seconds": np.full(numbers.size, beats * attempt.step_seconds),
        "dropped_total": zeros.astype(np.int64),
    }
    signals = {"process_cpu_seconds": 3.9 + 0.1 * chance.random(numbers.size), "ticks": np.full(numbers.size, 40.0)}
    return BeatTable(JOB, names, tuple(_seen(count) for count in range(most + 1)), columns, signals)


def _seen(disk: int) -> bytes:
    """Return what a sampler saw, as a table of heartbeats holds it."""
    waits = {"forward": {"cpu": 6}, "data_wait": {"disk": disk}}
    return msgspec.json.encode([waits, {"forward": {"train.py:40 forward": 6}}, {}, None])
