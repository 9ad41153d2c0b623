"""What storing, compacting and judging a long job takes: records of simulated ranks in a directory store, as agents ship them.

python -m benchmarks.long_jobs                         # 64 ranks, 4 and 24 hours; prints
python -m benchmarks.long_jobs --hours 4 336           # two weeks: an hour of making records
python -m benchmarks.long_jobs --sets --hours 24 336   # as they are once compacted, made in minutes: `goodput` alone
python -m benchmarks.long_jobs --write                 # and writes docs/develop/measurements.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.long_jobs.commands import Measured, run, stored
from benchmarks.long_jobs.job import JOB, STEP_SECONDS, make
from benchmarks.long_jobs.sets import write_sets
from benchmarks.sections import write_section


def measure(root: Path, ranks: int, hours: float, step_seconds: float) -> list[str]:
    """Return rows of the table about a job of that length."""
    json_bytes = make(root, ranks, hours, step_seconds)
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


def measure_sets(root: Path, ranks: int, hours: float, step_seconds: float) -> list[str]:
    """Return the row of the table about a job of that length that is compacted."""
    steps = write_sets(root, ranks, hours, step_seconds)
    objects, bytes_ = stored(root)
    took = run("goodput", JOB, "--store", str(root))
    what = f"`goodput`, {steps / 1e6:.1f} million steps in {objects} objects, {bytes_ / 1e6:.0f} MB"
    row = f"| {hours:g} h | {what} | {took.wall_seconds:.1f} | {took.cpu_seconds:.1f} | {took.resident_bytes >> 20} |"
    sys.stderr.write(f"{row}\n")
    return [row]


def main(words: Sequence[str] | None = None) -> None:
    """Measure, and print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--hours", type=float, nargs="+", default=[4.0, 24.0])
    parser.add_argument("--sets", action="store_true", help="begin with what compaction leaves")
    parser.add_argument("--step-seconds", type=float, default=STEP_SECONDS)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args(words)
    table = ["| job | command | seconds | of processors | most memory, MiB |", "|---|---|---|---|---|"]
    for hours in chosen.hours:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            if chosen.sets:
                table += measure_sets(root, chosen.ranks, hours, chosen.step_seconds)
            else:
                table += measure(root, chosen.ranks, hours, chosen.step_seconds)
    about = (
        f"A job of {chosen.ranks} ranks, steps of {chosen.step_seconds:g} s, a segment a rank and 5 minutes. It fails twice, and "
        "has three faults, each for a twentieth of its time."
    )
    text = f"{about}\n\n" + "\n".join(table)
    sys.stdout.write(text + "\n")
    if chosen.write:
        write_section("long_jobs", text)


if __name__ == "__main__":
    main()
